//! When a token is due.

use std::time::Duration;

/// Delay of the first token and rate of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    first: Duration,
    /// Seconds between two tokens; 0: none.
    gap: f64,
}

impl Pace {
    /// A pace of so many tokens a second after the first; 0, a negative number or none at all mean no delay.
    pub(super) fn new(first: Duration, tokens_per_second: f64) -> Self {
        let gap = if tokens_per_second > 0.0 { 1.0 / tokens_per_second } else { 0.0 };
        Self { first, gap: if gap.is_finite() { gap } else { 0.0 } }
    }

    /// The same pace with a later first token.
    pub(super) fn later(self, by: Duration) -> Self {
        Self { first: self.first.saturating_add(by), ..self }
    }

    /// When the `tokens`-th token leaves, counted from the request: `first + (tokens - 1) × gap`.
    pub(super) fn due(self, tokens: u32) -> Duration {
        let rest = f64::from(tokens.saturating_sub(1)) * self.gap;
        self.first.saturating_add(Duration::try_from_secs_f64(rest).unwrap_or(Duration::MAX))
    }
}
