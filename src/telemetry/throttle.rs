//! Throttle of log events that may happen hundreds of times a second. It allows one line per second, which contains the
//! number of events since the previous line.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Default interval between two lines.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// Throttle for the log lines of one kind of event.
#[derive(Debug)]
pub struct ThrottledLog {
    pause: Duration,
    state: Mutex<ThrottleState>,
}

#[derive(Debug)]
struct ThrottleState {
    last: Option<Instant>,
    suppressed: u64,
}

impl ThrottledLog {
    /// Creates a throttle without events.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_interval(DEFAULT_INTERVAL)
    }

    /// Creates a throttle with another interval between two lines.
    #[must_use]
    pub const fn with_interval(pause: Duration) -> Self {
        Self { pause, state: Mutex::new(ThrottleState { last: None, suppressed: 0 }) }
    }

    /// Records an event. If a line is due, calls `line` with the number of events since the previous line.
    pub fn log(&self, now: Instant, line: impl FnOnce(&str)) {
        let mut state = self.state.lock();
        state.suppressed = state.suppressed.saturating_add(1);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.pause) {
            return;
        }
        state.last = Some(now);
        let times = std::mem::take(&mut state.suppressed);
        drop(state);
        line(&times.to_string());
    }
}

impl Default for ThrottledLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_logged_at_once_and_the_others_together_after_a_second() {
        let (log, start, mut logged) = (ThrottledLog::new(), Instant::now(), Vec::new());
        for millis in [0, 1, 500, 999, 1_000, 1_001, 5_000] {
            let now = start + Duration::from_millis(millis);
            log.log(now, |times| logged.push((millis, times.to_owned())));
        }
        let expected = [(0, "1"), (1_000, "4"), (5_000, "2")];
        assert_eq!(logged, expected.map(|(at, times)| (at, times.to_owned())));
    }

    #[test]
    fn a_longer_cooldown_is_retained() {
        let (log, start, mut logged) =
            (ThrottledLog::with_interval(Duration::from_secs(300)), Instant::now(), Vec::new());
        for seconds in [0, 1, 299, 300, 301] {
            let now = start + Duration::from_secs(seconds);
            log.log(now, |times| logged.push((seconds, times.to_owned())));
        }
        assert_eq!(logged, [(0, "1".to_owned()), (300, "3".to_owned())]);
    }
}
