//! Thresholds of a circuit breaker.

use std::time::Duration;

/// Thresholds of a circuit breaker. With the defaults, a dead offer is ejected by its fifth failure and used again at
/// most ten seconds after it recovers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Consecutive failures that open the breaker. Default 5.
    pub consecutive: u32,
    /// Share of failures in the window that opens the breaker. Default 0.5.
    pub error_share: f64,
    /// Minimum number of attempts in the window for the share to count. Default 20.
    pub minimum: u32,
    /// Length of the window. Default 30 s.
    pub window: Duration,
    /// First ejection time. Default 1 s; doubled for each further ejection.
    pub open: Duration,
    /// Maximum ejection time. Default 10 s.
    pub open_max: Duration,
    /// Maximum number of concurrent probes while half open. Default 1.
    pub probes: u32,
    /// Number of successful probes that close the breaker. Default 2.
    pub good_probes: u32,
    /// Time after which the permit of a lost probe is free again. Default 60 s.
    pub probe_limit: Duration,
    /// Consecutive failed active checks that open the breaker. Default 3.
    pub failed_checks: u32,
    /// Cooldown after a 429 without `Retry-After`. Default 1 s, doubled for each further consecutive one.
    pub limited_rest: Duration,
    /// Maximum cooldown after a 429 without `Retry-After`. Default 30 s.
    pub limited_rest_max: Duration,
    /// Maximum cooldown; a longer `Retry-After` is cut to it, so that a provider's mistake cannot disable an offer for
    /// a year. Default 1 h.
    pub longest_rest: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            consecutive: 5,
            error_share: 0.5,
            minimum: 20,
            window: Duration::from_secs(30),
            open: Duration::from_secs(1),
            open_max: Duration::from_secs(10),
            probes: 1,
            good_probes: 2,
            probe_limit: Duration::from_secs(60),
            failed_checks: 3,
            limited_rest: Duration::from_secs(1),
            limited_rest_max: Duration::from_secs(30),
            longest_rest: Duration::from_secs(3600),
        }
    }
}
