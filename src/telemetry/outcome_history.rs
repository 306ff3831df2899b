//! Numbers of ended requests and of errors in the last minutes, and the streams that are open. The memory is bounded.

use super::{AccessRecord, ExchangeKind, ExchangeOutcome, HEALTH_ENDPOINT_NAME};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of minutes that are counted, the present one included.
pub const WINDOW_MINUTES: u64 = 5;
/// First HTTP status of an error of the gateway or of its providers.
const FIRST_ERROR_STATUS: u16 = 500;

/// Numbers of requests, errors and refusals in a period of minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Number of ended requests.
    pub requests: u64,
    /// Requests that ended with a status of 500 or more, or with an error within a stream.
    pub errors: u64,
    /// Requests that were refused with a status below 500.
    pub refused: u64,
}

impl OutcomeCounts {
    fn count(&mut self, outcome: ExchangeOutcome, status: u16) {
        self.requests += 1;
        match outcome {
            ExchangeOutcome::Broken => self.errors += 1,
            ExchangeOutcome::Refused if status >= FIRST_ERROR_STATUS => self.errors += 1,
            ExchangeOutcome::Refused => self.refused += 1,
            ExchangeOutcome::Ok
            | ExchangeOutcome::Disconnected
            | ExchangeOutcome::Cancelled
            | ExchangeOutcome::Interrupted
            | ExchangeOutcome::Yielded => {}
        }
    }
}

/// Counts of the last minutes, each with the number of its minute since 1970; the index is that number modulo
/// [`WINDOW_MINUTES`].
#[derive(Default)]
pub struct OutcomeHistory(Mutex<[(u64, OutcomeCounts); WINDOW_MINUTES as usize]>);

impl OutcomeHistory {
    /// Counts an ended request. Health checks, lines of batches, and attempts of background responses
    /// that may be sent again do not count.
    pub fn record(&self, record: &AccessRecord, unix_seconds: u64) {
        if record.kind == ExchangeKind::Request && record.endpoint != HEALTH_ENDPOINT_NAME {
            self.count(record.outcome, record.status, unix_seconds / 60);
        }
    }

    fn count(&self, outcome: ExchangeOutcome, status: u16, minute: u64) {
        let mut minutes = self.0.lock();
        let at = usize::try_from(minute % WINDOW_MINUTES).unwrap_or(0);
        let Some(slot) = minutes.get_mut(at) else { return };
        if slot.0 != minute {
            *slot = (minute, OutcomeCounts::default());
        }
        slot.1.count(outcome, status);
    }

    /// Returns the counts of the last [`WINDOW_MINUTES`] minutes up to a time in Unix seconds.
    pub fn recent_counts(&self, unix_seconds: u64) -> OutcomeCounts {
        let minute = unix_seconds / 60;
        let first = (minute + 1).saturating_sub(WINDOW_MINUTES);
        let mut sum = OutcomeCounts::default();
        for (_, counts) in self.0.lock().iter().filter(|(at, _)| (first..=minute).contains(at)) {
            sum.requests += counts.requests;
            sum.errors += counts.errors;
            sum.refused += counts.refused;
        }
        sum
    }
}

/// Number of open streams.
#[derive(Clone, Debug, Default)]
pub struct OpenStreamCounter(Arc<AtomicUsize>);

impl OpenStreamCounter {
    /// Counts a stream until the guard is dropped.
    #[must_use]
    pub fn track_stream(&self) -> OpenStreamGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenStreamGuard(self.0.clone())
    }

    /// Returns the number of open streams.
    #[must_use]
    pub fn open_stream_count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Guard of an open stream.
#[derive(Debug)]
pub struct OpenStreamGuard(Arc<AtomicUsize>);

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_for_five_minutes() {
        let history = OutcomeHistory::default();
        let counts = |requests, errors, refused| OutcomeCounts { requests, errors, refused };
        history.count(ExchangeOutcome::Ok, 200, 10);
        history.count(ExchangeOutcome::Refused, 503, 10);
        history.count(ExchangeOutcome::Refused, 429, 11);
        history.count(ExchangeOutcome::Broken, 200, 12);
        assert_eq!(history.recent_counts(12 * 60), counts(4, 2, 1));
        assert_eq!(history.recent_counts(14 * 60 + 59), counts(4, 2, 1));
        assert_eq!(history.recent_counts(15 * 60), counts(2, 1, 1));
        history.count(ExchangeOutcome::Disconnected, 200, 15);
        assert_eq!(
            history.recent_counts(15 * 60),
            counts(3, 1, 1),
            "the minute takes over the slot of an old one"
        );
        assert_eq!(history.recent_counts(40 * 60), counts(0, 0, 0));
    }

    #[test]
    fn a_stream_is_open_until_its_guard_is_dropped() {
        let streams = OpenStreamCounter::default();
        let guards = [streams.track_stream(), streams.track_stream()];
        assert_eq!(streams.open_stream_count(), 2);
        drop(guards);
        assert_eq!(streams.open_stream_count(), 0);
    }
}
