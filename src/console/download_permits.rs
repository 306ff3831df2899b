//! Permits for downloads of files: a slow client can keep a download open for long, so the number of downloads is
//! limited for each account and for all accounts together.

use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of downloads at the same time.
const MAX_DOWNLOADS: usize = 32;
/// Maximum number of downloads of one account at the same time.
const MAX_PER_ACCOUNT: usize = 4;
/// Number of seconds after which a refused client may try again.
const RETRY_SECONDS: u32 = 30;

/// Number of downloads in progress, by account.
#[derive(Clone, Default)]
pub struct DownloadPermits(Arc<Mutex<BTreeMap<String, usize>>>);

/// Permit for one download; released when dropped.
pub struct DownloadPermit {
    permits: DownloadPermits,
    account: String,
}

impl DownloadPermits {
    /// Takes a permit for a download of an account.
    ///
    /// # Errors
    /// Returns 503 if there are too many downloads, of this account or of all accounts.
    pub fn acquire(&self, account: &str) -> Result<DownloadPermit, ApiError> {
        let mut running = self.0.lock();
        let of_account = running.get(account).copied().unwrap_or(0);
        if of_account >= MAX_PER_ACCOUNT || running.values().sum::<usize>() >= MAX_DOWNLOADS {
            return Err(ApiError::new(ErrorCode::Overloaded).with_retry_after(RETRY_SECONDS));
        }
        running.insert(account.to_owned(), of_account + 1);
        Ok(DownloadPermit { permits: self.clone(), account: account.to_owned() })
    }
}

impl Drop for DownloadPermit {
    fn drop(&mut self) {
        let mut running = self.permits.0.lock();
        if let Some(count) = running.get_mut(&self.account) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                running.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn downloads_are_limited_for_each_account_and_in_all() {
        let permits = DownloadPermits::default();
        let mut held: Vec<DownloadPermit> =
            (0..MAX_PER_ACCOUNT).map(|_| permits.acquire("acme").unwrap()).collect();
        let refused = permits.acquire("acme").err().unwrap();
        assert_eq!((refused.spec().status, refused.retry_after), (503, Some(RETRY_SECONDS)));
        held.extend((MAX_PER_ACCOUNT..MAX_DOWNLOADS).map(|n| permits.acquire(&format!("a{n}")).unwrap()));
        assert!(permits.acquire("other").is_err());
        held.pop();
        drop(permits.acquire("other").unwrap());
        drop(held);
        assert!(permits.0.lock().is_empty());
        assert!(permits.acquire("acme").is_ok());
    }
}
