//! Disk quota of files: a limit for all files, a limit for the files of each key, and disk space that must stay free.
//! The usage is counted in memory, and in a fleet also in the store; an upload that fails releases its reservation.

use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::files::UsedBytes;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Limits that an upload must not exceed: the total bytes of all files and of the key's files, the disk space that must
/// stay free, and the length of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLimits {
    /// Maximum total bytes of all files.
    pub max_total_bytes: u64,
    /// Maximum bytes of the files of one key.
    pub max_key_bytes: u64,
    /// Bytes of the disk that must stay free.
    pub min_free_bytes: u64,
    /// Maximum length of one line of an uploaded file, in bytes.
    pub max_line_bytes: usize,
}

/// Limit that an upload exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// Limit of all files, or of the disk; clients get the same error for both.
    Gateway,
    /// Limit of the key's files, in bytes.
    Key(u64),
}

impl QuotaExceeded {
    /// Converts the exceeded limit to an API error.
    #[must_use]
    pub fn to_api_error(self) -> ApiError {
        match self {
            Self::Gateway => ApiError::new(ErrorCode::StorageFull),
            Self::Key(most) => {
                let message = format!(
                    "The files of this API key may hold {most} bytes together; delete some to make room."
                );
                let refusal = ApiError::with_message(ErrorCode::StorageFull, message);
                refusal.with_details_member("limit_bytes", most).non_retryable()
            }
        }
    }
}

/// Disk usage of all files and of each key.
#[derive(Debug, Default)]
pub struct DiskUsage(Mutex<QuotaUsage>);

#[derive(Debug, Default)]
struct QuotaUsage {
    all: u64,
    keys: HashMap<Box<str>, u64, ahash::RandomState>,
}

impl QuotaUsage {
    fn add_bytes(&mut self, key: &str, bytes: u64) {
        self.all += bytes;
        match self.keys.get_mut(key) {
            Some(own) => *own += bytes,
            None => {
                self.keys.insert(key.into(), bytes);
            }
        }
    }
}

impl DiskUsage {
    /// Counts existing bytes, even beyond the limits.
    pub fn add_bytes(&self, key: &str, bytes: u64) {
        self.0.lock().add_bytes(key, bytes);
    }

    /// Subtracts the bytes of deleted files from the usage of a key and from the total.
    pub fn release_bytes(&self, key: &str, bytes: u64) {
        let mut inner = self.0.lock();
        inner.all = inner.all.saturating_sub(bytes);
        if let Some(own) = inner.keys.get_mut(key) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                inner.keys.remove(key);
            }
        }
    }

    /// Returns the total bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().all
    }

    /// Reserves bytes of a key, if the limits hold together with the usage `elsewhere`, which the store has counted.
    fn reserve(
        &self,
        key: &str,
        bytes: u64,
        bounds: &UploadLimits,
        elsewhere: UsedBytes,
    ) -> Result<(), QuotaExceeded> {
        let mut inner = self.0.lock();
        let own = inner.keys.get(key).copied().unwrap_or(0).saturating_add(elsewhere.key);
        if own.saturating_add(bytes) > bounds.max_key_bytes {
            return Err(QuotaExceeded::Key(bounds.max_key_bytes));
        }
        if inner.all.saturating_add(elsewhere.all).saturating_add(bytes) > bounds.max_total_bytes {
            return Err(QuotaExceeded::Gateway);
        }
        inner.add_bytes(key, bytes);
        Ok(())
    }
}

/// Quota reservation of one upload; released on drop.
#[derive(Debug)]
pub struct QuotaReservation {
    quota: Arc<DiskUsage>,
    key: Box<str>,
    bytes: u64,
    /// Usage that the store has counted; it will include this file once the file is stored. `None` if all bytes are
    /// counted in memory.
    counted: Option<UsedBytes>,
}

impl QuotaReservation {
    /// Returns an empty reservation for a file of this key.
    #[must_use]
    pub fn new(quota: Arc<DiskUsage>, key: &str) -> Self {
        Self { quota, key: key.into(), bytes: 0, counted: None }
    }

    /// Adds the usage that the store has counted to the usage in memory. The reservation then ends once the file is
    /// stored, because the store counts the file from then on.
    #[must_use]
    pub(super) fn with_stored_usage(mut self, counted: UsedBytes) -> Self {
        self.counted = Some(counted);
        self
    }

    /// Reserves more bytes for an upload that grows.
    ///
    /// # Errors
    /// Returns the limit that would be exceeded.
    pub fn grow(&mut self, bytes: u64, bounds: &UploadLimits) -> Result<(), QuotaExceeded> {
        self.quota.reserve(&self.key, bytes, bounds, self.counted.unwrap_or_default())?;
        self.bytes += bytes;
        Ok(())
    }

    /// Commits the reservation because the file is stored: the bytes stay counted, or are released if the store counts
    /// them.
    pub fn commit(mut self) {
        if self.counted.is_none() {
            self.bytes = 0;
        }
    }
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.quota.release_bytes(&self.key, self.bytes);
        }
    }
}

/// Returns true if `free` bytes of the disk of `folder` stay free after a write of `bytes`.
#[must_use]
pub fn has_free_space(folder: &Path, bytes: u64, free: u64) -> bool {
    // If the disk cannot be queried, the write will report the error.
    rustix::fs::statvfs(folder)
        .map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes.saturating_add(free))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn keys_have_their_own_bound_and_all_have_one() {
        let bounds =
            UploadLimits { max_total_bytes: 100, max_key_bytes: 60, min_free_bytes: 0, max_line_bytes: 100 };
        let quota = Arc::new(DiskUsage::default());
        quota.add_bytes("a", 50);
        let mut mine = QuotaReservation::new(quota.clone(), "a");
        mine.grow(10, &bounds).unwrap();
        assert_eq!(mine.grow(1, &bounds), Err(QuotaExceeded::Key(60)));
        let mut other = QuotaReservation::new(quota.clone(), "b");
        assert_eq!(other.grow(41, &bounds), Err(QuotaExceeded::Gateway));
        other.grow(40, &bounds).unwrap();
        other.commit();
        drop(mine);
        assert_eq!(quota.used_bytes(), 90, "what was kept stays, what was dropped is given back");
        quota.release_bytes("b", 40);
        quota.release_bytes("a", 50);
        assert_eq!((quota.used_bytes(), quota.0.lock().keys.len()), (0, 0));
    }

    #[test]
    fn uploads_at_the_same_time_do_not_exceed_the_limits() {
        const THREADS: usize = 4;
        let bounds =
            UploadLimits { max_total_bytes: 100, max_key_bytes: 60, min_free_bytes: 0, max_line_bytes: 100 };
        let start = std::sync::Barrier::new(THREADS);
        let (quota, is_exceeded) = (Arc::new(DiskUsage::default()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (start, quota, is_exceeded) = (&start, &quota, &is_exceeded);
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let mut upload =
                            QuotaReservation::new(quota.clone(), if thread % 2 == 0 { "a" } else { "b" });
                        start.wait();
                        while upload.grow(7, &bounds).is_ok() {}
                        let used = quota.0.lock();
                        if used.all > 100 || used.keys.values().any(|own| *own > 60) {
                            is_exceeded.store(true, Ordering::Relaxed);
                        }
                        drop(used);
                        start.wait();
                    }
                });
            }
        });
        assert!(!is_exceeded.into_inner());
    }

    #[test]
    fn the_free_space_of_a_disk_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(has_free_space(folder.path(), 1, 0));
        assert!(!has_free_space(folder.path(), 1, u64::MAX));
    }
}
