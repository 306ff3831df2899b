//! The one place that reads the clock: rooms get time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time since 1970, read once at the start and monotonic from then on: it never
/// goes back, and figures kept across a restart still know their age.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Duration,
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin, start: Instant::now() }
    }

    /// One that is ahead.
    #[cfg(test)]
    #[must_use]
    pub fn ahead(by: Duration) -> Self {
        let clock = Self::start();
        Self { origin: clock.origin + by, ..clock }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    /// The same scale for an instant taken earlier.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Duration {
        self.origin + instant.saturating_duration_since(self.start)
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub fn unix(&self) -> u64 {
        self.now().as_secs()
    }
}
