//! Status of the limits per minute, for response headers.

use crate::token_bucket::BucketStatus;

/// Status of the limits on requests and tokens per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Status of the limit on requests per minute; `None` without such a limit.
    pub requests: Option<BucketStatus>,
    /// Status of the limit on tokens per minute; `None` without such a limit.
    pub tokens: Option<BucketStatus>,
}

impl RateLimitStatus {
    /// Combines two statuses: for each limit, returns the one with the lower remaining amount.
    #[must_use]
    pub fn most_restrictive(self, other: Self) -> Self {
        let of = |a: Option<BucketStatus>, b: Option<BucketStatus>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.remaining < a.remaining { b } else { a }),
            (a, b) => a.or(b),
        };
        Self { requests: of(self.requests, other.requests), tokens: of(self.tokens, other.tokens) }
    }
}
