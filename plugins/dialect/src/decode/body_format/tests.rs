//! Tests of the detection of the format of a response body, and of its conversion.
#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn an_object_is_buffered_up_to_its_size_limit() {
    for (most, fits) in [(6, false), (7, true), (8, true)] {
        let mut opening = BodyToSseConverter::default();
        let pushed: Vec<_> = [" \n", "{\"a\"", ":1}"]
            .map(|piece| opening.push(Bytes::from_static(piece.as_bytes()), most))
            .into_iter()
            .collect();
        assert_eq!(
            pushed.first().unwrap().as_ref().unwrap().as_deref(),
            Some(&b" \n"[..]),
            "white space passes"
        );
        assert_eq!(pushed.iter().all(Result::is_ok), fits, "at most {most}");
        if fits {
            assert_eq!(opening.buffered_bytes(), 7);
            assert_eq!(opening.take_buffered_object().as_deref(), Some(&b"{\"a\":1}"[..]));
        }
    }
}

#[test]
fn the_first_value_ends_where_a_scan_of_each_byte_finds_it() {
    for body in [
        r#"{"a":"x}\"}","b":[{}]} {"#,
        "{\"a\":\"x\ny\"}",
        r#"{"a":"\\"}"#,
        r#"{"a":"\"#,
        "{\n}",
        "[[1],[2]]",
        "",
        "12\n",
    ] {
        for cut in 0..=body.len() {
            let (before, after) = body.as_bytes().split_at(cut);
            let (mut scanner, mut slow) = (ValueScanner::default(), ValueScanner::default());
            for piece in [before, after] {
                let end = piece.iter().position(|byte| *byte == b'\n' || slow.advance(*byte));
                let expected = end.map(|end| match piece.get(end) {
                    Some(b'\n') => FirstLine::Other,
                    _ => FirstLine::Value(end + 1),
                });
                assert_eq!(first_value_end(&mut scanner, piece), expected, "{body} {cut}");
                if expected.is_some() {
                    break;
                }
            }
        }
    }
}

#[test]
fn white_space_behind_an_object_is_scanned_once() {
    let mut opening = BodyToSseConverter::default();
    for (piece, scanned) in [(" {\"a\"", None), (":1} ", Some(9)), ("\n  ", Some(12)), ("\r\n", Some(14))] {
        assert_eq!(opening.push(Bytes::from_static(piece.as_bytes()), 100).unwrap(), None);
        match scanned {
            None => assert_eq!((opening.first_line, opening.scanned_bytes), (FirstLine::Open, 5)),
            Some(end) => assert_eq!(opening.first_line, FirstLine::Value(end), "{piece:?}"),
        }
    }
    let events = opening.push(Bytes::from_static(b"{\"b\":2}"), 100).unwrap().unwrap();
    let text = String::from_utf8_lossy(&events).into_owned();
    assert_eq!(text.matches("data: {").count(), 2, "a second value shows that they are JSON lines: {text:?}");
}

#[test]
fn the_start_of_a_body_shows_if_it_is_a_stream() {
    let unknown = |ignored| BodyStart::Unknown { ignored };
    for (start, expected) in [
        ("", unknown(0)),
        ("\r\n \u{feff}", unknown(6)),
        ("d", unknown(0)),
        ("\nevent", unknown(1)),
        ("data:", BodyStart::EventStream),
        (": comment", BodyStart::EventStream),
        (" retry: 5", BodyStart::EventStream),
        ("{", BodyStart::Other),
        ("\u{feff}{\"data:\"", BodyStart::Other),
        ("date", BodyStart::Other),
        ("[", BodyStart::Other),
    ] {
        assert_eq!(BodyStart::detect(start.as_bytes()), expected, "{start:?}");
    }
}

#[test]
fn the_first_byte_that_is_not_white_space_decides_the_format() {
    let mark = "\u{feff}";
    for (bytes, form) in [
        ("", BodyFormat::Unknown),
        ("\r\n ", BodyFormat::Unknown),
        (mark, BodyFormat::Unknown),
        ("{", BodyFormat::JsonObject),
        (&format!("{mark} {{\"id\":1}}"), BodyFormat::JsonObject),
        ("data: {}", BodyFormat::EventStream),
        (": hello", BodyFormat::EventStream),
        ("<html>", BodyFormat::EventStream),
    ] {
        assert_eq!(BodyFormat::detect(bytes.as_bytes()), form, "{bytes:?}");
    }
    for (body, streamed) in [
        ("data: {}\n\n", true),
        ("\n\nevent: ping\n\n", true),
        (": comment\n\n", true),
        ("error: {}\n\n", true),
        ("{\"data\":1}", false),
        ("{\"a\":[{}]}\n{\"b\":1}", true),
        ("{\"a\":1} \r\n\u{feff} [1]", true),
        ("{}{}", true),
        ("{\"a\":\"} {\"}", false),
        ("{\"a\":[{},{}],\"b\":[[],[]]}", false),
        ("{\"a\":1},{\"b\":1}", false),
        ("{\n\"a\":1}{\"b\":1}", false),
        ("dat", false),
        ("<html>", false),
        ("", false),
    ] {
        assert_eq!(is_event_stream(body.as_bytes()), streamed, "{body:?}");
    }
}
