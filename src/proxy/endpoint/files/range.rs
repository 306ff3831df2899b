//! `Range` header (RFC 9110): one range or all bytes.

use std::ops::Range;

/// Result of a `Range` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All bytes: there is no range, or it is invalid.
    Whole,
    /// Range of bytes.
    Part(Range<u64>),
    /// Range outside of the contents, which is not satisfiable.
    Nothing,
}

/// Parses the header for contents of this length. Several ranges are answered with all bytes, as RFC 9110 allows.
pub fn wanted(header: &[u8], length: u64) -> Wanted {
    let parsed = std::str::from_utf8(header).ok().and_then(|text| {
        let (unit, range) = text.trim().split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some((first.trim(), last.trim()))
    });
    let Some((first, last)) = parsed else { return Wanted::Whole };
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
    match (first.is_empty(), last.is_empty()) {
        (true, true) => Wanted::Whole,
        (true, false) => match number(last) {
            None => Wanted::Whole,
            Some(Some(0)) => Wanted::Nothing,
            Some(_) if length == 0 => Wanted::Nothing,
            Some(most) => Wanted::Part(length.saturating_sub(most.unwrap_or(u64::MAX))..length),
        },
        (false, open) => {
            let last = if open { Some(None) } else { number(last) };
            let (Some(first), Some(last)) = (number(first), last) else { return Wanted::Whole };
            let end = last.map_or(length, |last| last.saturating_add(1).min(length));
            match first {
                Some(first) if last.is_some_and(|last| last < first) => Wanted::Whole,
                Some(first) if first < length => Wanted::Part(first..end),
                _ => Wanted::Nothing,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_clients_write_them() {
        for (header, expected) in [
            ("bytes=0-9", Wanted::Part(0..10)),
            ("bytes=5-", Wanted::Part(5..100)),
            ("bytes=-10", Wanted::Part(90..100)),
            ("bytes=-1000", Wanted::Part(0..100)),
            ("bytes=99-200", Wanted::Part(99..100)),
            ("Bytes = 0-0", Wanted::Part(0..1)),
            ("bytes=0-99999999999999999999999", Wanted::Part(0..100)),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=99999999999999999999999-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("", Wanted::Whole),
            ("bytes=9-5", Wanted::Whole),
            ("bytes=0-1,4-5", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
        ] {
            assert_eq!(wanted(header.as_bytes(), 100), expected, "{header}");
        }
        assert_eq!(wanted(b"bytes=0-", 0), Wanted::Nothing);
        assert_eq!(wanted(b"bytes=-5", 0), Wanted::Nothing);
    }
}
