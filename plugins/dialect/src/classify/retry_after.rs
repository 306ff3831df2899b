//! Delay before the next request that a provider demands in its response head.

use std::time::Duration;

/// Maximum accepted delay. A longer one is shortened.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// Parses the value of `Retry-After` in seconds, rounded up and limited to an hour; `None` if the value is no decimal
/// number, as a date.
#[must_use]
pub fn parse_retry_after(seconds: &str) -> Option<Duration> {
    let (whole, part) = seconds.trim().split_once('.').unwrap_or((seconds.trim(), ""));
    let whole: u64 = whole.parse().ok()?;
    if !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let more = part.bytes().any(|digit| digit != b'0');
    Some(Duration::from_secs(whole.saturating_add(more.into())).min(MAX_DELAY))
}

/// Parses the value of `retry-after-ms` of OpenAI and Azure in milliseconds, limited to an hour; `None` if the value is
/// no finite number from 0.
#[must_use]
pub fn parse_retry_after_ms(milliseconds: &str) -> Option<Duration> {
    let number: f64 = milliseconds.trim().parse().ok()?;
    if !number.is_finite() || number.is_sign_negative() {
        return None;
    }
    let delay = Duration::try_from_secs_f64(number / 1000.0).unwrap_or(MAX_DELAY);
    Some(delay.min(MAX_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_limited() {
        for (value, seconds) in [
            ("7", Some(7)),
            (" 1.2 ", Some(2)),
            ("2.0", Some(2)),
            ("99999999", Some(3600)),
            ("Sun, 22 Nov 2026 01:00:00 GMT", None),
            ("-1", None),
            ("1.x", None),
            ("1e99", None),
            ("NaN", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after(value), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn milliseconds_are_exact_and_limited() {
        for (value, milliseconds) in [
            ("2500", Some(2500)),
            (" 0 ", Some(0)),
            ("1.5e3", Some(1500)),
            ("99999999999", Some(3_600_000)),
            ("1e99", Some(3_600_000)),
            ("1e400", None),
            ("-1", None),
            ("-0", None),
            ("NaN", None),
            ("inf", None),
            ("2500ms", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after_ms(value), milliseconds.map(Duration::from_millis), "{value}");
        }
        assert_eq!(parse_retry_after_ms("0.5"), Some(Duration::from_micros(500)));
    }
}
