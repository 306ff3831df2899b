//! Disk quota of files: a limit for all files, a limit for the files of each key, and disk space that must stay free.
//! The usage is counted in memory, and in a fleet also in the store; an upload that fails releases its reservation.
//!
//! The last eighth of the limit for all files is reserved for accounts that hold less than an eighth, so that one account
//! cannot block the others. A fleet has no such reserve, because its store counts no usage of accounts.

use super::FileOwner;
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
    /// Part of the limit of all files that one account may use, in bytes.
    Account(u64),
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
            Self::Account(most) => {
                let message = format!(
                    "The last eighth of the {most} bytes for files is reserved for other accounts; delete some files of \
                     this account to make room."
                );
                ApiError::with_message(ErrorCode::StorageFull, message).non_retryable()
            }
        }
    }
}

/// Disk usage of all files, of each key and of each account.
#[derive(Debug, Default)]
pub struct DiskUsage(Mutex<QuotaUsage>);

#[derive(Debug, Default)]
struct QuotaUsage {
    all: u64,
    keys: UsageMap,
    accounts: UsageMap,
}

/// Used bytes by the name of their owner. An owner without bytes has no entry.
type UsageMap = HashMap<Box<str>, u64, ahash::RandomState>;

impl QuotaUsage {
    fn add_bytes(&mut self, owner: FileOwner<'_>, bytes: u64) {
        self.all += bytes;
        add_to_owner(&mut self.keys, owner.key, bytes);
        add_to_owner(&mut self.accounts, owner.account, bytes);
    }

    /// Returns true if the account may use this many more bytes of the last eighth of the limit, or needs none of it.
    fn leaves_reserve(&self, account: &str, bytes: u64, limit: u64) -> bool {
        let eighth = limit / 8;
        let own = self.accounts.get(account).copied().unwrap_or(0);
        self.all.saturating_add(bytes) <= limit - eighth || own < eighth
    }
}

fn add_to_owner(usage: &mut UsageMap, owner: &str, bytes: u64) {
    match usage.get_mut(owner) {
        Some(own) => *own += bytes,
        None => drop(usage.insert(owner.into(), bytes)),
    }
}

fn release_from_owner(usage: &mut UsageMap, owner: &str, bytes: u64) {
    if let Some(own) = usage.get_mut(owner) {
        *own = own.saturating_sub(bytes);
        if *own == 0 {
            usage.remove(owner);
        }
    }
}

impl DiskUsage {
    /// Counts existing bytes, even beyond the limits.
    pub fn add_bytes(&self, owner: FileOwner<'_>, bytes: u64) {
        self.0.lock().add_bytes(owner, bytes);
    }

    /// Subtracts the bytes of deleted files from the usage of their key and account, and from the total.
    pub fn release_bytes(&self, owner: FileOwner<'_>, bytes: u64) {
        let mut inner = self.0.lock();
        inner.all = inner.all.saturating_sub(bytes);
        release_from_owner(&mut inner.keys, owner.key, bytes);
        release_from_owner(&mut inner.accounts, owner.account, bytes);
    }

    /// Returns the total bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().all
    }

    /// Reserves bytes of an owner, if the limits hold together with the usage that the store has counted.
    fn reserve(
        &self,
        owner: FileOwner<'_>,
        bytes: u64,
        bounds: &UploadLimits,
        counted: Option<UsedBytes>,
    ) -> Result<(), QuotaExceeded> {
        let (mut inner, elsewhere) = (self.0.lock(), counted.unwrap_or_default());
        let own = inner.keys.get(owner.key).copied().unwrap_or(0).saturating_add(elsewhere.key);
        if own.saturating_add(bytes) > bounds.max_key_bytes {
            return Err(QuotaExceeded::Key(bounds.max_key_bytes));
        }
        if inner.all.saturating_add(elsewhere.all).saturating_add(bytes) > bounds.max_total_bytes {
            return Err(QuotaExceeded::Gateway);
        }
        if counted.is_none() && !inner.leaves_reserve(owner.account, bytes, bounds.max_total_bytes) {
            return Err(QuotaExceeded::Account(bounds.max_total_bytes));
        }
        inner.add_bytes(owner, bytes);
        Ok(())
    }
}

/// Quota reservation of one upload; released on drop.
#[derive(Debug)]
pub struct QuotaReservation {
    quota: Arc<DiskUsage>,
    key: Box<str>,
    account: Box<str>,
    bytes: u64,
    /// Usage that the store has counted; it will include this file once the file is stored. `None` if all bytes are
    /// counted in memory.
    counted: Option<UsedBytes>,
}

impl QuotaReservation {
    /// Returns an empty reservation for a file of this owner.
    #[must_use]
    pub fn new(quota: Arc<DiskUsage>, owner: FileOwner<'_>) -> Self {
        Self { quota, key: owner.key.into(), account: owner.account.into(), bytes: 0, counted: None }
    }

    fn owner(&self) -> FileOwner<'_> {
        FileOwner { key: &self.key, account: &self.account }
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
        self.quota.reserve(self.owner(), bytes, bounds, self.counted)?;
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
            self.quota.release_bytes(self.owner(), self.bytes);
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

    /// Returns an owner whose account uses the reserve too, so that only the other limits matter.
    fn owner(key: &str) -> FileOwner<'_> {
        FileOwner { key, account: key }
    }

    #[test]
    fn keys_have_their_own_bound_and_all_have_one() {
        let bounds =
            UploadLimits { max_total_bytes: 100, max_key_bytes: 60, min_free_bytes: 0, max_line_bytes: 100 };
        let quota = Arc::new(DiskUsage::default());
        quota.add_bytes(owner("a"), 50);
        let mut mine = QuotaReservation::new(quota.clone(), owner("a"));
        mine.grow(10, &bounds).unwrap();
        assert_eq!(mine.grow(1, &bounds), Err(QuotaExceeded::Key(60)));
        let mut other = QuotaReservation::new(quota.clone(), owner("b"));
        assert_eq!(other.grow(41, &bounds), Err(QuotaExceeded::Gateway));
        other.grow(40, &bounds).unwrap();
        other.commit();
        drop(mine);
        assert_eq!(quota.used_bytes(), 90, "what was kept stays, what was dropped is given back");
        quota.release_bytes(owner("b"), 40);
        quota.release_bytes(owner("a"), 50);
        assert_eq!((quota.used_bytes(), quota.0.lock().keys.len()), (0, 0));
    }

    /// Tests that more keys give an account no more space, and that an account may use nearly all.
    #[test]
    fn the_last_eighth_is_reserved_for_accounts_with_few_bytes() {
        let bounds =
            UploadLimits { max_total_bytes: 800, max_key_bytes: 350, min_free_bytes: 0, max_line_bytes: 100 };
        let quota = Arc::new(DiskUsage::default());
        let upload = |key, account| QuotaReservation::new(quota.clone(), FileOwner { key, account });
        let (mut first, mut second) = (upload("k1", "greedy"), upload("k2", "greedy"));
        first.grow(350, &bounds).unwrap();
        second.grow(350, &bounds).unwrap();
        let exceeded = upload("k3", "greedy").grow(1, &bounds).unwrap_err();
        assert_eq!(exceeded, QuotaExceeded::Account(800));
        assert_eq!(exceeded.to_api_error().code, ErrorCode::StorageFull);
        let mut other = upload("k4", "modest");
        other.grow(100, &bounds).unwrap();
        assert_eq!(other.grow(1, &bounds), Err(QuotaExceeded::Gateway));
        first.commit();
        quota.release_bytes(FileOwner { key: "k1", account: "greedy" }, 350);
        other.grow(100, &bounds).unwrap();
        second.grow(0, &bounds).unwrap();
        drop((second, other));
        let left = quota.0.lock();
        assert_eq!((left.all, left.keys.len(), left.accounts.len()), (0, 0, 0));
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
                        let mut upload = QuotaReservation::new(
                            quota.clone(),
                            owner(if thread % 2 == 0 { "a" } else { "b" }),
                        );
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
