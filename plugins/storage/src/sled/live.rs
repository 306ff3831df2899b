//! An open sled, never touched but through here: errors become ours, panics become errors, and `flush` is
//! followed by a sync that is one.

use std::fs::File;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Options;
use super::folder::{sweep, sync_tree};
use crate::{StoreError, row};

/// How long to wait for sled's own lock: after a store is closed, sled may hold its file a moment longer.
const LINGERS: Duration = Duration::from_secs(10);

/// Bytes of a segment of sled's log.
///
/// sled writes pages, not rows: a leaf of up to 17 rows is one message, and a message over a quarter of a segment
/// goes to a file of its own, which sled never syncs. With sled's default of 512 KiB that begins at rows of
/// 7 KiB. Here the largest page, 17 rows of 64 KiB and their keys (1.1 MiB), stays under the quarter (2 MiB).
pub(crate) const SEGMENT: usize = 8 << 20;

/// sled divides its cache into 256 parts and looks at what a part holds once it was read 64 times. A walk that reads
/// each page once would leave up to 63 pages in each part behind, 500 MiB of a ledger's, for as long as the store is
/// open. So the rows of a long walk are read again, so often that a full page, which holds 17, is read 64 times.
const AGAIN: usize = 4;
/// Bytes of a long row: pages of such rows that were written are as good as never read again, and kept all the same.
const LONG: usize = 1024;
/// Rows of a walk that is not long.
const FEW: usize = 64;

/// How often sled moves rows together so that old parts of its log become free, ms. Each time it also syncs, and wakes
/// all its threads; what has to be durable is synced here, by `sync`, so every half second, as it would, is for nothing.
const TIDY: u64 = 2_000;

/// An open sled and our own descriptor of its log.
pub(crate) struct Live {
    db: ::sled::Db,
    log: File,
}

impl Live {
    /// Opens, or makes, the sled in `folder` and syncs what opening changed.
    pub(crate) fn start(folder: &Path, options: &Options) -> Result<Live, StoreError> {
        sweep(folder)?;
        let patience = Instant::now();
        let db = loop {
            let config = ::sled::Config::new()
                .path(folder)
                .cache_capacity(options.cache_bytes)
                .segment_size(SEGMENT)
                .flush_every_ms(Some(TIDY));
            match shielded("open", || config.open()) {
                Err(Failure::Lingering) if patience.elapsed() < LINGERS => sleep(Duration::from_millis(5)),
                opened => break opened?,
            }
        };
        let log = File::open(folder.join("db")).map_err(|error| StoreError::io("open its log", &error))?;
        sync_tree(folder)?;
        Ok(Live { db, log })
    }

    /// The value of a row, checked.
    pub(crate) fn get(&self, disk_key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sealed) = self.sealed(disk_key)? else { return Ok(None) };
        row::open(disk_key, &sealed).map(|value| Some(value.to_vec()))
    }

    /// Rows from `from` on, unchecked, until `each` returns false.
    pub(crate) fn walk(
        &self,
        from: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.range::<&[u8], _>((from, Bound::Unbounded));
        let mut seen = 0;
        while let Some((key, sealed)) = shielded("read", || rows.next().transpose())? {
            seen += 1;
            if seen > FEW {
                self.settle(&key)?;
            }
            if !each(&key, &sealed)? {
                break;
            }
        }
        Ok(())
    }

    /// Lets sled notice what its cache holds around this row.
    fn settle(&self, disk_key: &[u8]) -> Result<(), StoreError> {
        for _ in 0..AGAIN {
            self.sealed(disk_key)?;
        }
        Ok(())
    }

    /// Rows from `upto` down, unchecked, until `each` returns false.
    pub(crate) fn walk_back(
        &self,
        upto: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.range::<&[u8], _>((Bound::Unbounded, upto));
        while let Some((key, sealed)) = shielded("read", || rows.next_back().transpose())? {
            if !each(&key, &sealed)? {
                break;
            }
        }
        Ok(())
    }

    /// A row as it lies on disk, unchecked.
    pub(crate) fn sealed(&self, disk_key: &[u8]) -> Result<Option<::sled::IVec>, StoreError> {
        Ok(shielded("read", || self.db.get(disk_key))?)
    }

    /// Writes sealed rows by their disk key (`None` removes), all or none, not yet durable.
    pub(crate) fn write(
        &self,
        writes: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<(), StoreError> {
        let mut batch = ::sled::Batch::default();
        let mut long = Vec::new();
        for (key, sealed) in writes {
            match sealed {
                Some(sealed) => {
                    if sealed.len() >= LONG {
                        long.push(key.clone());
                    }
                    batch.insert(key, sealed);
                }
                None => batch.remove(key),
            }
        }
        shielded("write", || self.db.apply_batch(batch))?;
        // It is written, whatever comes of this.
        long.iter().for_each(|key| drop(self.settle(key)));
        Ok(())
    }

    /// Hands everything written to the operating system. sled's `flush` stops there: on Linux it ends in
    /// `sync_file_range`, which neither writes the file's length nor empties the disk's cache.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        shielded("write", || self.db.flush())?;
        Ok(())
    }

    /// Makes durable what was flushed.
    ///
    /// Only the log needs it: rows of our size live nowhere else, and files beside it appear only while
    /// sled opens, after which the whole folder is synced.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.log.sync_data().map_err(|error| StoreError::io("sync", &error))
    }

    /// Bytes of the log on disk.
    pub(crate) fn log_bytes(&self) -> Result<u64, StoreError> {
        self.log.metadata().map(|log| log.len()).map_err(|error| StoreError::io("measure its log", &error))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
impl Live {
    /// Flips a bit of a row.
    pub(crate) fn damage(&self, disk_key: &[u8]) {
        let mut sealed = self.db.get(disk_key).unwrap().unwrap().to_vec();
        *sealed.last_mut().unwrap() ^= 1;
        self.db.insert(disk_key, sealed).unwrap();
        self.db.flush().unwrap();
    }
}

enum Failure {
    Lingering,
    Other(StoreError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        match failure {
            Failure::Lingering => StoreError::Io {
                what: "open: sled still holds its file",
                kind: std::io::ErrorKind::WouldBlock,
            },
            Failure::Other(error) => error,
        }
    }
}

/// Runs a call into sled, which reports some damage by panicking.
fn shielded<T>(what: &'static str, call: impl FnOnce() -> ::sled::Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(what, &error)),
        Err(_) => Err(Failure::Other(StoreError::corrupt(format!("sled gave up while asked to {what}")))),
    }
}

fn failure(what: &'static str, error: &::sled::Error) -> Failure {
    Failure::Other(match error {
        ::sled::Error::Io(io) if io.to_string().starts_with("could not acquire lock") => {
            return Failure::Lingering;
        }
        ::sled::Error::Io(io) => StoreError::io(what, io),
        ::sled::Error::Corruption { at, .. } => StoreError::corrupt(match at {
            Some(at) => format!("sled's log at {at}"),
            None => "sled's snapshot or log".to_owned(),
        }),
        ::sled::Error::Unsupported(what) => StoreError::Format { what: what.clone() },
        other => StoreError::corrupt(format!("sled could not {what}: {other}")),
    })
}
