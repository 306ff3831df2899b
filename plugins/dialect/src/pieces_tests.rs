//! Tests that the concatenated segments are the body, and that long slices are not copied.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use proptest::prelude::*;

#[test]
fn long_source_ranges_are_shared_and_brief_ones_copied() {
    let source = Bytes::from(vec![b'x'; 5000]);
    let mut pieces = BodyBuilder::with_source(&source);
    pieces.push_str("<");
    pieces.push_source(&source[10..4000]);
    pieces.push_integer(u64::MAX);
    pieces.push_source(&source[..3]);
    pieces.push_integer(0);
    let done = pieces.finish();
    assert_eq!(done.len(), 3);
    assert_eq!(done[1].as_ptr(), source[10..].as_ptr());
    assert_eq!(&done[2][..], b"18446744073709551615xxx0");
}

#[test]
fn bytes_from_elsewhere_are_copied() {
    let source = Bytes::from(vec![b'x'; 5000]);
    let other = vec![b'y'; 5000];
    let mut pieces = BodyBuilder::with_source(&source);
    pieces.push_source(&other);
    assert_eq!(pieces.finish().concat(), other);
}

#[test]
fn json_in_a_string_is_compact_and_keeps_order_and_inner_space() {
    let mut out = Vec::new();
    write_escaped_json(br#"{ "b" : [ 1, "a \" \\ b" ],"a": "\n" }"#, &mut out);
    assert_eq!(out, br#"{\"b\":[1,\"a \\\" \\\\ b\"],\"a\":\"\\n\"}"#);
}

proptest! {
    #[test]
    fn json_in_a_string_parses_back_to_the_same_value(text in "\\PC{0,60}", number in any::<i64>()) {
        let value = serde_json::json!({"z": [text, {"a": text}], "n": number});
        let mut out = vec![b'"'];
        write_escaped_json(&serde_json::to_vec_pretty(&value).unwrap(), &mut out);
        out.push(b'"');
        let inside: String = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(&inside, &serde_json::to_string(&value).unwrap());
    }
}
