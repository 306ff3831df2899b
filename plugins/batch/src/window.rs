//! The completion window: how it is written, and when it is over. It is kept as the moment when it ends, in
//! wall time, so that a restart neither lengthens nor shortens it.

/// What a client that names none gets.
pub const DEFAULT: &str = "24h";
/// The longest, in seconds.
const MOST: u64 = 7 * 86_400;

/// The seconds of a window such as `24h` or `7d`.
///
/// # Errors
/// The sentence that says what was expected.
pub fn seconds(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str =
        "completion_window: expected whole hours or days from \"1h\" to \"7d\", such as \"24h\"";
    let unit = match text.as_bytes().last() {
        Some(b'h') => 3_600,
        Some(b'd') => 86_400,
        _ => return Err(EXPECTED),
    };
    let digits = text.get(..text.len() - 1).unwrap_or_default();
    if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EXPECTED);
    }
    let number: u64 = digits.parse().map_err(|_| EXPECTED)?;
    Some(number * unit).filter(|seconds| (3_600..=MOST).contains(seconds)).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hours_and_days_are_read() {
        assert_eq!(seconds("24h"), Ok(86_400));
        assert_eq!(seconds("1h"), Ok(3_600));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(seconds("168h"), Ok(604_800));
        assert_eq!(seconds("001h"), Ok(3_600));
    }

    #[test]
    fn what_is_no_window_is_told_what_one_is() {
        for wrong in [
            "", "h", "d", "0h", "169h", "8d", "24", "24m", "-1h", "+1h", "1.5h", "1 h", "9999999h", "٢h",
            "1h1",
        ] {
            assert!(seconds(wrong).unwrap_err().contains("\"24h\""), "{wrong}");
        }
    }
}
