//! `Range` header (RFC 9110): one range or all bytes.

use std::ops::Range;

/// Part of a file that a `Range` header requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// All bytes: there is no range, or it is invalid.
    Full,
    /// Range of bytes within the file.
    Part(Range<u64>),
    /// Range outside of the contents, which is not satisfiable.
    Unsatisfiable,
}

/// Parses the header for contents of this length. Several ranges are answered with all bytes, as RFC 9110 allows.
pub fn parse_range(header: &[u8], length: u64) -> RangeRequest {
    let parsed = std::str::from_utf8(header).ok().and_then(|text| {
        let (unit, range) = text.trim().split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some((first.trim(), last.trim()))
    });
    let Some((first, last)) = parsed else { return RangeRequest::Full };
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
    match (first.is_empty(), last.is_empty()) {
        (true, true) => RangeRequest::Full,
        (true, false) => match number(last) {
            None => RangeRequest::Full,
            Some(Some(0)) => RangeRequest::Unsatisfiable,
            Some(_) if length == 0 => RangeRequest::Unsatisfiable,
            Some(most) => RangeRequest::Part(length.saturating_sub(most.unwrap_or(u64::MAX))..length),
        },
        (false, open) => {
            let last = if open { Some(None) } else { number(last) };
            let (Some(first), Some(last)) = (number(first), last) else { return RangeRequest::Full };
            let end = last.map_or(length, |last| last.saturating_add(1).min(length));
            match first {
                Some(first) if last.is_some_and(|last| last < first) => RangeRequest::Full,
                Some(first) if first < length => RangeRequest::Part(first..end),
                _ => RangeRequest::Unsatisfiable,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_clients_write_them() {
        for (header, expected) in [
            ("bytes=0-9", RangeRequest::Part(0..10)),
            ("bytes=5-", RangeRequest::Part(5..100)),
            ("bytes=-10", RangeRequest::Part(90..100)),
            ("bytes=-1000", RangeRequest::Part(0..100)),
            ("bytes=99-200", RangeRequest::Part(99..100)),
            ("Bytes = 0-0", RangeRequest::Part(0..1)),
            ("bytes=0-99999999999999999999999", RangeRequest::Part(0..100)),
            ("bytes=100-", RangeRequest::Unsatisfiable),
            ("bytes=99999999999999999999999-", RangeRequest::Unsatisfiable),
            ("bytes=-0", RangeRequest::Unsatisfiable),
            ("", RangeRequest::Full),
            ("bytes=9-5", RangeRequest::Full),
            ("bytes=0-1,4-5", RangeRequest::Full),
            ("bytes=-", RangeRequest::Full),
            ("lines=0-1", RangeRequest::Full),
            ("bytes=a-b", RangeRequest::Full),
        ] {
            assert_eq!(parse_range(header.as_bytes(), 100), expected, "{header}");
        }
        assert_eq!(parse_range(b"bytes=0-", 0), RangeRequest::Unsatisfiable);
        assert_eq!(parse_range(b"bytes=-5", 0), RangeRequest::Unsatisfiable);
    }
}
