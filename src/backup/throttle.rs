//! Throttle of an archive that is written while the gateway runs: a byte rate, free disk space to leave, and a stop
//! signal. All calls block.

use super::progress::Progress;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes between two checks of the limits.
const STRIDE: u64 = 1 << 20;
/// Longest single pause. Writes to the store are blocked while its last rows are copied, so pauses are short.
const LONGEST: Duration = Duration::from_millis(20);

/// Throttle of an archive that is being written, with its progress display.
pub struct Brake<'a> {
    bounds: Option<Bounds<'a>>,
    progress: Option<&'a Progress>,
    begun: Instant,
    spent: u64,
    looked: u64,
}

/// Limits of a throttle.
pub struct Bounds<'a> {
    /// Bytes per second that may be read or written.
    pub rate: u64,
    /// Bytes that stay free on the disk of `folder`.
    pub free: u64,
    /// Folder on the disk that is checked for free space.
    pub folder: PathBuf,
    /// Returns true if the work must stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Brake<'a> {
    /// Returns a throttle without limits.
    pub fn off() -> Self {
        Self { bounds: None, progress: None, begun: Instant::now(), spent: 0, looked: 0 }
    }

    /// Returns a throttle without limits that reports each byte to `progress`.
    pub fn reporting(progress: &'a Progress) -> Self {
        Self { progress: Some(progress), ..Self::off() }
    }

    /// Returns a throttle with these limits.
    pub fn new(bounds: Bounds<'a>) -> Self {
        Self { bounds: Some(bounds), ..Self::off() }
    }

    /// Counts bytes that were read or written, and sleeps if the rate was exceeded.
    ///
    /// # Errors
    /// Returns `Interrupted` if the work must stop, and `StorageFull` if too little disk space would remain.
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

    /// Returns the closest existing ancestor of a folder, for the free-space check.
    pub fn nearest(folder: &Path) -> PathBuf {
        folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder).to_owned()
    }
}

/// Writer that counts its bytes at a throttle.
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
