//! Rate limit on failed admin authentication: a few failures per minute are answered with 401, further ones with 429.

use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use penstock_limits::{RetryAfter, TokenBucket};
use std::num::NonZeroU64;
use std::time::Duration;

/// Number of failed attempts per minute that are answered with 401.
const FAILURES_PER_MINUTE: NonZeroU64 = NonZeroU64::new(10).unwrap();

/// Rate limiter of failed admin authentication.
#[derive(Debug, Default)]
pub struct FailedAuthThrottle(Mutex<TokenBucket>);

impl FailedAuthThrottle {
    /// Records a failed attempt at `now`, by the steady clock. Returns its error response: 401, or above the limit 429
    /// with the time to wait.
    pub fn record_failed_attempt(&self, now: Duration) -> ApiError {
        let mut bucket = self.0.lock();
        if let Some(RetryAfter::After(wait)) = bucket.retry_after(FAILURES_PER_MINUTE, 1, now) {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let seconds = u32::try_from(seconds.max(1)).unwrap_or(u32::MAX);
            let message = format!("There were too many wrong admin tokens; try again in {seconds} s.");
            return ApiError::with_message(ErrorCode::RateLimited, message).with_retry_after(seconds);
        }
        bucket.take(FAILURES_PER_MINUTE, 1, now);
        let message =
            "The admin token is missing or wrong; it is in the file admin.token of the storage folder.";
        ApiError::with_message(ErrorCode::InvalidKey, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_a_minute_get_401_and_the_rest_429() {
        let (tokens, now) = (FailedAuthThrottle::default(), Duration::from_secs(1_763_800_000));
        for _ in 0..10 {
            assert_eq!(tokens.record_failed_attempt(now).code, ErrorCode::InvalidKey);
        }
        let refusal = tokens.record_failed_attempt(now);
        assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::RateLimited, Some(6)));
        assert_eq!(tokens.record_failed_attempt(now + Duration::from_secs(6)).code, ErrorCode::InvalidKey);
        assert_eq!(tokens.record_failed_attempt(now + Duration::from_secs(6)).code, ErrorCode::RateLimited);
    }
}
