//! When a line that met a transient failure is asked again: exponential pauses with jitter, a bounded number
//! of them, all within the batch's window. Chance and time are arguments.

use std::time::Duration;

/// How a line is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Mean of the first pause; each is twice the one before.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// How often at most.
    pub tries: u32,
}

impl Again {
    /// The pause before a line is asked again that was asked `asked` times, at least as long as the provider
    /// wants (`wanted`); `None` if it is not asked again and its last answer is its result. `chance` is any
    /// number; `left` is what remains of the window.
    #[must_use]
    pub fn pause(&self, asked: u32, wanted: Duration, chance: u32, left: Duration) -> Option<Duration> {
        if asked > self.tries {
            return None;
        }
        let doubled = self.first.saturating_mul(1u32 << asked.saturating_sub(1).min(20));
        let mean = doubled.min(self.most);
        // Half of it to one and a half: lines that failed together do not come back together.
        let jittered = mean / 2 + mean.mul_f64(f64::from(chance) / f64::from(u32::MAX));
        let pause = jittered.max(wanted);
        (pause < left).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const AGAIN: Again = Again { first: Duration::from_secs(1), most: Duration::from_secs(600), tries: 20 };
    const LONG: Duration = Duration::from_secs(1 << 30);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mean = |asked| AGAIN.pause(asked, Duration::ZERO, u32::MAX / 2, LONG).unwrap().as_secs_f64();
        assert!((mean(1) - 1.0).abs() < 0.01);
        assert!((mean(2) - 2.0).abs() < 0.01);
        assert!((mean(9) - 256.0).abs() < 0.01);
        assert!((mean(11) - 600.0).abs() < 0.01);
        assert!((mean(20) - 600.0).abs() < 0.01);
    }

    #[test]
    fn chance_moves_a_pause_by_half() {
        let at = |chance| AGAIN.pause(3, Duration::ZERO, chance, LONG).unwrap();
        assert_eq!(at(0), Duration::from_secs(2));
        assert_eq!(at(u32::MAX), Duration::from_secs(6));
    }

    #[test]
    fn a_provider_that_wants_more_time_gets_it() {
        let pause = AGAIN.pause(1, Duration::from_secs(30), 0, LONG);
        assert_eq!(pause, Some(Duration::from_secs(30)));
    }

    #[test]
    fn it_ends_with_the_tries_and_with_the_window() {
        assert_eq!(AGAIN.pause(21, Duration::ZERO, 0, LONG), None);
        assert_eq!(AGAIN.pause(1, Duration::ZERO, 0, Duration::from_millis(500)), None);
        assert_eq!(AGAIN.pause(1, Duration::from_secs(60), 0, Duration::from_secs(60)), None);
    }
}
