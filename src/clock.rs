//! Clock of the gateway, read only here: other modules get the time as an argument.
//!
//! A request needs the time some forty times, and each reading of the clock costs tens of nanoseconds. The time that a
//! task takes between two waits is not worth a new reading, so for tasks under [`hold`] the clock is read once each
//! time they are polled. Measurements of the gateway's own work read [`Instant::now`] directly.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held::No) };
}

/// Time of the task that runs on this thread.
#[derive(Clone, Copy)]
enum Held {
    /// Clock is read at each call.
    No,
    /// Clock will be read at the next call.
    Unread,
    At(Instant),
}

/// Returns the current time; for a task under [`hold`], the time of its first call since it was last polled.
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

/// Holds the time constant while a task is polled.
pub fn hold<T>(go_on: impl FnOnce() -> T) -> T {
    let _release = Release(HELD.replace(Held::Unread));
    go_on()
}

/// Guard that restores the previous state of the clock, also when the task panics.
struct Release(Held);

impl Drop for Release {
    fn drop(&mut self) {
        HELD.set(self.0);
    }
}

/// Accepted difference between the gateway's calendar and the system's clock.
const CLOSE: Duration = Duration::from_secs(2);

/// Two clocks that never go back, both in time since 1970. The steady clock is read once at the start and runs evenly
/// from then on: for pauses, deadlines and rates. The calendar is for dates: it follows the system's clock when that is
/// set forward, or advanced while the machine slept, see [`Clock::follow`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Duration,
    start: Instant,
    calendar: &'static Calendar,
}

/// Calendar state that all copies of a clock share.
#[derive(Debug, Default)]
struct Calendar {
    /// Nanoseconds by which the calendar is ahead of the steady clock.
    forward: AtomicU64,
    /// Seconds by which the calendar is ahead of the system's clock; 0 if the difference is small.
    ahead: AtomicU64,
}

/// Result of a comparison with the system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// No change worth a report.
    Same,
    /// Calendar was moved forward by this much.
    Moved(Duration),
    /// Calendar is ahead by this much and waits; it was not ahead at the last comparison.
    Ahead(Duration),
}

impl Clock {
    /// Starts a clock now.
    #[must_use]
    pub fn start() -> Self {
        // Leaked for the whole process, because any code may have a copy; a process starts one clock.
        let calendar = Box::leak(Box::default());
        Self { origin: system(), start: Instant::now(), calendar }
    }

    /// Returns a clock that is ahead by `by`.
    #[cfg(test)]
    #[must_use]
    pub fn ahead(by: Duration) -> Self {
        let clock = Self::start();
        Self { origin: clock.origin + by, ..clock }
    }

    /// Returns the steady time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.at(now())
    }

    /// Returns the steady time of an earlier instant.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Duration {
        self.origin + instant.saturating_duration_since(self.start)
    }

    /// Returns the calendar time.
    #[must_use]
    pub fn date(&self) -> Duration {
        self.now().saturating_add(Duration::from_nanos(self.calendar.forward.load(Ordering::Relaxed)))
    }

    /// Returns whole seconds since 1970, by the calendar.
    #[must_use]
    pub fn unix(&self) -> u64 {
        self.date().as_secs()
    }

    /// Compares the calendar with the system's clock and moves it forward to it. It never moves back, because the same
    /// hour would be counted twice and ledger entries would be older than those before them; instead it waits until the
    /// system's clock has caught up.
    pub fn follow(&self, system: Duration) -> Followed {
        let date = self.date();
        let (behind, ahead) = (system.saturating_sub(date), date.saturating_sub(system));
        let told = if ahead > CLOSE { ahead.as_secs() } else { 0 };
        let before = self.calendar.ahead.swap(told, Ordering::Relaxed);
        if behind > CLOSE {
            let nanos = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
            self.calendar.forward.fetch_add(nanos, Ordering::Relaxed);
            return Followed::Moved(behind);
        }
        if told > 0 && before == 0 { Followed::Ahead(ahead) } else { Followed::Same }
    }

    /// Returns the seconds by which the calendar was ahead of the system's clock at the last comparison; 0 if the
    /// difference is small.
    #[must_use]
    pub fn seconds_ahead(&self) -> u64 {
        self.calendar.ahead.load(Ordering::Relaxed)
    }
}

/// Returns the time since 1970 by the system's clock, which may be set.
#[must_use]
pub fn system() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    fn spin() {
        let begun = Instant::now();
        while begun.elapsed().is_zero() {}
    }

    #[test]
    fn dates_follow_the_system_forward_and_the_steady_clock_does_not() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let clock = Clock::start();
        let (copy, begun) = (clock, Instant::now());
        let (steady, unix) = (clock.at(begun), clock.unix());
        assert_eq!(clock.follow(clock.date()), Followed::Same);
        assert_eq!(clock.follow(clock.date() + CLOSE / 2), Followed::Same);
        let Followed::Moved(by) = clock.follow(clock.date() + HOUR) else { panic!("it stays behind") };
        assert!(by <= HOUR && by > HOUR - CLOSE, "{by:?}");
        assert!(copy.unix() + 2 >= unix + 3_600, "every copy moves");
        assert_eq!(clock.at(begun), steady);
        assert!(clock.now() < steady + HOUR / 2);
        assert_eq!(clock.follow(clock.date()), Followed::Same);
    }

    #[test]
    fn dates_do_not_go_back_and_that_is_told_once() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let clock = Clock::start();
        let before = clock.date();
        assert!(matches!(clock.follow(before - HOUR), Followed::Ahead(by) if by >= HOUR));
        assert!(clock.date() >= before);
        assert!(clock.seconds_ahead() >= 3_600);
        assert_eq!(clock.follow(before - HOUR), Followed::Same);
        assert_eq!(clock.follow(clock.date()), Followed::Same);
        assert_eq!(clock.seconds_ahead(), 0);
        assert!(matches!(clock.follow(before - HOUR), Followed::Ahead(_)), "another time");
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
