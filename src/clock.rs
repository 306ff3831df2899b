//! The one place that reads the clock: rooms get time as an argument.
//!
//! A request asks for the time some forty times, and each reading of the clock
//! costs it tens of nanoseconds. What a task does between two waits takes no
//! time worth a new reading, so for tasks under [`hold`] the clock is read once
//! each time they go on. What measures the house's own work reads
//! [`Instant::now`] itself.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held::No) };
}

/// The time of the task that runs on this thread.
#[derive(Clone, Copy)]
enum Held {
    /// It is read whenever it is asked for.
    No,
    /// It will be read when it is first asked for.
    Unread,
    At(Instant),
}

/// Now, or when the task under [`hold`] that asks first asked since it last waited.
#[must_use]
pub fn now() -> Instant {
    HELD.with(|held| match held.get() {
        Held::At(instant) => instant,
        Held::Unread => {
            let instant = Instant::now();
            held.set(Held::At(instant));
            instant
        }
        Held::No => Instant::now(),
    })
}

/// Holds the clock while a task goes on, until it waits again.
pub fn hold<T>(go_on: impl FnOnce() -> T) -> T {
    let _release = Release(HELD.replace(Held::Unread));
    go_on()
}

/// Gives the clock back as it was, also when the task panics.
struct Release(Held);

impl Drop for Release {
    fn drop(&mut self) {
        HELD.set(self.0);
    }
}

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
        self.at(now())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spin() {
        let begun = Instant::now();
        while begun.elapsed().is_zero() {}
    }

    #[tokio::test]
    async fn time_stands_while_a_task_runs_and_goes_on_when_it_has_waited() {
        let mut task = Box::pin(async {
            let first = now();
            spin();
            assert_eq!(now(), first);
            tokio::task::yield_now().await;
            assert!(now() > first);
        });
        std::future::poll_fn(|context| hold(|| task.as_mut().poll(context))).await;
        let after = now();
        spin();
        assert!(now() > after);
    }
}
