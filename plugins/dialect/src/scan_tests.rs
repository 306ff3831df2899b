//! Tests that values are found in any surrounding JSON.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use proptest::prelude::*;

#[test]
fn members_and_elements_are_slices_of_the_source() {
    let source = br#" {"a" : [1, "x]\"}", {"b":[]}] ,"c\u0064":null, "e":-1.5e3}"#;
    let found: Vec<_> = members(&source[1..]).collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].1, br#"[1, "x]\"}", {"b":[]}]"#);
    assert_eq!((found[1].0.as_ref(), found[1].1), ("cd", &b"null"[..]));
    assert_eq!(found[2].1, b"-1.5e3");
    let inside: Vec<_> = elements(found[0].1).collect();
    assert_eq!(inside, [&b"1"[..], br#""x]\"}""#, br#"{"b":[]}"#]);
}

#[test]
fn broken_json_ends_the_search_and_never_panics() {
    for broken in [
        "",
        "{",
        "{\"",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":\"",
        "{\"a\":[1",
        "[",
        "[1,",
        "[\"\\",
        "{]",
        "]",
    ] {
        let _ = members(broken.as_bytes()).count();
        let _ = elements(broken.as_bytes()).count();
    }
}

#[test]
fn white_space_at_the_end_goes_and_an_escaped_backslash_stays() {
    assert_eq!(trim_string_body_end(br"so \n\t "), b"so");
    assert_eq!(trim_string_body_end(br"c:\\n"), br"c:\\n");
    assert_eq!(trim_string_body_end(br"\\\n"), br"\\");
    assert_eq!(trim_string_body_end(br" \n"), b"");
}

proptest! {
    #[test]
    fn every_member_of_any_object_is_found(texts in proptest::collection::vec("\\PC{0,40}", 0..6)) {
        let value: serde_json::Map<String, serde_json::Value> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| (format!("k{at}\"{text}"), serde_json::json!([text, {"n": text}, at])))
            .collect();
        let bytes = serde_json::to_vec_pretty(&value).unwrap();
        let found: Vec<_> = members(&bytes).map(|(key, value)| (key.into_owned(), serde_json::from_slice(value).unwrap())).collect();
        prop_assert_eq!(found, value.into_iter().collect::<Vec<_>>());
    }
}
