//! The only reader of the system's clocks: crates under `plugins/` get time as an argument.
//!
//! A request asks for the time about forty times, and each reading costs tens of nanoseconds. Work between two waits
//! takes too little time to need a new reading, so that for tasks under [`cache_during`] the clock is read once per
//! poll. Measurements of the gateway's own work read [`Instant::now`] directly.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    static HELD: Cell<CachedTime> = const { Cell::new(CachedTime::Uncached) };
}

/// Time of the task that runs on this thread.
#[derive(Clone, Copy)]
enum CachedTime {
    /// Read at each call.
    Uncached,
    /// Read at the first call.
    Pending,
    At(Instant),
}

/// Returns the present time; for a task under [`cache_during`] the time of its first call since it last waited.
#[must_use]
pub fn cached_now() -> Instant {
    HELD.with(|held| match held.get() {
        CachedTime::At(instant) => instant,
        CachedTime::Pending => {
            let instant = Instant::now();
            held.set(CachedTime::At(instant));
            instant
        }
        CachedTime::Uncached => Instant::now(),
    })
}

/// Holds the clock during a poll of a task.
pub fn cache_during<T>(go_on: impl FnOnce() -> T) -> T {
    let _release = CacheGuard(HELD.replace(CachedTime::Pending));
    go_on()
}

/// Restores the previous state of the clock, also after a panic.
struct CacheGuard(CachedTime);

impl Drop for CacheGuard {
    fn drop(&mut self) {
        HELD.set(self.0);
    }
}

/// Largest difference between calendar and system clock that counts as equal.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Two clocks that never go back, both in time since 1970. The steady clock is read once at startup and runs evenly
/// from then on, for pauses, deadlines and rates. The calendar is for dates: it follows the system clock where that is
/// set forward, or ran on while the machine slept, see [`SteadyClock::follow_system`].
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    origin: Duration,
    start: Instant,
    calendar: &'static CalendarState,
}

/// Calendar state that all copies of a clock share.
#[derive(Debug, Default)]
struct CalendarState {
    /// Nanoseconds that the calendar is ahead of the steady clock.
    offset_nanos: AtomicU64,
    /// Seconds that the calendar is ahead of the system clock; 0 if they are close.
    ahead_seconds: AtomicU64,
}

/// Result of a comparison with the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockAdjustment {
    /// No change to report.
    Unchanged,
    /// The calendar was behind by this span and was moved forward.
    Moved(Duration),
    /// The calendar is ahead by this span and waits; reported once.
    Waiting(Duration),
}

impl SteadyClock {
    /// Starts a clock.
    #[must_use]
    pub fn start() -> Self {
        // Leaked, because copies live as long as the process; a process starts one clock.
        let calendar = Box::leak(Box::default());
        Self { origin: system_time(), start: Instant::now(), calendar }
    }

    /// Starts a clock that is ahead.
    #[cfg(test)]
    #[must_use]
    pub fn with_offset(by: Duration) -> Self {
        let clock = Self::start();
        Self { origin: clock.origin + by, ..clock }
    }

    /// Returns the time by the steady clock.
    #[must_use]
    pub fn steady_now(&self) -> Duration {
        self.at_instant(cached_now())
    }

    /// Converts an earlier instant to the steady clock.
    #[must_use]
    pub fn at_instant(&self, instant: Instant) -> Duration {
        self.origin + instant.saturating_duration_since(self.start)
    }

    /// Returns the time by the calendar.
    #[must_use]
    pub fn calendar_now(&self) -> Duration {
        self.steady_now()
            .saturating_add(Duration::from_nanos(self.calendar.offset_nanos.load(Ordering::Relaxed)))
    }

    /// Returns whole seconds since 1970 by the calendar.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        self.calendar_now().as_secs()
    }

    /// Compares the calendar with the system clock and moves it forward where it is behind. It never moves back,
    /// because an hour would be counted twice and entries of the ledger would be older than those before them; it waits
    /// until the system clock catches up.
    pub fn follow_system(&self, system: Duration) -> ClockAdjustment {
        let date = self.calendar_now();
        let (behind, ahead) = (system.saturating_sub(date), date.saturating_sub(system));
        let told = if ahead > MAX_CLOCK_SKEW { ahead.as_secs() } else { 0 };
        let before = self.calendar.ahead_seconds.swap(told, Ordering::Relaxed);
        if behind > MAX_CLOCK_SKEW {
            let nanos = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
            self.calendar.offset_nanos.fetch_add(nanos, Ordering::Relaxed);
            return ClockAdjustment::Moved(behind);
        }
        if told > 0 && before == 0 { ClockAdjustment::Waiting(ahead) } else { ClockAdjustment::Unchanged }
    }

    /// Returns the seconds that the calendar was ahead of the system clock at the last comparison; 0 if they are close.
    #[must_use]
    pub fn calendar_lead_seconds(&self) -> u64 {
        self.calendar.ahead_seconds.load(Ordering::Relaxed)
    }
}

/// Returns the time since 1970 by the system clock, which may be set.
#[must_use]
pub fn system_time() -> Duration {
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
        let clock = SteadyClock::start();
        let (copy, begun) = (clock, Instant::now());
        let (steady, unix) = (clock.at_instant(begun), clock.unix_seconds());
        assert_eq!(clock.follow_system(clock.calendar_now()), ClockAdjustment::Unchanged);
        assert_eq!(
            clock.follow_system(clock.calendar_now() + MAX_CLOCK_SKEW / 2),
            ClockAdjustment::Unchanged
        );
        let ClockAdjustment::Moved(by) = clock.follow_system(clock.calendar_now() + HOUR) else {
            panic!("it stays behind")
        };
        assert!(by <= HOUR && by > HOUR - MAX_CLOCK_SKEW, "{by:?}");
        assert!(copy.unix_seconds() + 2 >= unix + 3_600, "every copy moves");
        assert_eq!(clock.at_instant(begun), steady);
        assert!(clock.steady_now() < steady + HOUR / 2);
        assert_eq!(clock.follow_system(clock.calendar_now()), ClockAdjustment::Unchanged);
    }

    #[test]
    fn dates_never_decrease_and_the_correction_is_reported_once() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let clock = SteadyClock::start();
        let before = clock.calendar_now();
        assert!(matches!(clock.follow_system(before - HOUR), ClockAdjustment::Waiting(by) if by >= HOUR));
        assert!(clock.calendar_now() >= before);
        assert!(clock.calendar_lead_seconds() >= 3_600);
        assert_eq!(clock.follow_system(before - HOUR), ClockAdjustment::Unchanged);
        assert_eq!(clock.follow_system(clock.calendar_now()), ClockAdjustment::Unchanged);
        assert_eq!(clock.calendar_lead_seconds(), 0);
        assert!(matches!(clock.follow_system(before - HOUR), ClockAdjustment::Waiting(_)), "another time");
    }

    #[tokio::test]
    async fn time_stands_while_a_task_runs_and_goes_on_when_it_has_waited() {
        let mut task = Box::pin(async {
            let first = cached_now();
            spin();
            assert_eq!(cached_now(), first);
            tokio::task::yield_now().await;
            assert!(cached_now() > first);
        });
        std::future::poll_fn(|context| cache_during(|| task.as_mut().poll(context))).await;
        let after = cached_now();
        spin();
        assert!(cached_now() > after);
    }
}
