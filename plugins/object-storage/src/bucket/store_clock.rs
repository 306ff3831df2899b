//! Clock of a store, from the dates in its answers. The clocks of gateways may differ from the store's clock and from
//! each other, so the age of an object is the difference between two times of the store.

use http::HeaderMap;
use http::header::DATE;
use parking_lot::Mutex;
use std::time::{Instant, SystemTime};

/// Clock of the object store, read from the dates of its responses.
#[derive(Debug, Default)]
pub struct StoreClock(Mutex<Option<ClockReading>>);

/// Date in a response of the store, and the local time at which it arrived.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    date: SystemTime,
    received_at: Instant,
}

impl StoreClock {
    /// Records the date of an answer, if it has one.
    pub fn record_date(&self, headers: &HeaderMap, received_at: Instant) {
        let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        if let Some(date) = date {
            *self.0.lock() = Some(ClockReading { date, received_at });
        }
    }

    /// Returns the time of the store at `now`; `None` if no answer had a date.
    pub fn store_time_at(&self, now: Instant) -> Option<SystemTime> {
        let reading = (*self.0.lock())?;
        reading.date.checked_add(now.saturating_duration_since(reading.received_at))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;
    use std::time::Duration;

    #[test]
    fn the_last_date_runs_on_and_an_answer_without_a_date_changes_nothing() {
        let (clock, start) = (StoreClock::default(), Instant::now());
        assert_eq!(clock.store_time_at(start), None);
        let dated = |date: &'static str| HeaderMap::from_iter([(DATE, HeaderValue::from_static(date))]);
        clock.record_date(&dated("Thu, 01 Jan 1970 00:01:00 GMT"), start);
        for headers in [HeaderMap::new(), dated("yesterday")] {
            clock.record_date(&headers, start + Duration::from_secs(3));
        }
        let time = clock.store_time_at(start + Duration::from_secs(5)).unwrap();
        assert_eq!(time, SystemTime::UNIX_EPOCH + Duration::from_secs(65));
        clock.record_date(&dated("Thu, 01 Jan 1970 00:00:30 GMT"), start);
        assert_eq!(clock.store_time_at(start).unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(30));
    }
}
