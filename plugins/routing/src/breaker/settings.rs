//! Thresholds of a circuit breaker.

use std::time::Duration;

/// Thresholds of a circuit breaker. With the defaults, an offer that stops working is ejected by its fifth consecutive
/// failure, and probed again at most ten seconds after it recovers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Consecutive failures that open the breaker. Default 5.
    pub consecutive_failures: u32,
    /// Share of failures in the window that opens the breaker. Default 0.5.
    pub failure_ratio: f64,
    /// Minimum number of attempts in the window for the share to count. Default 20.
    pub min_attempts: u32,
    /// Length of the window. Default 30 s.
    pub window: Duration,
    /// Duration of the first ejection. Default 1 s; doubled for each further ejection.
    pub first_ejection: Duration,
    /// Maximum ejection time. Default 10 s.
    pub max_ejection: Duration,
    /// Maximum number of concurrent probes while half open. Default 1.
    pub max_probes: u32,
    /// Number of successful probes that close the breaker. Default 2.
    pub successes_to_close: u32,
    /// Time after which the permit of a probe without a reported result is free again. Default 60 s.
    pub probe_timeout: Duration,
    /// Consecutive failed active checks that open the breaker. Default 3.
    pub failed_checks: u32,
    /// Cooldown after a 429 without `Retry-After`. Default 1 s; doubled for each further consecutive 429.
    pub rate_limit_cooldown: Duration,
    /// Maximum cooldown after a 429 without `Retry-After`. Default 30 s.
    pub max_rate_limit_cooldown: Duration,
    /// Maximum cooldown. A longer `Retry-After` is shortened to it, so a provider's mistake cannot disable an offer
    /// for a year. Default 1 h.
    pub max_cooldown: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            failure_ratio: 0.5,
            min_attempts: 20,
            window: Duration::from_secs(30),
            first_ejection: Duration::from_secs(1),
            max_ejection: Duration::from_secs(10),
            max_probes: 1,
            successes_to_close: 2,
            probe_timeout: Duration::from_secs(60),
            failed_checks: 3,
            rate_limit_cooldown: Duration::from_secs(1),
            max_rate_limit_cooldown: Duration::from_secs(30),
            max_cooldown: Duration::from_secs(3600),
        }
    }
}
