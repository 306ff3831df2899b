//! Clocks of the process. Only this module reads the system's clocks; crates under `plugins/` get the time as an
//! argument.
//!
//! A request asks for the time about forty times, and each read of a clock costs tens of nanoseconds. Between two
//! waits, a task runs for such a short time that one read is sufficient. So for tasks that run under
//! [`with_cached_time`], the clock is read only once per poll. Measurements of the gateway's own work call
//! [`Instant::now`] directly.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    static CACHED_TIME: Cell<CachedTime> = const { Cell::new(CachedTime::Uncached) };
}

/// Time of the task that runs on this thread.
#[derive(Clone, Copy)]
enum CachedTime {
    /// The clock is read at each call.
    Uncached,
    /// The clock will be read at the next call, which caches the time.
    Pending,
    /// The clock was read, and this time is returned at each call.
    At(Instant),
}

/// Returns the current time. For a task under [`with_cached_time`], it is the time of the first call in the current
/// poll of the task.
#[must_use]
pub fn cached_now() -> Instant {
    CACHED_TIME.with(|held| match held.get() {
        CachedTime::At(instant) => instant,
        CachedTime::Pending => {
            let instant = Instant::now();
            held.set(CachedTime::At(instant));
            instant
        }
        CachedTime::Uncached => Instant::now(),
    })
}

/// Runs `go_on`, which is one poll of a task. During the poll, [`cached_now`] reads the clock only once.
pub fn with_cached_time<T>(go_on: impl FnOnce() -> T) -> T {
    let _release = CacheGuard(CACHED_TIME.replace(CachedTime::Pending));
    go_on()
}

/// Restores the previous state of the clock, also after a panic.
struct CacheGuard(CachedTime);

impl Drop for CacheGuard {
    fn drop(&mut self) {
        CACHED_TIME.set(self.0);
    }
}

/// Maximum difference between the calendar clock and the system clock that is ignored.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Two clocks that never go back; both return the time since 1970. The steady clock is set once at startup and then
/// runs evenly; it is used for pauses, deadlines and rates. The calendar clock is used for dates: it follows the
/// system clock when the system clock was set forward or ran on while the machine was suspended; see
/// [`ProcessClock::follow_system_clock`].
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    origin: Duration,
    start: Instant,
    calendar: &'static CalendarState,
}

/// State of the calendar clock, which all copies of a clock share.
#[derive(Debug, Default)]
struct CalendarState {
    /// Nanoseconds to add to the time of the steady clock to get the time of the calendar clock.
    offset_nanos: AtomicU64,
    /// Seconds by which the calendar clock is fast, compared with the system clock; 0 if the difference is small.
    lead_seconds: AtomicU64,
}

/// Result of a comparison with the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockAdjustment {
    /// No adjustment that has to be reported.
    Unchanged,
    /// The calendar clock was behind by this duration and was moved forward.
    Moved(Duration),
    /// The calendar clock is fast by this duration and runs on until the system clock has caught up. Reported once.
    Waiting(Duration),
}

impl ProcessClock {
    /// Starts the clock of the process at the time of the system clock.
    #[must_use]
    pub fn start() -> Self {
        // The state is never freed, because copies of the clock live as long as the process, and a process starts only
        // one clock.
        let calendar = Box::leak(Box::default());
        Self { origin: system_time(), start: Instant::now(), calendar }
    }

    /// Starts a clock whose time is later than that of the system clock by this duration.
    #[cfg(test)]
    #[must_use]
    pub fn with_offset(offset: Duration) -> Self {
        let clock = Self::start();
        Self { origin: clock.origin + offset, ..clock }
    }

    /// Returns the time of the steady clock.
    #[must_use]
    pub fn steady_now(&self) -> Duration {
        self.steady_at(cached_now())
    }

    /// Converts an instant that is not in the future to the time of the steady clock.
    #[must_use]
    pub fn steady_at(&self, instant: Instant) -> Duration {
        self.origin + instant.saturating_duration_since(self.start)
    }

    /// Returns the time of the calendar clock.
    #[must_use]
    pub fn calendar_now(&self) -> Duration {
        self.steady_now()
            .saturating_add(Duration::from_nanos(self.calendar.offset_nanos.load(Ordering::Relaxed)))
    }

    /// Returns the time of the calendar clock in whole seconds since 1970.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        self.calendar_now().as_secs()
    }

    /// Compares the calendar clock with the system clock, whose time since 1970 is `system`, and moves it forward if it
    /// is behind. It is never moved back: otherwise an hour would be counted twice, and new ledger entries would have
    /// earlier times than previous ones. If it is fast, it runs on unchanged until the system clock has caught up.
    pub fn follow_system_clock(&self, system: Duration) -> ClockAdjustment {
        let date = self.calendar_now();
        let (behind, lead) = (system.saturating_sub(date), date.saturating_sub(system));
        let reported = if lead > MAX_CLOCK_SKEW { lead.as_secs() } else { 0 };
        let before = self.calendar.lead_seconds.swap(reported, Ordering::Relaxed);
        if behind > MAX_CLOCK_SKEW {
            let nanos = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
            self.calendar.offset_nanos.fetch_add(nanos, Ordering::Relaxed);
            return ClockAdjustment::Moved(behind);
        }
        if reported > 0 && before == 0 { ClockAdjustment::Waiting(lead) } else { ClockAdjustment::Unchanged }
    }

    /// Returns the seconds by which the calendar clock was fast at the last comparison with the system clock; 0 if
    /// the difference is small.
    #[must_use]
    pub fn calendar_lead_seconds(&self) -> u64 {
        self.calendar.lead_seconds.load(Ordering::Relaxed)
    }
}

/// Returns the time since 1970 by the system clock, which an administrator or NTP may change.
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
        let clock = ProcessClock::start();
        let (copy, begun) = (clock, Instant::now());
        let (steady, unix) = (clock.steady_at(begun), clock.unix_seconds());
        assert_eq!(clock.follow_system_clock(clock.calendar_now()), ClockAdjustment::Unchanged);
        assert_eq!(
            clock.follow_system_clock(clock.calendar_now() + MAX_CLOCK_SKEW / 2),
            ClockAdjustment::Unchanged
        );
        let ClockAdjustment::Moved(by) = clock.follow_system_clock(clock.calendar_now() + HOUR) else {
            panic!("it stays behind")
        };
        assert!(by <= HOUR && by > HOUR - MAX_CLOCK_SKEW, "{by:?}");
        assert!(copy.unix_seconds() + 2 >= unix + 3_600, "every copy moves");
        assert_eq!(clock.steady_at(begun), steady);
        assert!(clock.steady_now() < steady + HOUR / 2);
        assert_eq!(clock.follow_system_clock(clock.calendar_now()), ClockAdjustment::Unchanged);
    }

    #[test]
    fn dates_never_decrease_and_the_correction_is_reported_once() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let clock = ProcessClock::start();
        let before = clock.calendar_now();
        assert!(
            matches!(clock.follow_system_clock(before - HOUR), ClockAdjustment::Waiting(by) if by >= HOUR)
        );
        assert!(clock.calendar_now() >= before);
        assert!(clock.calendar_lead_seconds() >= 3_600);
        assert_eq!(clock.follow_system_clock(before - HOUR), ClockAdjustment::Unchanged);
        assert_eq!(clock.follow_system_clock(clock.calendar_now()), ClockAdjustment::Unchanged);
        assert_eq!(clock.calendar_lead_seconds(), 0);
        assert!(
            matches!(clock.follow_system_clock(before - HOUR), ClockAdjustment::Waiting(_)),
            "another time"
        );
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
        std::future::poll_fn(|context| with_cached_time(|| task.as_mut().poll(context))).await;
        let after = cached_now();
        spin();
        assert!(cached_now() > after);
    }
}
