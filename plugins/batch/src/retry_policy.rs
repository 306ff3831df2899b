//! Retry policy of a batch line after a transient failure: exponential backoff with jitter, a maximum number of
//! attempts, and the end of the batch's window. Randomness and time are arguments.

use std::time::Duration;

/// Retry policy of batch lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Mean of the first pause; the mean of each further pause is twice the previous one.
    pub base_delay: Duration,
    /// Upper limit on the mean pause between two attempts.
    pub max_delay: Duration,
    /// Maximum number of retries.
    pub max_retries: u32,
}

impl RetryPolicy {
    /// Returns the pause before the next attempt of a line that was sent `asked` times: at least `retry_after`, which
    /// the provider asked for with `Retry-After`. Returns `None` if the line is not retried, so that its last response
    /// is its result. `chance` is a random number; `left` is the remaining time of the completion window.
    #[must_use]
    pub fn next_delay(
        &self,
        asked: u32,
        retry_after: Duration,
        chance: u32,
        left: Duration,
    ) -> Option<Duration> {
        if asked > self.max_retries {
            return None;
        }
        let doubled = self.base_delay.saturating_mul(1u32 << asked.saturating_sub(1).min(20));
        let mean = doubled.min(self.max_delay);
        // Random delay between half and one and a half times the mean, so that lines that failed together are not
        // retried together.
        let jittered = mean / 2 + mean.mul_f64(f64::from(chance) / f64::from(u32::MAX));
        let pause = jittered.max(retry_after);
        (pause < left).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const AGAIN: RetryPolicy = RetryPolicy {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(600),
        max_retries: 20,
    };
    const LONG: Duration = Duration::from_secs(1 << 30);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mean = |asked| AGAIN.next_delay(asked, Duration::ZERO, u32::MAX / 2, LONG).unwrap().as_secs_f64();
        assert!((mean(1) - 1.0).abs() < 0.01);
        assert!((mean(2) - 2.0).abs() < 0.01);
        assert!((mean(9) - 256.0).abs() < 0.01);
        assert!((mean(11) - 600.0).abs() < 0.01);
        assert!((mean(20) - 600.0).abs() < 0.01);
    }

    #[test]
    fn chance_moves_a_pause_by_half() {
        let at = |chance| AGAIN.next_delay(3, Duration::ZERO, chance, LONG).unwrap();
        assert_eq!(at(0), Duration::from_secs(2));
        assert_eq!(at(u32::MAX), Duration::from_secs(6));
    }

    #[test]
    fn a_provider_that_wants_more_time_gets_it() {
        let pause = AGAIN.next_delay(1, Duration::from_secs(30), 0, LONG);
        assert_eq!(pause, Some(Duration::from_secs(30)));
    }

    #[test]
    fn it_ends_with_the_tries_and_with_the_window() {
        assert_eq!(AGAIN.next_delay(21, Duration::ZERO, 0, LONG), None);
        assert_eq!(AGAIN.next_delay(1, Duration::ZERO, 0, Duration::from_millis(500)), None);
        assert_eq!(AGAIN.next_delay(1, Duration::from_secs(60), 0, Duration::from_secs(60)), None);
    }
}
