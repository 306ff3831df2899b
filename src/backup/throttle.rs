//! Throttle of an archive that is written while the gateway runs: it limits the byte rate, leaves free disk space, and
//! ends the work on a stop signal. All calls block.

use super::progress::ProgressReporter;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes between two checks of the limits.
const CHECK_BYTES: u64 = 128 << 10;
/// Longest single sleep, after which the stop signal is checked.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Throttle of an archive that is being written, with its progress display.
pub struct Throttle<'a> {
    limits: Option<ThrottleLimits<'a>>,
    progress: Option<&'a ProgressReporter>,
    started: Instant,
    bytes: u64,
    checked_at: u64,
}

/// Limits of a throttle.
pub struct ThrottleLimits<'a> {
    /// Bytes per second that may be read or written.
    pub bytes_per_second: u64,
    /// Bytes that stay free on the disk of `folder`.
    pub min_free_bytes: u64,
    /// Folder on the disk that is checked for free space.
    pub folder: PathBuf,
    /// Function that returns true if the work must stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Throttle<'a> {
    /// Returns a throttle without limits.
    pub fn unlimited() -> Self {
        Self { limits: None, progress: None, started: Instant::now(), bytes: 0, checked_at: 0 }
    }

    /// Returns a throttle without limits that reports each byte to `progress`.
    pub fn with_progress(progress: &'a ProgressReporter) -> Self {
        Self { progress: Some(progress), ..Self::unlimited() }
    }

    /// Returns a throttle with these limits.
    pub fn new(bounds: ThrottleLimits<'a>) -> Self {
        Self { limits: Some(bounds), ..Self::unlimited() }
    }

    /// Counts bytes that were read or written, and sleeps while the rate is exceeded.
    ///
    /// # Errors
    /// Returns `Interrupted` if the work must stop, and `StorageFull` if too little disk space would remain.
    pub fn throttle_bytes(&mut self, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        if let Some(progress) = self.progress {
            progress.advance(bytes);
        }
        let Some(bounds) = self.limits.as_ref().filter(|_| self.bytes >= self.checked_at + CHECK_BYTES)
        else {
            return Ok(());
        };
        self.checked_at = self.bytes;
        if !crate::storage::files::quota::has_free_space(&bounds.folder, 0, bounds.min_free_bytes) {
            return Err(Error::new(
                ErrorKind::StorageFull,
                "the disk would have less than files.keep_free left",
            ));
        }
        let due = Duration::from_secs_f64(self.bytes as f64 / bounds.bytes_per_second.max(1) as f64);
        loop {
            if (bounds.stop)() {
                return Err(Error::new(ErrorKind::Interrupted, "the gateway stops"));
            }
            let pause = due.saturating_sub(self.started.elapsed());
            if pause.is_zero() {
                return Ok(());
            }
            sleep(pause.min(MAX_PAUSE));
        }
    }

    /// Returns the closest existing ancestor of a folder, for the free-space check.
    pub fn existing_ancestor(folder: &Path) -> PathBuf {
        folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder).to_owned()
    }
}

/// Writer whose byte rate is limited by a throttle.
pub struct ThrottledWriter<'a, 'b, W> {
    pub inner: W,
    pub throttle: &'a mut Throttle<'b>,
}

impl<W: Write> Write for ThrottledWriter<'_, '_, W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.inner.write(bytes)?;
        self.throttle.throttle_bytes(written as u64)?;
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
    fn a_throttle_holds_its_rate_and_ends() {
        let (go, folder) = (|| false, std::env::temp_dir());
        let bounds = |free, stop| ThrottleLimits {
            bytes_per_second: 32 << 20,
            min_free_bytes: free,
            folder: folder.clone(),
            stop,
        };
        // Each round counts 4 MiB in total, in pieces of another size.
        for piece in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let mut throttle = Throttle::new(bounds(0, &go));
            for _ in 0..(4 << 20) / piece {
                throttle.throttle_bytes(piece).unwrap();
            }
            let elapsed = throttle.started.elapsed();
            assert!(elapsed >= Duration::from_millis(125), "{piece}: {elapsed:?}");
        }
        let halt = || true;
        let stopped = Throttle::new(bounds(0, &halt)).throttle_bytes(u64::MAX >> 1);
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
        let full = Throttle::new(bounds(u64::MAX, &go)).throttle_bytes(CHECK_BYTES);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
        Throttle::unlimited().throttle_bytes(u64::MAX).unwrap();
    }
}
