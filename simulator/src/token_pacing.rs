//! Pace of the tokens of an answer.

use std::time::Duration;

/// Delay of the first token and rate of the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenPacing {
    first: Duration,
    /// Seconds between two tokens; 0 for no delay.
    gap: f64,
}

impl TokenPacing {
    /// Creates a pace from a number of tokens per second after the first; 0, negative numbers and NaN mean no delay.
    pub(super) fn new(first: Duration, tokens_per_second: f64) -> Self {
        let gap = if tokens_per_second > 0.0 { 1.0 / tokens_per_second } else { 0.0 };
        Self { first, gap: if gap.is_finite() { gap } else { 0.0 } }
    }

    /// Returns the pace with the first token delayed by `by`.
    pub(super) fn delayed(self, by: Duration) -> Self {
        Self { first: self.first.saturating_add(by), ..self }
    }

    /// Returns the time from the request to the token number `tokens`: `first + (tokens - 1) × gap`.
    pub(super) fn due_at(self, tokens: u32) -> Duration {
        let rest = f64::from(tokens.saturating_sub(1)) * self.gap;
        self.first.saturating_add(Duration::try_from_secs_f64(rest).unwrap_or(Duration::MAX))
    }
}
