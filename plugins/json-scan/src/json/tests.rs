//! Comparison of the scanner with a parser, and tests of strings and insertions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use std::iter::empty;
use std::ops::ControlFlow;

fn is_json(text: &[u8]) -> bool {
    value_end(text, skip_space(text, 0)).is_some_and(|end| skip_space(text, end) == text.len())
}

#[test]
fn only_valid_json_is_accepted() {
    for good in [
        "{}",
        "[]",
        "0",
        "-0.5e+7",
        "1E9",
        "\"\"",
        "true",
        "false",
        "null",
        " [1 , {\"a\" : [ ]}]\n",
        "\"\\u12aF\\n\"",
    ] {
        assert!(is_json(good.as_bytes()), "{good}");
    }
    for bad in [
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "-",
        "tru",
        "nulll",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\t\"",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "{,}",
        "[,]",
        "1 2",
    ] {
        assert!(!is_json(bad.as_bytes()), "{bad}");
    }
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert!(is_json(nested(MAX_DEPTH as usize).as_bytes()));
    assert!(!is_json(nested(MAX_DEPTH as usize + 1).as_bytes()));
    assert!(!is_json("[".repeat(1_000_000).as_bytes()));
    let object = format!("{{\"a\":{}}}", nested(MAX_DEPTH as usize - 1));
    let mut walk = members(object.as_bytes());
    assert!(walk.next().is_some() && walk.next().is_none() && walk.is_complete());
}

#[test]
fn members_are_found_without_reading_what_follows() {
    let json = br#" { "a" : 1 , "b\"" : {"c":[1,2]} , "d": oops"#;
    let mut walk = members(json);
    assert_eq!(walk.next_raw(), Some((&b"a"[..], &b"1"[..])));
    assert_eq!(walk.next_raw(), Some((&br#"b\""#[..], &br#"{"c":[1,2]}"#[..])));
    assert_eq!(walk.next_raw(), None);
    assert!(!walk.is_complete());
    assert!(members(b"[]").next().is_none());
    let mut empty = members(b" { } ");
    assert!(empty.next().is_none() && empty.is_complete());
    let mut trailing = members(b"{}x");
    assert!(trailing.next().is_none() && !trailing.is_complete());
}

#[test]
fn elements_are_found_in_order() {
    let json = b"[ 1, \"two\" ,[3]]";
    let found: Vec<&[u8]> = elements(json).map(|range| &json[range]).collect();
    assert_eq!(found, [&b"1"[..], b"\"two\"", b"[3]"]);
    for bad in ["[1,]", "[,1]", "[1", "[1 2]", "{}"] {
        let mut walk = elements(bad.as_bytes());
        while walk.next().is_some() {}
        assert!(!walk.is_complete(), "{bad}");
    }
}

#[test]
fn members_are_inserted_before_the_last_brace() {
    let splice = |json: &'static str, members: &str| {
        String::from_utf8(insert_members(Bytes::from_static(json.as_bytes()), members.as_bytes()).concat())
            .unwrap()
    };
    assert_eq!(splice(r#"{"a":1}"#, r#""b":2"#), r#"{"a":1,"b":2}"#);
    assert_eq!(splice("{ }\n", r#""b":2"#), "{ \"b\":2}\n");
    assert_eq!(splice(r#"{"a":{}}"#, r#""b":2"#), r#"{"a":{},"b":2}"#);
    assert_eq!(splice(r#"{"a":1}"#, ""), r#"{"a":1}"#);
    assert_eq!(splice("[]", r#""b":2"#), "[]");
}

#[test]
fn lone_surrogates_are_detected_and_replaced() {
    assert_eq!(classify_string(b"plain \xc3\xa9"), StringClass::Plain);
    assert_eq!(classify_string(br"\ud83d\ude00"), StringClass::Escaped);
    for bad in [
        &br"\ud83d"[..],
        br"\ude00",
        br"\ud83dx",
        br"\ud83d\n",
        br"\ude00\ud83d",
        b"\"",
        b"\x01",
        b"\xff",
        br"\",
        br"\u12",
    ] {
        assert_eq!(classify_string(bad), StringClass::Invalid, "{}", String::from_utf8_lossy(bad));
        assert_eq!(unescape(bad), None);
    }
    assert_eq!(unescape_lossy(br"a\ud83d\ude00b\ud83dc\ude00").unwrap(), "a😀b\u{fffd}c\u{fffd}");
    assert_eq!(unescape_lossy(br"\x"), None);
    assert_eq!(unescape_lossy(b"\""), None);
}

#[test]
fn lone_surrogates_in_a_document_are_replaced() {
    for whole in [r#"{"a":"b"}"#, r#"["\\ud83d","\n\\"]"#, r#"{"\ud83d\ude00":["\ud83d\uDE00x"]}"#, ""] {
        assert_eq!(repair_surrogates(whole.as_bytes()), None, "{whole}");
    }
    for (half, whole) in [
        (r#"{"token":"\ud83d","bytes":[240]}"#, r#"{"token":"\ufffd","bytes":[240]}"#),
        (r#"["\ude00","\ud83d\n","\ud83d\ud83d\ude00"]"#, r#"["\ufffd","\ufffd\n","\ufffd\ud83d\ude00"]"#),
        (r#"["\\\ud83d"]"#, r#"["\\\ufffd"]"#),
    ] {
        assert_eq!(repair_surrogates(half.as_bytes()).unwrap(), whole.as_bytes(), "{half}");
    }
    // Invalid JSON is left unchanged.
    assert_eq!(repair_surrogates(br#"["\ud8"]"#), None);
}

#[test]
fn white_space_around_is_trimmed() {
    assert_eq!(trim(b" \r\n[1 ]\t"), b"[1 ]");
    assert_eq!(trim(b" \n"), b"");
}

/// Members of an object as [`visit_array_object_members`] reports them.
fn push_events<'a>(object: &'a [u8], nested: Option<&[u8]>, events: &mut Vec<ObjectMemberEvent<'a>>) {
    let mut members = members(object);
    while let Some((key, value)) = members.next_raw() {
        match nested {
            Some(name) if name == key && value.starts_with(b"[") => elements(value)
                .filter(|element| value[element.start] == b'{')
                .for_each(|element| push_events(&value[element], None, events)),
            Some(_) => events.push(ObjectMemberEvent::Member(key, value)),
            None => events.push(ObjectMemberEvent::NestedMember(key, value)),
        }
    }
}

#[test]
fn a_visit_ends_at_a_break_and_at_malformed_bytes() {
    let json = b"[{\"a\":1,\"n\":[{\"b\":\"x\"},{\"c\":2}]},{\"d\":3}]";
    let found = visit_array_object_members(json, empty(), b"n", |event| match event {
        ObjectMemberEvent::NestedMember(b"b", value) => ControlFlow::Break(value),
        event => {
            assert_eq!(event, ObjectMemberEvent::Member(b"a", b"1"));
            ControlFlow::Continue(())
        }
    });
    assert_eq!(found, Some(&b"\"x\""[..]));
    for length in 0..json.len() {
        let cut: Option<()> =
            visit_array_object_members(&json[..length], empty(), b"n", |_| ControlFlow::Continue(()));
        assert_eq!(cut, None);
    }
}

#[test]
fn known_strings_are_skipped_and_wrong_ones_are_not() {
    let json = br#"[{"a":"x\"y","n":[{"b":"zz"}]},{"a":"u"}]"#;
    let visit = |known: &[(usize, usize)]| {
        let mut events = Vec::new();
        let known = known.iter().map(|(start, end)| *start..*end);
        let _: Option<()> = visit_array_object_members(json, known, b"n", |event| {
            events.push(event);
            ControlFlow::Continue(())
        });
        events
    };
    let expected = visit(&[]);
    assert_eq!(expected.len(), 5);
    for known in
        [&[(6, 12), (24, 28)][..], &[(24, 28)], &[(0, 3), (6, 12), (7, 9), (23, 90)], &[(6, 11)], &[(6, 0)]]
    {
        assert_eq!(visit(known), expected, "{known:?}");
    }
}

proptest! {
    #[test]
    fn strings_come_back_as_they_went(text in any::<String>()) {
        let mut written = Vec::new();
        write_str(&mut written, &text);
        prop_assert_eq!(&serde_json::from_slice::<String>(&written).unwrap(), &text);
        prop_assert_eq!(string_end(&written, 0), Some(written.len()));
        let between = &written[1..written.len() - 1];
        prop_assert_eq!(unescape(between).unwrap(), text.as_str());
        prop_assert_ne!(classify_string(between), StringClass::Invalid);
    }

    #[test]
    fn the_scanner_accepts_the_same_json_as_a_parser(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "1", "-", "0", ".", "e", "true", "null", " ", "\\", "\\u0041", "é",
        ]), 0..14),
    ) {
        let text = parts.concat();
        prop_assert_eq!(is_json(text.as_bytes()), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
    }

    #[test]
    fn a_visit_of_objects_equals_a_scan_of_elements_and_members(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{\"a\":1}", "{\"a\":[{\"b\":2}],\"c\":{}}", "{}", "[{\"a\":1}]", "1", "\"{}\"", " , ", ",", "{\"a\":", "]", " ",
            "{\"n\": [{\"x\": \"\\\"]\"}, 1.5e-3, [[]], {\"y\" : [ ] , \"n\":[{}]}] , \"z\" : null}", "{\"n\":\"\\\\\"}",
        ]), 0..10),
    ) {
        let text = format!("[{}]", parts.concat());
        let json = text.as_bytes();
        let mut visited = Vec::new();
        let broken: Option<()> = visit_array_object_members(json, empty(), b"n", |event| {
            visited.push(event);
            ControlFlow::Continue(())
        });
        prop_assert_eq!(broken, None);
        if is_json(json) {
            let mut expected = Vec::new();
            for element in elements(json).filter(|element| json[element.start] == b'{') {
                push_events(&json[element], Some(b"n"), &mut expected);
                expected.push(ObjectMemberEvent::End);
            }
            prop_assert_eq!(visited, expected, "{}", text);
        }
    }

    #[test]
    fn inside_and_unescape_agree_on_any_bytes(
        parts in prop::collection::vec(prop::sample::select(vec![
            &b"a"[..], b"\"", b"\\", b"\\n", b"\\u0041", b"\\ud83d", b"\\ude00", b"\\u", b"\x01", b"\xc3\xa9", b"\xff", b"12345678",
        ]), 0..10),
    ) {
        let bytes = parts.concat();
        prop_assert_eq!(classify_string(&bytes) != StringClass::Invalid, unescape(&bytes).is_some());
        let quoted = [b"\"", &bytes[..], b"\""].concat();
        prop_assert_eq!(unescape(&bytes).map(|text| text.into_owned()), serde_json::from_slice::<String>(&quoted).ok());
    }
}
