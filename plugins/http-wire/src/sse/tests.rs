//! Tests that the decoder gives the same events for any split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use proptest::prelude::*;

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, cap: usize) -> (Vec<SseEvent>, bool) {
    let mut decoder = SseDecoder::new(cap);
    let (mut events, mut too_long) = (Vec::new(), false);
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.next() {
            match event {
                Ok(event) => events.push(event),
                Err(EventTooLong) => too_long = true,
            }
        }
    }
    events.extend(decoder.end());
    (events, too_long)
}

fn event(name: Option<&str>, data: &str, comment: Option<&str>) -> SseEvent {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    SseEvent { event: name.map(bytes), data: bytes(data), comment: comment.map(bytes), error: None }
}

fn error_event(error: &str) -> SseEvent {
    SseEvent { error: Some(Bytes::copy_from_slice(error.as_bytes())), ..SseEvent::default() }
}

fn all_cuts(stream: &str, expected: &[SseEvent]) {
    let stream = stream.as_bytes();
    assert_eq!(decode([stream], 1000).0, expected, "whole");
    assert_eq!(decode(stream.chunks(1), 1000).0, expected, "byte by byte");
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        assert_eq!(decode([first, second], 1000).0, expected, "cut at {at}");
    }
}

#[test]
fn lines_end_in_lf_crlf_or_cr() {
    let expected =
        [event(None, "one", None), event(Some("e"), "two\nthree", None), event(None, "", Some("c"))];
    let stream = "data: one\n\nevent: e\ndata: two\ndata: three\n\n: c\n\n";
    for line in ["\n", "\r\n", "\r"] {
        all_cuts(&stream.replace('\n', line), &expected);
    }
    all_cuts(
        "\u{feff}data: one\r\n\r\ndata: two\n\r\n",
        &[event(None, "one", None), event(None, "two", None)],
    );
}

#[test]
fn one_space_after_the_colon_is_dropped_and_no_more() {
    all_cuts(
        "data:a\n\ndata:  b\n\ndata\n\n",
        &[event(None, "a", None), event(None, " b", None), event(None, "", None)],
    );
}

#[test]
fn unknown_fields_are_skipped_and_an_event_of_nothing_else_is_none() {
    all_cuts("id: 1\nretry: 5\n\n\n\nid: 2\ndata: a\nfoo\n\n", &[event(None, "a", None)]);
}

#[test]
fn an_error_field_is_an_event_of_its_own_or_a_part_of_one() {
    let stream = "data: a\n\nerror: {\"code\":500}\n\nerror: one\nerror:two\n\ndata: b\nerror: c\n\nerror\n\nerrors: d\n\n";
    let mixed = SseEvent { data: Bytes::from_static(b"b"), ..error_event("c") };
    let expected = [
        event(None, "a", None),
        error_event("{\"code\":500}"),
        error_event("one\ntwo"),
        mixed,
        error_event(""),
    ];
    all_cuts(stream, &expected);
    all_cuts("error: cut", &[error_event("cut")]);
}

#[test]
fn an_event_named_error_or_with_an_error_field_reports_an_error() {
    let error_of = |stream: &str| {
        let (events, _) = decode([stream.as_bytes()], 1000);
        events
            .first()
            .and_then(|event| event.error_data().map(|data| String::from_utf8(data.to_vec()).unwrap()))
    };
    for (stream, error) in [
        ("error: a\n\n", Some("a")),
        ("event: error\ndata: a\n\n", Some("a")),
        ("data: b\nerror: a\n\n", Some("a")),
        ("event: error\ndata\n\n", Some("")),
        ("event: error\n\n", Some("")),
        ("event: error", Some("")),
        ("event: message\ndata: a\n\n", None),
        ("event: errors\n\n", None),
        ("event: error\nevent: message\n\n", None),
        ("data: error\n\n", None),
    ] {
        assert_eq!(error_of(stream).as_deref(), error, "{stream:?}");
    }
}

#[test]
fn an_event_without_data_is_dropped_unless_it_is_named_error() {
    let expected = [event(None, "a", None), event(Some("error"), "", None), event(None, "b", None)];
    all_cuts("data: a\n\nevent: ping\nid: 1\n\nevent: error\r\n\r\ndata: b\n\n", &expected);
}

#[test]
fn comments_come_with_the_event_they_stand_in_or_alone() {
    all_cuts(": a\n: b\n\n: c\ndata: d\n\n", &[event(None, "", Some("a\nb")), event(None, "d", Some("c"))]);
}

#[test]
fn an_event_without_a_blank_line_comes_at_the_end() {
    all_cuts("data: a\n\ndata: [DONE]", &[event(None, "a", None), event(None, "[DONE]", None)]);
    all_cuts("data: a\n", &[event(None, "a", None)]);
    all_cuts("", &[]);
}

#[test]
fn an_event_in_one_piece_is_not_copied() {
    let piece = Bytes::from_static(b"data: hello\n\ndata: you\n\n");
    let mut decoder = SseDecoder::new(100);
    decoder.push(piece.clone());
    for _ in 0..2 {
        let data = decoder.next().unwrap().unwrap().data;
        assert!(piece.as_ptr_range().contains(&data.as_ptr()));
    }
    assert_eq!(decoder.next(), None);
}

#[test]
fn an_event_over_the_cap_is_refused_once_and_nothing_follows() {
    let long = format!("data: a\n\ndata: {}", "x".repeat(200));
    let (events, too_long) = decode(long.as_bytes().chunks(10), 100);
    assert!(too_long);
    assert_eq!(events, [event(None, "a", None)]);
    let many_lines = "data: x\n".repeat(50);
    assert!(decode(many_lines.as_bytes().chunks(9), 100).1);
}

#[test]
fn frames_match_the_decoder() {
    let stream = [encode_data_event(b"{}"), encode_named_event("ping", b"{\"a\":1}")].concat();
    let expected = [event(None, "{}", None), event(Some("ping"), "{\"a\":1}", None)];
    assert_eq!(decode([&stream[..]], 100).0, expected);
}

proptest! {
    #[test]
    fn any_bytes_come_to_the_same_for_any_cut(
        parts in prop::collection::vec(prop::sample::select(vec![
            "data", ":", " ", "\n", "\r", "\r\n", "event", "error", "x", "\u{feff}", "\n\n", "é", "data: {}\n\n",
        ]), 0..40),
        size in 1_usize..7,
    ) {
        let stream = parts.concat().into_bytes();
        prop_assert_eq!(decode(stream.chunks(size), 10_000), decode([&stream[..]], 10_000));
    }
}
