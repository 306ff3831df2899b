//! Throttled log: an event that may occur hundreds of times a second is logged once a second, with its number of
//! occurrences.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Default interval between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Throttle of one kind of line.
#[derive(Debug)]
pub struct Seldom {
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Creates a throttle with the default interval.
    #[must_use]
    pub const fn new() -> Self {
        Self::every(PAUSE)
    }

    /// Creates a throttle with another interval.
    #[must_use]
    pub const fn every(pause: Duration) -> Self {
        Self { pause, state: Mutex::new(State { last: None, untold: 0 }) }
    }

    /// Counts an occurrence. Writes the line if the interval has passed, with the number of occurrences since the last.
    pub fn tell(&self, now: Instant, line: impl FnOnce(&str)) {
        let mut state = self.state.lock();
        state.untold = state.untold.saturating_add(1);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.pause) {
            return;
        }
        state.last = Some(now);
        let times = std::mem::take(&mut state.untold);
        drop(state);
        line(&times.to_string());
    }
}

impl Default for Seldom {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together_a_second_later() {
        let (seldom, start, mut told) = (Seldom::new(), Instant::now(), Vec::new());
        for millis in [0, 1, 500, 999, 1_000, 1_001, 5_000] {
            let now = start + Duration::from_millis(millis);
            seldom.tell(now, |times| told.push((millis, times.to_owned())));
        }
        let expected = [(0, "1"), (1_000, "4"), (5_000, "2")];
        assert_eq!(told, expected.map(|(at, times)| (at, times.to_owned())));
    }

    #[test]
    fn a_longer_pause_is_kept() {
        let (seldom, start, mut told) = (Seldom::every(Duration::from_secs(300)), Instant::now(), Vec::new());
        for seconds in [0, 1, 299, 300, 301] {
            let now = start + Duration::from_secs(seconds);
            seldom.tell(now, |times| told.push((seconds, times.to_owned())));
        }
        assert_eq!(told, [(0, "1".to_owned()), (300, "3".to_owned())]);
    }
}
