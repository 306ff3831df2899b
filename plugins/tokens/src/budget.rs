//! Limits of one count: a maximum number of tokens, beyond which the count ends, and a signal that stops it at any
//! time.
//!
//! Promises: a count that has reached its limit does no further work; the signal is checked after at most
//! [`crate::windows::WINDOW_BYTES`] bytes of encoding, so that a stopped count ends within milliseconds.

use std::sync::atomic::{AtomicBool, Ordering};

/// Limits of one token count: a maximum number of tokens and a stop signal.
#[derive(Clone, Copy, Debug)]
pub struct CountBudget<'s> {
    /// Maximum number of tokens that is counted exactly. A count that exceeds it ends early, with this number plus
    /// one as its result.
    pub max_tokens: u64,
    /// Stop signal, set by a caller that no longer needs the count.
    pub stop: &'s AtomicBool,
}

/// Signal that is never set, for counts that are never stopped.
static NEVER: AtomicBool = AtomicBool::new(false);

impl CountBudget<'static> {
    /// Returns a budget without limits, for texts whose size the caller has limited.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { max_tokens: u64::MAX, stop: &NEVER }
    }
}

/// Reason why a count ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountHalt {
    /// The number of tokens exceeds the budget.
    OverBudget,
    /// The stop signal ended the count.
    Stopped,
}

/// Number of tokens so far, compared with the budget on every addition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenMeter<'s> {
    tokens: u64,
    budget: CountBudget<'s>,
}

impl<'s> TokenMeter<'s> {
    /// Creates a meter with a number of tokens already counted.
    pub(crate) const fn new(tokens: u64, budget: CountBudget<'s>) -> Self {
        Self { tokens, budget }
    }

    /// Returns the number of tokens counted so far.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Adds tokens and checks the maximum and the stop signal.
    #[inline]
    pub(crate) fn add(&mut self, tokens: u64) -> Result<(), CountHalt> {
        self.tokens = self.tokens.saturating_add(tokens);
        self.check()
    }

    /// Checks the maximum and the stop signal.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), CountHalt> {
        if self.tokens > self.budget.max_tokens {
            return Err(CountHalt::OverBudget);
        }
        if self.budget.stop.load(Ordering::Relaxed) {
            return Err(CountHalt::Stopped);
        }
        Ok(())
    }

    /// Ends the count if `bytes` more bytes of text are certain to exceed the maximum number of tokens, given that
    /// each token has at most `longest` bytes. Without `longest`, checks only the tokens so far.
    pub(crate) fn check_bytes(&self, bytes: usize, longest: Option<usize>) -> Result<(), CountHalt> {
        let Some(longest) = longest else { return self.check() };
        let least = (bytes as u64).div_ceil(longest.max(1) as u64);
        if self.tokens.saturating_add(least) > self.budget.max_tokens {
            Err(CountHalt::OverBudget)
        } else {
            self.check()
        }
    }

    /// Returns the number of bytes of text beyond which the maximum is certainly exceeded, given that each token has at
    /// most `longest` bytes; `usize::MAX` without `longest`.
    pub(crate) fn max_bytes(&self, longest: Option<usize>) -> usize {
        let left = self.budget.max_tokens.saturating_sub(self.tokens).saturating_add(1);
        let bytes = longest.map(|longest| left.saturating_mul(longest.max(1) as u64));
        bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }
}

/// Returns the tokens of a finished count, at most the maximum plus one; `None` if the stop signal ended the count.
pub(crate) fn cap_at_budget(done: Result<u64, CountHalt>, budget: &CountBudget<'_>) -> Option<u64> {
    match done {
        Ok(tokens) => Some(tokens.min(budget.max_tokens.saturating_add(1))),
        Err(CountHalt::OverBudget) => Some(budget.max_tokens.saturating_add(1)),
        Err(CountHalt::Stopped) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_ends_one_beyond_its_budget_and_not_before() {
        let stop = AtomicBool::new(false);
        let mut meter = TokenMeter::new(1, CountBudget { max_tokens: 5, stop: &stop });
        assert_eq!(meter.add(4), Ok(()));
        assert_eq!(meter.add(1), Err(CountHalt::OverBudget));
        assert_eq!(
            cap_at_budget(Err(CountHalt::OverBudget), &CountBudget { max_tokens: 5, stop: &stop }),
            Some(6)
        );
        assert_eq!(cap_at_budget(Ok(5), &CountBudget { max_tokens: 5, stop: &stop }), Some(5));
        let mut full = TokenMeter::new(u64::MAX, CountBudget { max_tokens: u64::MAX, stop: &stop });
        assert_eq!(full.add(u64::MAX), Ok(()), "nothing overflows");
    }

    #[test]
    fn bytes_end_a_count_only_where_no_tokens_could_hold_them() {
        let stop = AtomicBool::new(false);
        let meter = TokenMeter::new(0, CountBudget { max_tokens: 5, stop: &stop });
        assert_eq!(meter.check_bytes(50, Some(10)), Ok(()));
        assert_eq!(meter.check_bytes(51, Some(10)), Err(CountHalt::OverBudget));
        assert_eq!(meter.check_bytes(usize::MAX, None), Ok(()));
        assert_eq!((meter.max_bytes(Some(10)), meter.max_bytes(None)), (60, usize::MAX));
    }

    #[test]
    fn the_signal_ends_a_count() {
        let stop = AtomicBool::new(false);
        let mut meter = TokenMeter::new(0, CountBudget { max_tokens: 5, stop: &stop });
        assert_eq!(meter.add(1), Ok(()));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(
            (meter.add(1), cap_at_budget(Err(CountHalt::Stopped), &meter.budget)),
            (Err(CountHalt::Stopped), None)
        );
    }
}
