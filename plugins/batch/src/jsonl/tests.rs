//! Tests of the messages of all validation errors, and of their independence from chunk boundaries.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::file_validator::MAX_SKIPPED_BYTES;
use super::*;
use proptest::prelude::*;

/// Maximum line length in these tests.
const MOST_LINE: usize = 1 << 20;

/// List of paths as long as the gateway's, so that messages have the same form.
const URLS: AllowedPaths =
    &["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/rerank", "/v1/images/generations"];

fn good(id: &str) -> String {
    format!(r#"{{"custom_id":"{id}","method":"POST","url":"/v1/chat/completions","body":{{"model":"m"}}}}"#)
}

fn check(file: &[u8]) -> Result<FileSummary, FileErrors> {
    let mut lines = FileValidator::new(URLS, MOST_LINE);
    lines.push(file);
    lines.end()
}

/// Returns the only error of a file.
fn one(file: &str) -> LineError {
    let mut mistakes = check(file.as_bytes()).unwrap_err();
    assert_eq!((mistakes.count, mistakes.first.len()), (1, 1), "{mistakes:?}");
    mistakes.first.remove(0)
}

fn code_and_message(line: &str) -> (&'static str, String) {
    let mistake = one(&format!("{}\n{line}\n{}\n", good("a"), good("b")));
    assert_eq!(mistake.line, 2);
    (mistake.code, mistake.to_sentence())
}

fn with(field: &str, value: &str) -> String {
    let mut fields = vec![
        ("custom_id", "\"x\""),
        ("method", "\"POST\""),
        ("url", "\"/v1/chat/completions\""),
        ("body", "{}"),
    ];
    match fields.iter_mut().find(|(name, _)| *name == field) {
        Some(known) if value.is_empty() => known.1 = "",
        Some(known) => known.1 = value,
        None => fields.push((field, value)),
    }
    let members: Vec<_> = fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn a_sound_file_is_counted_and_its_line_read_without_a_copy() {
    let file = format!("{}\n{}", good("a"), good("b"));
    assert_eq!(check(file.as_bytes()).unwrap(), FileSummary { lines: 2, url: "/v1/chat/completions" });
    let text = with("body", r#" { "messages" : [ ] } "#);
    let read = parse_line(text.as_bytes(), URLS).unwrap();
    assert_eq!((&*read.custom_id, read.url), ("x", "/v1/chat/completions"));
    assert_eq!(read.body, br#"{ "messages" : [ ] }"#);
}

#[test]
fn each_mistake_has_a_sentence_of_its_own() {
    let deep = format!("{{\"body\":{}{}}}", "[".repeat(129), "]".repeat(129));
    let not_read = "line 2: expected a JSON object on one line, but this is not JSON or is nested deeper than 128 levels.";
    let cases = [
        ("{", "invalid_json_line", not_read),
        ("[1,", "invalid_json_line", not_read),
        ("hello", "invalid_json_line", not_read),
        ("[1]", "not_an_object", "line 2: expected a JSON object, got an array."),
        ("\"a\"", "not_an_object", "line 2: expected a JSON object, got a string."),
        ("{} {}", "invalid_json_line", not_read),
        (&deep, "invalid_json_line", not_read),
    ];
    for (line, code, sentence) in cases {
        assert_eq!(code_and_message(line), (code, sentence.to_owned()));
    }
    let fields = [
        ("custom_id", "", "missing_field", "line 2: custom_id: expected, but it is missing."),
        ("body", "", "missing_field", "line 2: body: expected, but it is missing."),
        ("custom_id", "7", "invalid_custom_id", "line 2: custom_id: expected a string, got a number."),
        (
            "custom_id",
            "\"\"",
            "invalid_custom_id",
            "line 2: custom_id: expected at least one character, got none.",
        ),
        (
            "custom_id",
            r#""\ud83d""#,
            "invalid_custom_id",
            "line 2: custom_id: expected whole characters, got half of a surrogate pair.",
        ),
        ("method", "\"GET\"", "invalid_method", "line 2: method: expected \"POST\", got \"GET\"."),
        ("method", "null", "invalid_method", "line 2: method: expected \"POST\", got null."),
        (
            "url",
            "\"/v1/responses\"",
            "invalid_url",
            "line 2: url: expected /v1/chat/completions, /v1/messages, /v1/embeddings, /v1/rerank or \
             /v1/images/generations, got \"/v1/responses\".",
        ),
        (
            "url",
            "\"/v1/embeddings\"",
            "mixed_urls",
            "line 2: url: expected /v1/chat/completions as in line 1, got /v1/embeddings.",
        ),
        ("body", "[]", "invalid_body", "line 2: body: expected an object, got an array."),
        ("body", "\"{}\"", "invalid_body", "line 2: body: expected an object, got a string."),
        (
            "body",
            r#"{"stream":true}"#,
            "stream_not_supported",
            "line 2: body.stream: expected false or nothing: lines of a batch are not streamed.",
        ),
        (
            "temperature",
            "1",
            "unknown_field",
            "line 2: expected custom_id, method, url and body only, got \"temperature\".",
        ),
        (
            "custom_id",
            "\"a\"",
            "duplicate_custom_id",
            "line 2: custom_id: expected a unique custom_id, but line 1 has the same.",
        ),
    ];
    for (field, value, code, sentence) in fields {
        assert_eq!(code_and_message(&with(field, value)), (code, sentence.to_owned()));
    }
    let twice = r#"{"custom_id":"x","custom_id":"y","method":"POST","url":"/v1/rerank","body":{}}"#;
    assert_eq!(code_and_message(twice).0, "repeated_field");
    let long = with("custom_id", &format!("\"{}\"", "x".repeat(MAX_CUSTOM_ID_BYTES + 1)));
    assert_eq!(code_and_message(&long).1, "line 2: custom_id: expected at most 512 bytes, got 513.");
    assert!(check(with("custom_id", &format!("\"{}\"", "x".repeat(MAX_CUSTOM_ID_BYTES))).as_bytes()).is_ok());
}

#[test]
fn escapes_hide_neither_a_stream_nor_a_second_name() {
    assert_eq!(code_and_message(&with("body", r#"{"\u0073tream":true}"#)).0, "stream_not_supported");
    assert_eq!(code_and_message(&with("custom_id", r#""\u0061""#)).0, "duplicate_custom_id");
    for body in [r#"{"stream":false}"#, r#"{"a":{"stream":true}}"#, r#"{"stream_options":true,"p":"stream"}"#]
    {
        assert!(check(with("body", body).as_bytes()).is_ok(), "{body}");
    }
}

#[test]
fn a_mark_crlf_and_blank_lines_at_the_end_are_forgiven_and_others_are_not() {
    let file = format!("\u{feff}{}\r\n{}\r\n\r\n  \n", good("a"), good("b"));
    assert_eq!(check(file.as_bytes()).unwrap().lines, 2);
    let mistake = one(&format!("{}\n\n\n{}", good("a"), good("b")));
    assert_eq!((mistake.line, mistake.code), (2, "blank_line"));
    for empty in ["", "\n", "\u{feff}", " \r\n\t\n"] {
        let mistake = one(empty);
        assert_eq!((mistake.line, mistake.code), (0, "empty_file"), "{empty:?}");
        assert_eq!(mistake.to_sentence(), "expected at least one line that is not blank, got none.");
    }
}

#[test]
fn invalid_utf8_and_deep_nesting_are_rejected_as_lines() {
    let bad = [good("a").as_bytes(), b"\n{\"custom_id\":\"\xff\"}\n"].concat();
    let mistakes = check(&bad).unwrap_err();
    assert_eq!((mistakes.first[0].line, mistakes.first[0].code), (2, "invalid_utf8"));
    let deep = with("body", &format!("{}{}{}", r#"{"a":"#, "[".repeat(200_000), "]".repeat(200_000)));
    assert_eq!(code_and_message(&deep).0, "invalid_json_line");
}

#[test]
fn lines_have_a_longest_and_files_a_most() {
    let padded = |length: usize| {
        let line = good("x");
        line.replacen("\"m\"", &format!("\"{}\"", "m".repeat(length - line.len() + 1)), 1)
    };
    assert_eq!(padded(MOST_LINE).len(), MOST_LINE);
    assert_eq!(check(format!("\u{feff}{}\r\n", padded(MOST_LINE)).as_bytes()).unwrap().lines, 1);
    assert_eq!(
        code_and_message(&padded(MOST_LINE + 1)).1,
        "line 2: expected at most 1048576 bytes, got more."
    );
    assert_eq!(code_and_message(&padded(MOST_LINE * 3)).0, "line_too_long");
    let mut file: String = (0..MAX_REQUESTS).map(|i| good(&i.to_string()) + "\n").collect();
    assert_eq!(check(file.as_bytes()).unwrap().lines, MAX_REQUESTS);
    file += &good("one more");
    let mistake = one(&(file + "\nnot even JSON\n"));
    assert_eq!((mistake.line, mistake.code), (50_001, "too_many_lines"));
    assert_eq!(mistake.to_sentence(), "line 50001: expected at most 50000 lines, got more.");
}

#[test]
fn the_first_mistakes_are_listed_and_the_rest_counted() {
    let file = "{}\n".repeat(70);
    let mistakes = check(file.as_bytes()).unwrap_err();
    assert_eq!((mistakes.count, mistakes.first.len()), (70, MAX_REPORTED_ERRORS));
    let refusal = mistakes.to_api_error("file");
    assert_eq!(
        refusal.message,
        "file: line 1: custom_id: expected, but it is missing. There are 69 more errors."
    );
    assert_eq!(refusal.details["line"], 1);
    assert_eq!(refusal.details["errors"][19]["line"], 20);
}

#[test]
fn memory_is_bounded_by_a_line() {
    let mut lines = FileValidator::new(URLS, MOST_LINE);
    for _ in 0..200 {
        lines.push(&[b'x'; 64 << 10]);
        assert!(lines.buffer_capacity() <= 4 * MOST_LINE);
    }
    assert_eq!(lines.end().unwrap_err().first[0].code, "line_too_long");
}

#[test]
fn a_long_line_is_invalid_before_its_end_and_endless_beyond_a_bound() {
    let mut lines = FileValidator::new(URLS, MOST_LINE);
    lines.push(&vec![b'x'; MOST_LINE]);
    assert!(!lines.has_error(), "it may end now");
    lines.push(&[b'x'; 8]);
    assert!(lines.has_error() && !lines.exceeds_skip_limit());
    lines.push(&vec![b'x'; MAX_SKIPPED_BYTES - 8]);
    assert!(!lines.exceeds_skip_limit());
    lines.push(b"\nx");
    assert!(lines.has_error() && !lines.exceeds_skip_limit(), "the next is another");
    lines.push(&vec![b'x'; MOST_LINE + MAX_SKIPPED_BYTES]);
    assert!(lines.exceeds_skip_limit());
    let codes: Vec<_> =
        lines.end().unwrap_err().first.iter().map(|mistake| (mistake.line, mistake.code)).collect();
    assert_eq!(codes, [(1, "line_too_long"), (2, "line_too_long")]);
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        "[a-c]".prop_map(|id| good(&id)),
        Just(with("url", "\"/v1/embeddings\"")),
        Just(with("body", r#"{"stream":true,"x":"\u00e9é"}"#)),
        Just(String::new()),
        Just("\r".to_owned()),
        "[ -~]{0,20}",
        Just(format!("{{\"x\":\"{}\"}}", "y".repeat(40))),
    ];
    prop::collection::vec(piece, 0..12)
}

proptest! {
    #[test]
    fn findings_do_not_depend_on_the_cuts(
        pieces in pieces(),
        mark in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let text = format!("{}{}", if mark { "\u{feff}" } else { "" }, pieces.join("\n"));
        let bytes = text.as_bytes();
        let whole = check(bytes);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let mut lines = FileValidator::new(URLS, MOST_LINE);
        for pair in ends.windows(2) {
            lines.push(&bytes[pair[0]..pair[1]]);
        }
        prop_assert_eq!(lines.end(), whole.clone());
        let mut single = FileValidator::new(URLS, MOST_LINE);
        bytes.iter().for_each(|byte| single.push(&[*byte]));
        prop_assert_eq!(single.end(), whole);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes).ok();
        parse_line(&bytes, URLS).ok();
    }

    /// Checks that the line parser reads the values that serde_json has written.
    #[test]
    fn a_line_reads_as_a_parser_would(id in "\\PC{1,20}", body in "\\PC{0,40}") {
        let value = serde_json::json!({"custom_id": id, "method": "POST", "url": "/v1/rerank", "body": {"q": body}});
        let text = value.to_string();
        let read = parse_line(text.as_bytes(), URLS).unwrap();
        prop_assert_eq!(&*read.custom_id, id.as_str());
        let body: serde_json::Value = serde_json::from_slice(read.body).unwrap();
        prop_assert_eq!(body, value["body"].clone());
    }
}
