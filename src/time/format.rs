//! Formats of times in text and HTTP headers.

pub use penstock_core::calendar::format_rfc3339;

use penstock_core::calendar::UtcDay;
use std::time::{Duration, UNIX_EPOCH};

/// Formats a Unix time as a day, UTC: `2025-11-22`.
#[must_use]
pub fn format_day(seconds: u64) -> String {
    UtcDay::from_unix(seconds).to_string()
}

/// Formats a time since 1970 by RFC 3339, rounded up to whole seconds.
#[must_use]
pub fn format_rfc3339_rounded_up(at: Duration) -> String {
    format_rfc3339(at.as_secs() + u64::from(at.subsec_nanos() > 0))
}

/// Formats a duration in the format of Go, rounded up to milliseconds below a second, else to seconds: `0s`, `12ms`,
/// `1s`, `6m0s`, `1h0m0s`.
#[must_use]
pub fn format_duration(span: Duration) -> String {
    if span.is_zero() {
        return "0s".to_owned();
    }
    let mut text = String::with_capacity(24);
    let mut put = |number: u64, unit: &str| {
        text.push_str(itoa::Buffer::new().format(number));
        text.push_str(unit);
    };
    let millis = u64::from(span.subsec_nanos().div_ceil(1_000_000));
    if span.as_secs() == 0 && millis < 1_000 {
        put(millis, "ms");
        return text;
    }
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    if seconds >= 3_600 {
        put(seconds / 3_600, "h");
    }
    if seconds >= 60 {
        put(seconds / 60 % 60, "m");
    }
    put(seconds % 60, "s");
    text
}

/// Returns the seconds from `now`, a time since 1970, until an HTTP date (RFC 9110 §5.6.7), rounded up. Returns 0 for a
/// date in the past, and `None` if the text is not a date since 1970.
#[must_use]
pub fn seconds_until_http_date(date: &str, now: Duration) -> Option<u64> {
    let date = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let left = date.saturating_sub(now);
    Some(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_moments_are_those_of_the_calendar() {
        assert_eq!(format_day(0), "1970-01-01");
        assert_eq!(format_day(1_709_164_800), "2024-02-29");
        assert_eq!(format_rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(
            format_rfc3339_rounded_up(Duration::from_millis(1_735_689_599_001)),
            "2025-01-01T00:00:00Z"
        );
    }

    #[test]
    fn durations_are_in_go_format_and_never_too_brief() {
        let of = |nanos| format_duration(Duration::from_nanos(nanos));
        assert_eq!(of(0), "0s");
        assert_eq!(of(1), "1ms");
        assert_eq!(of(11_000_001), "12ms");
        assert_eq!(of(999_000_001), "1s");
        assert_eq!(of(1_000_000_001), "2s");
        assert_eq!(of(360_000_000_000), "6m0s");
        assert_eq!(of(3_661_000_000_000), "1h1m1s");
    }

    #[test]
    fn the_time_to_a_date_is_whole_seconds_and_never_negative() {
        let left = |date: &str, now| seconds_until_http_date(date, Duration::from_millis(now));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(left(date, 784_111_770_000), Some(7));
        assert_eq!(left(date, 784_111_770_001), Some(7));
        assert_eq!(left(date, 784_111_769_999), Some(8));
        assert_eq!(left(date, 784_111_778_000), Some(0));
        assert_eq!(left("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_770_000), Some(7));
        assert_eq!(left("Sun Nov  6 08:49:37 1994", 784_111_770_000), Some(7));
        for none in ["7", "", "soon", "06 Nov 1994", "Wed, 01 Jan 1969 00:00:00 GMT"] {
            assert_eq!(left(none, 0), None, "{none}");
        }
    }
}
