//! Comparison of the scanner with `serde_json`, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::{JsonError, JsonErrorKind, JsonTape, JsonValue, StructureLimits, TapeNode, ValueKind};
use proptest::prelude::*;

/// Scans with these opaque members: `schema` in any object, and `input` in any object but the outermost.
fn scan(bytes: &[u8], bounds: StructureLimits) -> Result<Vec<TapeNode>, (JsonError, Vec<TapeNode>)> {
    super::scan(bytes, bounds, |name, depth| name == b"schema" || (name == b"input" && depth > 1))
}

const BOUNDS: StructureLimits = StructureLimits { depth: 100, nodes: 1 << 20 };

fn accepts(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && scan(bytes, BOUNDS).is_ok()
}

/// Document rebuilt from the tape as a `serde_json` value.
fn rebuilt(value: JsonValue<'_>) -> serde_json::Value {
    match value.kind() {
        ValueKind::Object if value.members().next().is_some() => {
            value.members().map(|(key, member)| (key.text().into_owned(), rebuilt(member))).collect()
        }
        ValueKind::Array if value.items().next().is_some() => value.items().map(rebuilt).collect(),
        ValueKind::String | ValueKind::EscapedString => value.text().into_owned().into(),
        _ => serde_json::from_str(value.raw()).unwrap(),
    }
}

fn agrees(bytes: &[u8]) {
    let expected = serde_json::from_slice::<serde_json::Value>(bytes);
    assert_eq!(accepts(bytes), expected.is_ok(), "{:?}: {expected:?}", String::from_utf8_lossy(bytes));
    if let Ok(expected) = expected {
        let nodes = scan(bytes, BOUNDS).unwrap();
        let tape = JsonTape { text: std::str::from_utf8(bytes).unwrap(), nodes: &nodes };
        assert_eq!(rebuilt(tape.root().unwrap()), expected, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn it_accepts_exactly_what_serde_json_accepts() {
    let long = "x".repeat(200);
    let cases = [
        "",
        " ",
        "{}",
        "[]",
        " [ ] ",
        "{ }",
        "null",
        "nul",
        "nulll",
        "true",
        "tru",
        "false",
        "fals",
        "NaN",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1E+5",
        "1e-5",
        "1e",
        "1e+",
        "1e999",
        "-1e999",
        "1e-999",
        "0x10",
        "+1",
        "1.5.5",
        "123456789012345678901234567890",
        "- 1",
        "[1 2]",
        "[1,]",
        "[,1]",
        "[1,2",
        "[",
        "]",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\" : 1 , \"b\" : [ 1 , { } ] }",
        "{\"a\":1}}",
        "{} {}",
        "[]x",
        "\"",
        "\"a",
        "\"a\"",
        "\"\\\"",
        "\"\\\\\"",
        "\"\\n\\t\\r\\b\\f\\/\\\"\\\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u00e9\"",
        "\"\\u00E9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\n\"",
        "\"\\ud83d\\u0041\"",
        "\"\\ud83dx\"",
        "\"\\uzzzz\"",
        "\"\\u+123\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"a\u{0}b\"",
        "\"\u{7f}\"",
        "\"é\"",
        "\"😀\"",
        "\u{feff}{}",
        "{\"input\":{\"a\":[1,{\"b\":2}]},\"x\":1}",
        "[{\"input\":5},{\"x\":{\"y\":1}}]",
        "{\"parameters\":[],\"schema\":{\"schema\":{}},\"z\":[{}]}",
        "{\"inp\\u0075t\":{\"a\":1}}",
        "{\"a\":1\u{b}}",
    ];
    for case in cases {
        agrees(case.as_bytes());
        // The same string at a later offset, across blocks of 64 bytes.
        for pad in [0, 1, 3, 30, 50, 58, 60, 61, 62, 63, 64, 65] {
            let lead = long.get(..pad).unwrap();
            agrees(format!("[\"{lead}\",{case},\"{long}\"]").as_bytes());
            if let Some(inner) = case.strip_prefix('"').and_then(|case| case.strip_suffix('"')) {
                agrees(format!("\"{lead}{inner}{long}\"").as_bytes());
                agrees(format!("\"{lead}{inner}{inner}").as_bytes());
            }
        }
    }
    agrees(b"\"\xff\"");
    agrees(b"\"\xed\xa0\x80\"");
    agrees(b"{\xc3\xa9}");
}

#[test]
fn each_byte_of_a_string_is_judged_as_serde_json_judges_it() {
    for position in [0, 1, 15, 16, 17, 62, 63, 64, 65, 127] {
        for byte in 0..=255_u8 {
            let mut body = vec![b'a'; 130];
            body[position] = byte;
            let quoted = [b"\"".as_slice(), &body, b"\""].concat();
            agrees(&quoted);
            body[position] = b'\\';
            body[position + 1] = byte;
            agrees(&[b"\"".as_slice(), &body, b"\""].concat());
        }
    }
}

fn depth(open: &str, close: &str, depth: usize, bound: usize) -> Result<(), &'static str> {
    let document = format!("{}{}", open.repeat(depth), close.repeat(depth));
    scan(document.as_bytes(), StructureLimits { depth: bound, nodes: usize::MAX })
        .map(|_| ())
        .map_err(|(broken, _)| broken.reason)
}

#[test]
fn depth_is_bounded_and_costs_no_machine_stack() {
    assert_eq!(depth("[", "]", 128, 128), Ok(()));
    assert_eq!(depth("[", "]", 129, 128), Err("objects and arrays nested deeper than allowed"));
    assert_eq!(depth("[", "]", 10_000, 128), Err("objects and arrays nested deeper than allowed"));
    assert_eq!(depth("[", "]", 2_000_000, 3_000_000), Ok(()));
    // The limit also counts the depth of values that are not recorded, inside opaque ones.
    let inside = format!("{{\"input\":{}{}}}", "[".repeat(128), "]".repeat(128));
    assert!(scan(inside.as_bytes(), BOUNDS).is_err());
}

#[test]
fn the_number_of_recorded_values_is_bounded_and_opaque_ones_count_once() {
    let bounds = StructureLimits { depth: 8, nodes: 5 };
    assert!(scan(b"[1,2,3,4]", bounds).is_ok());
    assert_eq!(scan(b"[1,2,3,4,5]", bounds).unwrap_err().0.reason, "more values than allowed");
    assert!(scan(b"{\"schema\":[1,2,3,4,5,6,7,8,{\"a\":[1]}],\"b\":1}", bounds).is_ok());
    // `input` is opaque in an inner object, such as the arguments of a tool call. It is not opaque in the outermost
    // object, such as an embeddings request.
    assert!(scan(b"[{\"input\":[1,2,3,4,5,6,7,8]}]", bounds).is_ok());
    assert!(scan(b"{\"input\":[1,2,3,4,5,6,7,8]}", bounds).is_err());
}

#[test]
fn only_text_that_is_not_json_is_a_syntax_error() {
    let bounds = StructureLimits { depth: 3, nodes: 6 };
    for (document, kind) in [
        ("[1,]", JsonErrorKind::Syntax),
        ("[01]", JsonErrorKind::Syntax),
        (r#"["\u00e"]"#, JsonErrorKind::Syntax),
        ("[1e400]", JsonErrorKind::Unrepresentable),
        (r#"["\udc00"]"#, JsonErrorKind::Unrepresentable),
        (r#"["\ud800\n"]"#, JsonErrorKind::Unrepresentable),
        ("[[[[]]]]", JsonErrorKind::TooDeep),
        (r#"{"schema":[[[]]]}"#, JsonErrorKind::TooDeep),
        ("[1,2,3,4,5,6]", JsonErrorKind::TooManyValues),
    ] {
        let broken = scan(document.as_bytes(), bounds).unwrap_err().0;
        assert_eq!(broken.kind, kind, "{document}: {}", broken.reason);
    }
}

fn documents() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(|number| serde_json::json!(number)),
        any::<String>().prop_map(Into::into),
        "[ -~\\n\\t\\\\\"é😀]{0,150}".prop_map(Into::into),
    ];
    let key = prop_oneof!["[a-z\"\\\\é]{0,6}", Just("input".to_owned()), Just("schema".to_owned())];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::hash_map(key.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_document_is_read_as_serde_json_reads_it(document in documents(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        agrees(text.unwrap().as_bytes());
    }

    #[test]
    fn a_damaged_document_is_judged_as_serde_json_judges_it(
        document in documents(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4),
    ) {
        let mut bytes = serde_json::to_vec(&document).unwrap();
        for (at, byte, remove) in flips {
            if bytes.is_empty() { break }
            let at = at.index(bytes.len());
            if remove { bytes.remove(at); } else { bytes[at] = byte }
        }
        agrees(&bytes);
    }

    #[test]
    fn any_bytes_are_judged_as_serde_json_judges_them(bytes in "[\\[\\]{},:\"\\\\ue0-9a-f.+ tn-]{0,24}") {
        agrees(bytes.as_bytes());
    }
}

#[test]
fn known_base64_has_only_letters_of_base64() {
    for length in [0, 64, 4_000, 4_112, 4_200, 4_239, 4_240, 8_400, 20_000, 80_000] {
        for (foreign, at) in
            [("-", 0), ("-", 4_150), ("é", 8_300), ("=", length), ("\\/", 6_000), ("-", length / 2)]
        {
            for close in
                ["", " ", "\n                                                                         "]
            {
                let mut text = "Ab9+/z".repeat(length / 6 + 1);
                text.truncate(length);
                text.insert_str(at.min(length), foreign);
                let document = format!("\"{text}\"{close}");
                let nodes = scan(document.as_bytes(), BOUNDS).unwrap();
                let tape = JsonTape { text: &document, nodes: &nodes };
                let known = tape.root().unwrap().base64_range();
                let letters = &text.as_bytes()[known.clone()];
                let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
                assert!(letters.iter().all(is_letter), "{length} {foreign} {at}");
                if length == 20_000 && foreign == "=" {
                    assert!(known.start < 4_200 && known.end >= text.len() - 64, "{known:?}");
                }
            }
        }
    }
}

#[test]
fn long_strings_are_found_wherever_they_are() {
    let document = format!(
        "[{{\"{}\":[1,\"{}\"]}},\"short\",\"\\n{}\"]",
        "k".repeat(50),
        "v".repeat(60),
        "w".repeat(60)
    );
    let nodes = scan(document.as_bytes(), BOUNDS).unwrap();
    let tape = JsonTape { text: &document, nodes: &nodes };
    let found: Vec<_> =
        tape.root().unwrap().long_string_ranges(52).map(|range| document[range].chars().nth(3)).collect();
    assert_eq!(found, [Some('k'), Some('v'), Some('w')]);
    let inside = tape.root().unwrap().items().next().unwrap();
    assert_eq!(inside.long_string_ranges(53).count(), 1);
}

#[test]
fn interoperable_json_has_one_meaning_in_every_parser() {
    for json in [
        r#"{"a":{"b":1},"c":{"b":2},"d":[{"b":1e308},{"b":"\ud83d\ude00"}]}"#,
        "[]",
        " 1 ",
        r#"{"":{},"a":123456789012345678901234567890}"#,
    ] {
        assert!(super::is_interoperable(json.as_bytes()), "{json}");
    }
    for json in [
        "1e400",
        "[-1e400]",
        r#"{"a":"\ud800"}"#,
        r#"{"\udc00":1}"#,
        r#"{"a":1,"a":1}"#,
        r#"[{"b":{"a":1,"\u0061":2}}]"#,
        "",
        "1 2",
        "01",
        "NaN",
    ] {
        assert!(!super::is_interoperable(json.as_bytes()), "{json}");
    }
    assert!(!super::is_interoperable(b"\"\xff\""));
    let nested = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
    assert!(super::is_interoperable(nested(128).as_bytes()));
    assert!(!super::is_interoperable(nested(100_000).as_bytes()));
}
