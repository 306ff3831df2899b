//! The one place that reads the clock: rooms get time as an argument.
//!
//! A request asks for the time some forty times, and each reading of the clock
//! costs it tens of nanoseconds. What a task does between two waits takes no
//! time worth a new reading, so for tasks under [`hold`] the clock is read once
//! each time they go on. What measures the house's own work reads
//! [`Instant::now`] itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// How far the house's calendar may be from the system's.
const CLOSE: Duration = Duration::from_secs(2);

/// Two clocks that never go back, both in time since 1970. The steady one is read once at the start and runs evenly
/// from then on: for pauses, deadlines and rates. The calendar is for dates: it follows the system's clock where
/// that is set forward, or ran on while the machine slept, see [`Clock::follow`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Duration,
    start: Instant,
    calendar: &'static Calendar,
}

/// What all copies of a clock share of its calendar.
#[derive(Debug, Default)]
struct Calendar {
    /// How far it is before the steady clock, in nanoseconds.
    forward: AtomicU64,
    /// How far it is before the system's clock, in seconds; 0 if it is close.
    ahead: AtomicU64,
}

/// What became of a look at the system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Nothing is to be told.
    Same,
    /// The calendar was behind by so much, and is not any more.
    Moved(Duration),
    /// The calendar is ahead by so much, and waits; it was not when it was last looked.
    Ahead(Duration),
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        // As long as the process, for whoever has a copy; a process starts one.
        let calendar = Box::leak(Box::default());
        Self { origin: system(), start: Instant::now(), calendar }
    }

    /// One that is ahead.
    #[cfg(test)]
    #[must_use]
    pub fn ahead(by: Duration) -> Self {
        let clock = Self::start();
        Self { origin: clock.origin + by, ..clock }
    }

    /// Now, steadily.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.at(now())
    }

    /// The same scale for an instant taken earlier.
    #[must_use]
    pub fn at(&self, instant: Instant) -> Duration {
        self.origin + instant.saturating_duration_since(self.start)
    }

    /// Now, by the calendar.
    #[must_use]
    pub fn date(&self) -> Duration {
        self.now().saturating_add(Duration::from_nanos(self.calendar.forward.load(Ordering::Relaxed)))
    }

    /// Whole seconds since 1970, by the calendar.
    #[must_use]
    pub fn unix(&self) -> u64 {
        self.date().as_secs()
    }

    /// Looks at the system's clock: the calendar moves forward to it. It does not move back, where the same hour would
    /// be counted twice and entries of the ledger would be older than those before them; it waits to be told right.
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

    /// How far the calendar is ahead of the system's clock, in seconds, as it was last looked; 0 if it is close.
    #[must_use]
    pub fn seconds_ahead(&self) -> u64 {
        self.calendar.ahead.load(Ordering::Relaxed)
    }
}

/// Time since 1970 by the system's clock, which may be set.
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
