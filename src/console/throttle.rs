//! Limits on failed attempts to sign in: for each name and address, and for all names together.

use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use penstock_limits::{RetryAfter, TokenBucket};
use penstock_storage::users::MAX_USER_NAME_BYTES;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Duration;

/// Maximum number of failed attempts per minute for one name from one address.
const PER_NAME: NonZeroU64 = NonZeroU64::new(5).unwrap();
/// Maximum number of failed attempts per minute with OpenID Connect from one address, which many persons may share.
/// Codes of the provider cannot be guessed, so this limit protects the provider from requests.
const OPENID_PER_ADDRESS: NonZeroU64 = NonZeroU64::new(30).unwrap();
/// Name of attempts with OpenID Connect, whose person is not known yet. No user can have it.
pub const OPENID_NAME: &str = "(openid)";
/// Maximum number of pairs of a name and an address in memory.
const MAX_NAMES: usize = 1_000;

/// Limits on the rate of failed attempts to sign in.
#[derive(Debug)]
pub struct SignInThrottle {
    buckets: Mutex<Buckets>,
    /// Maximum number of failed attempts per minute for all names together.
    for_all: NonZeroU64,
}

#[derive(Debug, Default)]
struct Buckets {
    all: TokenBucket,
    by_name: HashMap<(String, String), TokenBucket>,
}

impl SignInThrottle {
    /// Creates limits with this number of failed attempts per minute for all names.
    #[must_use]
    pub fn new(for_all: NonZeroU64) -> Self {
        Self { buckets: Mutex::default(), for_all }
    }

    /// Takes one attempt from the limits, before the password is checked. [`SignInThrottle::record_success`] returns
    /// it. `now` is the time of the steady clock.
    ///
    /// # Errors
    /// Returns 429 with the time to wait.
    pub fn acquire_attempt(&self, name: &str, address: &str, now: Duration) -> Result<(), ApiError> {
        self.acquire(bucket_key(name, address), PER_NAME, now)
    }

    /// Takes one attempt to sign in with OpenID Connect from the limits, before the provider is asked.
    ///
    /// # Errors
    /// Returns 429 with the time to wait.
    pub fn acquire_openid_attempt(&self, address: &str, now: Duration) -> Result<(), ApiError> {
        self.acquire(bucket_key(OPENID_NAME, address), OPENID_PER_ADDRESS, now)
    }

    fn acquire(&self, key: (String, String), for_key: NonZeroU64, now: Duration) -> Result<(), ApiError> {
        let mut buckets = self.buckets.lock();
        // If there are too many names, all are forgotten, because it is not known which are the oldest. The limit for
        // all names together still applies.
        if buckets.by_name.len() >= MAX_NAMES {
            buckets.by_name.clear();
        }
        let Buckets { all, by_name } = &mut *buckets;
        let own = by_name.entry(key).or_default();
        for (bucket, limit) in [(&mut *own, for_key), (&mut *all, self.for_all)] {
            if let Some(RetryAfter::After(wait)) = bucket.retry_after(limit, 1, now) {
                let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
                let message = format!("There were too many attempts to sign in; try again in {seconds} s.");
                return Err(ApiError::with_message(ErrorCode::RateLimited, message).with_retry_after(seconds));
            }
        }
        own.take(for_key, 1, now);
        all.take(self.for_all, 1, now);
        Ok(())
    }

    /// Forgets the failed attempts of a name from an address after a successful sign-in. The successful attempt is
    /// returned to the limit for all names.
    pub fn record_success(&self, name: &str, address: &str, now: Duration) {
        let mut buckets = self.buckets.lock();
        buckets.by_name.remove(&bucket_key(name, address));
        buckets.all.settle(self.for_all, 1, 0, now);
    }
}

/// Returns the key of a bucket. A name that is longer than any user's is cut.
fn bucket_key(name: &str, address: &str) -> (String, String) {
    (name.chars().take(MAX_USER_NAME_BYTES + 1).collect(), address.to_owned())
}
