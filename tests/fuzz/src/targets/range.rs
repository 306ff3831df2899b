//! Range requests for a file's contents: the range is exactly as requested, and never extends beyond the end of the
//! file.

#[path = "../../../../src/proxy/endpoint/files/range.rs"]
#[allow(missing_docs, reason = "compiled into the gateway")]
mod files;

use files::{RangeRequest, parse_range};

pub fn check(bytes: &[u8]) {
    for length in [0, 1, 100, u64::MAX] {
        if let RangeRequest::Part(range) = parse_range(bytes, length) {
            assert!(range.start < range.end && range.end <= length, "{range:?} of {length}");
        }
    }
    if let Some((numbers, _)) = bytes.split_first_chunk::<16>() {
        let (first, last) = numbers.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (first, last) = (number(first), number(last));
        if first <= last && last < u64::MAX {
            let header = format!("bytes={first}-{last}");
            assert_eq!(parse_range(header.as_bytes(), u64::MAX), RangeRequest::Part(first..last + 1));
        }
    }
}
