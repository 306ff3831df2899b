//! Disk quota of files: a limit for all files, a limit per key, and the space that stays free on the disk. Usage is
//! counted in memory; a failed upload releases what it reserved.

use parking_lot::Mutex;
use penstock_contract::{Code, Refusal};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Limits of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all files.
    pub all: u64,
    /// Bytes of one key's files.
    pub key: u64,
    /// Bytes of the disk that uploads leave free.
    pub free: u64,
    /// Bytes of one line of an uploaded file.
    pub line: usize,
}

/// Limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Limit of all files or of the disk: clients cannot distinguish them.
    House,
    /// Limit of the key's files, in bytes.
    Key(u64),
}

impl Full {
    /// Converts the limit to the error of the client.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        match self {
            Self::House => Refusal::new(Code::StorageFull),
            Self::Key(most) => {
                let message = format!(
                    "The files of this API key may hold {most} bytes together; delete some to make room."
                );
                Refusal::because(Code::StorageFull, message).with("limit_bytes", most)
            }
        }
    }
}

/// Disk usage of all files and of each key.
#[derive(Debug, Default)]
pub struct Room(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    all: u64,
    keys: HashMap<Box<str>, u64, ahash::RandomState>,
}

impl Room {
    /// Counts existing bytes, whatever the limits are.
    pub fn note(&self, key: &str, bytes: u64) {
        let mut inner = self.0.lock();
        inner.all += bytes;
        match inner.keys.get_mut(key) {
            Some(own) => *own += bytes,
            None => {
                inner.keys.insert(key.into(), bytes);
            }
        }
    }

    /// Subtracts deleted bytes.
    pub fn give(&self, key: &str, bytes: u64) {
        let mut inner = self.0.lock();
        inner.all = inner.all.saturating_sub(bytes);
        if let Some(own) = inner.keys.get_mut(key) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                inner.keys.remove(key);
            }
        }
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.lock().all
    }

    fn take(&self, key: &str, bytes: u64, bounds: &Bounds) -> Result<(), Full> {
        let inner = self.0.lock();
        let own = inner.keys.get(key).copied().unwrap_or(0);
        if own.saturating_add(bytes) > bounds.key {
            return Err(Full::Key(bounds.key));
        }
        if inner.all.saturating_add(bytes) > bounds.all {
            return Err(Full::House);
        }
        drop(inner);
        self.note(key, bytes);
        Ok(())
    }
}

/// Quota reservation of one upload; released on drop.
#[derive(Debug)]
pub struct Taken {
    room: Arc<Room>,
    key: Box<str>,
    bytes: u64,
}

impl Taken {
    /// Returns an empty reservation for a file of this key.
    #[must_use]
    pub fn new(room: Arc<Room>, key: &str) -> Self {
        Self { room, key: key.into(), bytes: 0 }
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// Returns the limit that would be exceeded.
    pub fn grow(&mut self, bytes: u64, bounds: &Bounds) -> Result<(), Full> {
        self.room.take(&self.key, bytes, bounds)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Keeps the bytes reserved, because the file is stored.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.give(&self.key, self.bytes);
        }
    }
}

/// Returns true if `bytes` more leave `free` bytes on the disk of `folder`.
#[must_use]
pub fn fits(folder: &Path, bytes: u64, free: u64) -> bool {
    // If the disk cannot be queried, the write will report the error.
    rustix::fs::statvfs(folder)
        .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes.saturating_add(free))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_have_their_own_bound_and_all_have_one() {
        let bounds = Bounds { all: 100, key: 60, free: 0, line: 100 };
        let room = Arc::new(Room::default());
        room.note("a", 50);
        let mut mine = Taken::new(room.clone(), "a");
        mine.grow(10, &bounds).unwrap();
        assert_eq!(mine.grow(1, &bounds), Err(Full::Key(60)));
        let mut other = Taken::new(room.clone(), "b");
        assert_eq!(other.grow(41, &bounds), Err(Full::House));
        other.grow(40, &bounds).unwrap();
        other.keep();
        drop(mine);
        assert_eq!(room.used(), 90, "what was kept stays, what was dropped is given back");
        room.give("b", 40);
        room.give("a", 50);
        assert_eq!((room.used(), room.0.lock().keys.len()), (0, 0));
    }

    #[test]
    fn a_disk_tells_how_much_is_free() {
        let folder = tempfile::tempdir().unwrap();
        assert!(fits(folder.path(), 1, 0));
        assert!(!fits(folder.path(), 1, u64::MAX));
    }
}
