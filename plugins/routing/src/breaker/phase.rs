//! Phase of a breaker, and what its active checks have shown.

use std::time::Duration;

/// Result of the active checks since the last evidence against the offer: a failed check, an ejection, or a request
/// that failed while the offer was ejected or half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckStatus {
    /// Not passed yet.
    Unknown,
    /// Passed at least once.
    Passed,
}

/// Phase of a breaker; unlike [`BreakerState`](super::BreakerState), it does not depend on the time.
#[derive(Clone, Copy, Debug)]
pub(super) enum BreakerPhase {
    /// Every attempt is admitted.
    Closed,
    /// Open breaker; `round` is the number of openings since it was last closed.
    Open { until: Duration, round: u32 },
    /// Half-open breaker: `probing` permits of probes are taken, the last one at `last_probe`; `good` attempts have
    /// succeeded.
    HalfOpen { probing: u32, last_probe: Duration, good: u32, round: u32 },
}
