//! Holds back an archive that is made while the gateway works: so many bytes a second, room left on the disk, and
//! an end when the house stops. Calls block.

use super::progress::Progress;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes between two looks.
const STRIDE: u64 = 1 << 20;
/// The longest pause at once: the last rows of a store are copied while writing is held up.
const LONGEST: Duration = Duration::from_millis(20);

/// What an archive in the making has to heed.
pub struct Brake<'a> {
    bounds: Option<Bounds<'a>>,
    progress: Option<&'a Progress>,
    begun: Instant,
    spent: u64,
    looked: u64,
}

/// What holds an archive back.
pub struct Bounds<'a> {
    /// Bytes a second that are read or written.
    pub rate: u64,
    /// Bytes that stay free …
    pub free: u64,
    /// … of the disk with this folder.
    pub folder: PathBuf,
    /// Whether nothing more is wanted.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Brake<'a> {
    /// None: as fast as it goes.
    pub fn off() -> Self {
        Self { bounds: None, progress: None, begun: Instant::now(), spent: 0, looked: 0 }
    }

    /// None, with each byte reported.
    pub fn reporting(progress: &'a Progress) -> Self {
        Self { progress: Some(progress), ..Self::off() }
    }

    /// One with these bounds.
    pub fn new(bounds: Bounds<'a>) -> Self {
        Self { bounds: Some(bounds), ..Self::off() }
    }

    /// Notes bytes that were read or written, and pauses if they were too many.
    ///
    /// # Errors
    /// `Interrupted` when nothing more is wanted, `StorageFull` when the disk would have too little room.
    pub fn spend(&mut self, bytes: u64) -> Result<()> {
        self.spent += bytes;
        if let Some(progress) = self.progress {
            progress.advance(bytes);
        }
        let Some(bounds) = self.bounds.as_ref().filter(|_| self.spent >= self.looked + STRIDE) else {
            return Ok(());
        };
        self.looked = self.spent;
        if (bounds.stop)() {
            return Err(Error::new(ErrorKind::Interrupted, "the gateway stops"));
        }
        if !crate::storage::files::quota::fits(&bounds.folder, 0, bounds.free) {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "the disk would have less than files.keep_free left",
            ));
        }
        let due = Duration::from_secs_f64(self.spent as f64 / bounds.rate.max(1) as f64);
        let ahead = due.saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            sleep(ahead.min(LONGEST));
        }
        Ok(())
    }

    /// The nearest folder that is there, to ask its disk.
    pub fn nearest(folder: &Path) -> PathBuf {
        folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder).to_owned()
    }
}

/// A writer that heeds a brake.
pub struct Braked<'a, 'b, W> {
    pub inner: W,
    pub brake: &'a mut Brake<'b>,
}

impl<W: Write> Write for Braked<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.inner.write(bytes)?;
        self.brake.spend(written as u64)?;
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_brake_holds_back_and_ends() {
        let (go, folder) = (|| false, std::env::temp_dir());
        let bounds = |free, stop| Bounds { rate: 100 << 20, free, folder: folder.clone(), stop };
        let mut brake = Brake::new(bounds(0, &go));
        let begun = Instant::now();
        for _ in 0..10 {
            brake.spend(STRIDE).unwrap();
        }
        assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
        let halt = || true;
        let stopped = Brake::new(bounds(0, &halt)).spend(STRIDE);
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
        let full = Brake::new(bounds(u64::MAX, &go)).spend(STRIDE);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
        Brake::off().spend(u64::MAX).unwrap();
    }
}
