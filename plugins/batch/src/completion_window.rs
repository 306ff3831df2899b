//! Completion window: its syntax and its length. A batch stores the end of the window as wall-clock time, so that a
//! restart does not change it.

/// Default completion window.
pub const DEFAULT_WINDOW: &str = "24h";
/// Maximum completion window, in seconds.
const MAX_SECONDS: u64 = 7 * 86_400;

/// Parses a window such as `24h`, `1.5d` or `7d` to whole seconds.
///
/// # Errors
/// Returns a sentence with the expected format.
pub fn parse_window(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "completion_window: expected hours or days from \"1h\" to \"7d\", such as \"24h\"";
    parse_seconds(text).filter(|seconds| (3_600..=MAX_SECONDS).contains(seconds)).ok_or(EXPECTED)
}

fn parse_seconds(text: &str) -> Option<u64> {
    let (number, unit) = match text.as_bytes().last()? {
        b'h' => (text.strip_suffix('h')?, 3_600),
        b'd' => (text.strip_suffix('d')?, 86_400),
        _ => return None,
    };
    let (whole, fraction) =
        number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let plain =
        |digits: &str| (1..=6).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let fraction = fraction.map_or(Some("0"), |digits| Some(digits).filter(|digits| plain(digits)))?;
    let whole: u64 = Some(whole).filter(|digits| plain(digits))?.parse().ok()?;
    let scale = 10u64.pow(u32::try_from(fraction.len()).ok()?);
    let parts = fraction.parse::<u64>().ok()? * unit;
    parts.is_multiple_of(scale).then(|| whole * unit + parts / scale)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hours_and_days_are_read() {
        assert_eq!(parse_window("24h"), Ok(86_400));
        assert_eq!(parse_window("1h"), Ok(3_600));
        assert_eq!(parse_window("7d"), Ok(604_800));
        assert_eq!(parse_window("168h"), Ok(604_800));
        assert_eq!(parse_window("001h"), Ok(3_600));
        assert_eq!(parse_window("1.5h"), Ok(5_400));
        assert_eq!(parse_window("0.5d"), Ok(43_200));
        assert_eq!(parse_window("1.0000h"), Ok(3_600));
        assert_eq!(parse_window("6.999988d"), Err(parse_window("").unwrap_err()), "no whole second");
    }

    #[test]
    fn an_invalid_window_gets_an_error_with_the_expected_form() {
        for invalid in [
            "",
            "h",
            "d",
            "0h",
            "169h",
            "8d",
            "24",
            "24m",
            "-1h",
            "+1h",
            "1 h",
            "9999999h",
            "٢h",
            "1h1",
            ".5d",
            "1.h",
            ".h",
            "1..5h",
            "1.5.5h",
            "0.99h",
            "7.01d",
            "168.5h",
            "1.00001h",
            "1.2345678h",
        ] {
            assert!(parse_window(invalid).unwrap_err().contains("\"24h\""), "{invalid}");
        }
    }
}
