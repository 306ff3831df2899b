//! Permits of open streams of background responses. Such a stream stays open for as long as its response runs, and
//! holds no permit of admission control meanwhile. So these streams have limits of their own: for the process, and for
//! each account.

use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use penstock_limits::AccountPermitCounts;
use std::sync::Arc;

/// Maximum number of open streams of the process.
const MAX_STREAMS: usize = 1_024;
/// Maximum number of open streams of one account.
const MAX_ACCOUNT_STREAMS: usize = 128;
/// Seconds after which a refused client may ask again.
const RETRY_SECONDS: u32 = 5;

/// Permits of the process for open streams of background responses.
#[derive(Debug, Default)]
pub struct BackgroundStreamPermits(Mutex<AccountPermitCounts>);

/// Permit of one open stream; released when dropped.
#[derive(Debug)]
pub struct BackgroundStreamPermit {
    permits: Arc<BackgroundStreamPermits>,
    account: Arc<str>,
}

impl BackgroundStreamPermits {
    /// Acquires a permit for a stream of this account.
    ///
    /// # Errors
    /// Returns a 429 if the account has too many open streams, and a 503 if the process has; both with a time after
    /// which to retry.
    pub fn acquire(self: &Arc<Self>, account: &Arc<str>) -> Result<BackgroundStreamPermit, ApiError> {
        let mut open = self.0.lock();
        if open.account_count(account) >= MAX_ACCOUNT_STREAMS {
            return Err(too_many_streams());
        }
        if open.total() >= MAX_STREAMS {
            return Err(ApiError::new(ErrorCode::Overloaded).with_retry_after(RETRY_SECONDS));
        }
        open.add(account);
        Ok(BackgroundStreamPermit { permits: self.clone(), account: account.clone() })
    }
}

impl Drop for BackgroundStreamPermit {
    fn drop(&mut self) {
        self.permits.0.lock().remove(&self.account);
    }
}

fn too_many_streams() -> ApiError {
    let message = format!(
        "stream: the limit of {MAX_ACCOUNT_STREAMS} open response streams of this account is reached; close one."
    );
    ApiError::with_message(ErrorCode::RateLimited, message)
        .with_param("stream")
        .with_details_member("limit", "response_streams")
        .with_details_member("of", "account")
        .with_details_member("value", MAX_ACCOUNT_STREAMS)
        .with_retry_after(RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn account(number: usize) -> Arc<str> {
        format!("account-{number}").into()
    }

    #[test]
    fn an_account_and_the_process_have_a_maximum_and_a_dropped_permit_is_free_again() {
        let permits = Arc::new(BackgroundStreamPermits::default());
        let mut held = Vec::new();
        for number in 0..MAX_STREAMS / MAX_ACCOUNT_STREAMS {
            held.extend((0..MAX_ACCOUNT_STREAMS).map(|_| permits.acquire(&account(number)).unwrap()));
            let refusal = permits.acquire(&account(number)).unwrap_err();
            assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::RateLimited, Some(RETRY_SECONDS)));
        }
        let refusal = permits.acquire(&account(100)).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::Overloaded, Some(RETRY_SECONDS)));
        // The permit that was acquired last belongs to another account.
        held.pop();
        assert_eq!(permits.acquire(&account(0)).unwrap_err().code, ErrorCode::RateLimited);
        held.push(permits.acquire(&account(100)).unwrap());
        assert_eq!(permits.acquire(&account(100)).unwrap_err().code, ErrorCode::Overloaded);
        held.clear();
        assert_eq!(permits.0.lock().total(), 0);
    }
}
