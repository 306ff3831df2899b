//! The numbers of a breaker.

use std::time::Duration;

/// The numbers of a breaker. The defaults eject a dead offer with its fifth
/// failure and have it back at most ten seconds after it recovers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Failures in a row that open it. Default 5.
    pub consecutive: u32,
    /// Share of failures in the window that opens it. Default 0.5.
    pub error_share: f64,
    /// Attempts in the window below which the share says nothing. Default 20.
    pub minimum: u32,
    /// How far back the share looks. Default 30 s.
    pub window: Duration,
    /// The first ejection. Default 1 s; each further one lasts twice as long.
    pub open: Duration,
    /// The longest ejection. Default 10 s.
    pub open_max: Duration,
    /// Probes at a time while half open. Default 1.
    pub probes: u32,
    /// Good probes that close it. Default 2.
    pub good_probes: u32,
    /// After this long without a new one, a probe's seat is free again. Default 60 s.
    pub probe_limit: Duration,
    /// Failed active checks in a row that open it. Default 3.
    pub failed_checks: u32,
    /// Rest after a 429 without `Retry-After`. Default 1 s, doubled by each further one in a row.
    pub limited_rest: Duration,
    /// The longest of these. Default 30 s.
    pub limited_rest_max: Duration,
    /// A `Retry-After` beyond this is cut down to it: a typing mistake over
    /// there must not take an offer away for a year. Default 1 h.
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
