//! Tests of request heads: complete and in pieces, at their limits, and ambiguous.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use bytes::Bytes;
use proptest::prelude::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 512, target: 40, fields: 5 };

fn parse_head(head: &[u8]) -> Result<Option<usize>, HeadError> {
    HeadParser::default().push(head, LIMITS)
}

fn parse_with_fields(fields: &str) -> Result<Option<usize>, HeadError> {
    parse_head(format!("POST /v1/x HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())
}

fn is_malformed(result: Result<Option<usize>, HeadError>) -> bool {
    matches!(result, Err(HeadError::Malformed(_)))
}

#[test]
fn a_good_head_ends_where_its_empty_line_does() {
    let head = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(parse_head(head), Ok(Some(head.len() - 5)));
    assert!(parse_with_fields("Transfer-Encoding:  CHUNKED \r\n").unwrap().is_some());
    assert_eq!(parse_head(b"GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
}

#[test]
fn two_empty_lines_before_a_request_line_are_ignored() {
    assert!(is_malformed(parse_head(b"\r\nGET / HTTP/1.0\r\n\r\n")), "the caller removes them");
    for (lines, ignored) in
        [("", 0), ("\r\n", 2), ("\r\n\r\n", 4), ("\r\n\r\n\r\n", 4), ("\n", 0), ("\r", 0), (" \r\n", 0)]
    {
        let head = format!("{lines}GET / HTTP/1.0\r\n\r\n");
        // The bytes arrive in two pieces.
        for at in 0..=head.len() {
            let mut empty_lines = LeadingEmptyLines::default();
            let first = empty_lines.ignored_prefix_length(&head.as_bytes()[..at]);
            let second = empty_lines.ignored_prefix_length(&head.as_bytes()[first..]);
            assert_eq!(first + second, ignored, "{lines:?} {at}");
        }
    }
}

#[test]
fn an_ambiguous_body_length_is_rejected() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 6\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        " Content-Length: 5\r\n",
        "X: y\r\n Content-Length: 5\r\n",
        "X: y\nContent-Length: 5\r\n",
        "X: y\rContent-Length: 5\r\n",
        "X: y\0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Host: b\r\n",
        "no colon\r\n",
        ": empty\r\n",
    ] {
        assert!(is_malformed(parse_with_fields(fields)), "{fields:?}");
    }
    assert!(is_malformed(parse_head(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n")));
}

#[test]
fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
    for host in [
        "",
        "a",
        "A-b.example",
        "a.example:80",
        "127.0.0.1:65535",
        "[::1]",
        "[2001:db8::1]:8080",
        "a:",
        "under_score",
        "%41",
    ] {
        assert!(is_host(host.as_bytes()), "{host:?}");
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(parse_head(head.as_bytes()), Ok(Some(head.len())), "{host:?}");
    }
    for host in [
        "a b<>",
        "a b",
        "a<",
        "a>",
        "a/b",
        "a?b",
        "a#b",
        "a\\b",
        "a\"",
        "a@b",
        "@",
        "a,b c",
        "a{b}",
        "a|b",
        "a^b",
        "a`b",
        "a[b]",
        "[::1",
        "::1",
        "[]",
        "[a]",
        "[::1]a",
        "[::1]:a",
        "[::1%25eth0]",
        "a:b",
        "a:80:80",
        "a:123456",
        "a:-1",
        "a\u{e4}",
        "a\tb",
    ] {
        assert!(!is_host(host.as_bytes()), "{host:?}");
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert!(is_malformed(parse_head(head.as_bytes())), "{host:?}");
        assert!(
            is_malformed(parse_head(
                format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()
            )),
            "{host:?}"
        );
    }
}

#[test]
fn a_head_received_byte_by_byte_is_complete_at_its_last_byte() {
    let head = [&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..], &[b'y'; 400], b"\r\nZ: \r\n\r\n"].concat();
    let mut scan = HeadParser::default();
    for end in 0..head.len() {
        assert_eq!(scan.push(&head[..end], LIMITS), Ok(None), "{end}");
        assert!(scan.searched == end && scan.at <= end);
    }
    assert_eq!(scan.push(&head, LIMITS), Ok(Some(head.len())));
}

#[test]
fn a_request_line_has_three_parts_and_a_known_version() {
    for line in [
        "GET /\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / x HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET\t/\tHTTP/1.1\r\n",
        "GET / HTTP/0.9\r\n",
        "GET / HTTP/1.2\r\n",
        "GET / HTTP/2.0\r\n",
        "GET / http/1.1\r\n",
        "G(T / HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "\r\n\r\n",
    ] {
        assert!(is_malformed(parse_head(format!("{line}Host: a\r\n\r\n").as_bytes())), "{line:?}");
    }
    assert!(is_malformed(parse_head(b"GET / HTTP/1.1\r\n\r\n")), "HTTP/1.1 names its host");
}

#[test]
fn each_limit_holds_at_its_value_and_not_beyond() {
    for (length, verdict) in [(39, true), (40, true), (41, false)] {
        let head = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/".repeat(length));
        let expected = if verdict { Ok(Some(head.len())) } else { Err(HeadError::TargetTooLong) };
        assert_eq!(parse_head(head.as_bytes()), expected);
    }
    for (fields, verdict) in [(4, true), (5, true), (6, false)] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(fields - 1));
        let expected = if verdict { Ok(Some(head.len())) } else { Err(HeadError::TooManyFields) };
        assert_eq!(parse_head(head.as_bytes()), expected);
    }
    for (size, verdict) in [(511, true), (512, true), (513, false)] {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nx: ".to_vec();
        head.resize(size - 4, b'y');
        head.extend_from_slice(b"\r\n\r\n");
        let expected = if verdict { Ok(Some(size)) } else { Err(HeadError::TooLarge) };
        assert_eq!(parse_head(&head), expected);
    }
    assert_eq!(parse_head(&[b'G'; 200]), Err(HeadError::TargetTooLong), "before its end is there");
    let long = [&[b'G'; 200][..], b" of many words\r\n"].concat();
    assert_eq!(parse_head(&long), Err(HeadError::TargetTooLong), "and the same with it");
    assert_eq!(parse_head(&[b"GET / HTTP/1.1\r\nx: ", &[b'y'; 600][..]].concat()), Err(HeadError::TooLarge));
}

fn request_of(head: &[u8]) -> Http1RequestHead {
    let mut scan = HeadParser::default();
    let size = scan.push(head, HeadLimits { bytes: 4096, target: 100, fields: 100 }).unwrap().unwrap();
    scan.into_request_head(Bytes::copy_from_slice(&head[..size]))
}

#[test]
fn a_request_head_exposes_its_fields() {
    let request = request_of(
        b"POST /v1/x?a=b?c HTTP/1.1\r\nHost:\ta:80 \r\nX-Empty:\r\nx-two: 1\r\nX-Two:2\r\ncontent-LENGTH: 007\r\n\r\n1234567",
    );
    assert_eq!(request.method(), b"POST");
    assert_eq!((request.path(), request.query()), ("/v1/x", Some("a=b?c")));
    assert_eq!(request.authority(), Some("a:80"));
    assert_eq!(request.field("x-empty"), Some(&b""[..]));
    assert_eq!(request.field("X-TWO"), Some(&b"1"[..]));
    assert_eq!(request.field("x"), None);
    assert_eq!(request.body_length(), Some(7));
    assert!(!request.is_http10() && !request.closes_connection());
}

#[test]
fn targets_have_the_forms_of_the_standard() {
    let of = |target: &str, host: &str| {
        let request = request_of(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        (
            request.path().to_owned(),
            request.query().map(str::to_owned),
            request.authority().map(str::to_owned),
        )
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of("/", "a"), ("/".into(), None, some("a")));
    assert_eq!(of("/?", "a"), ("/".into(), some(""), some("a")));
    assert_eq!(of("http://a:80/v1?q", "a:80"), ("/v1".into(), some("q"), some("a:80")));
    assert_eq!(of("HTTPS://a", "a"), ("/".into(), None, some("a")));
    assert_eq!(of("https://a?q", "a"), ("/".into(), some("q"), some("a")));
    assert_eq!(of("*", "a"), ("*".into(), None, some("a")));
    for (target, host) in [
        ("http://b/", "a"),
        ("http://a:80/", "a"),
        ("http://x@a/", "x@a"),
        ("http:///x", "a"),
        ("http:/x", "a"),
        ("ftp://a/", "a"),
        ("a", "a"),
        ("/a#b", "a"),
        ("/\u{e4}", "a"),
        ("/", "x@a"),
    ] {
        let caps = HeadLimits { bytes: 4096, target: 100, fields: 100 };
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert!(is_malformed(HeadParser::default().push(head.as_bytes(), caps)), "{target} {host}");
    }
}

#[test]
fn a_connection_persists_unless_the_client_closes_it() {
    for (version, connection, last) in [
        ("1.1", "", false),
        ("1.1", "Connection: keep-alive\r\n", false),
        ("1.1", "Connection: x, Close\r\n", true),
        ("1.1", "Connection: x\r\nconnection: close\r\n", true),
        ("1.0", "", true),
        ("1.0", "Connection: Keep-Alive\r\n", false),
        ("1.0", "Connection: Keep-Alive, close\r\n", true),
    ] {
        let request = request_of(format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n").as_bytes());
        assert_eq!(
            (request.closes_connection(), request.is_http10()),
            (last, version == "1.0"),
            "{version} {connection}"
        );
        assert_eq!(request.body_length(), Some(0));
    }
}

#[test]
fn an_invalid_head_still_yields_its_target() {
    assert_eq!(request_target_for_log(b"POST /v1/messages HTTP/9.9\nx"), "/v1/messages");
    assert_eq!(request_target_for_log(b"nonsense"), "");
}

#[test]
fn an_invalid_head_still_yields_its_fields() {
    let head =
        b"POST / HTTP/9.9\r\nOrigin:\thttps://a \r\nbad\r\norigin: https://b\r\nX: y\n\r\nOrigin2: c\r\nz: a";
    for (name, expected) in
        [("origin", Some(&b"https://a"[..])), ("x", Some(b"y")), ("bad", None), ("z", None), ("", None)]
    {
        assert_eq!(field_of_invalid_head(head, name), expected, "{name}");
    }
    assert_eq!(field_of_invalid_head(b"Origin: a", "origin"), None, "the first line is no field");
    assert_eq!(field_of_invalid_head(b"\r\nG\r\nOrigin: a", "origin"), Some(&b"a"[..]), "cut off");
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        fields in prop::collection::vec("[ -~]{0,20}(\r\n|\n|\r)?", 0..6),
        cuts in prop::collection::vec(1_usize..30, 1..40),
    ) {
        let head = format!("POST /v1/x HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.concat());
        let whole = parse_head(head.as_bytes());
        let (mut piecewise, mut end, mut cuts) = (HeadParser::default(), 0, cuts.into_iter().cycle());
        let found = loop {
            end = (end + cuts.next().unwrap()).min(head.len());
            match piecewise.push(&head.as_bytes()[..end], LIMITS) {
                Ok(None) if end < head.len() => {}
                other => break other,
            }
        };
        prop_assert_eq!(whole, found);
    }

    #[test]
    fn accepted_input_equals_that_of_a_strict_parser(bytes in prop::collection::vec(prop::sample::select(
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 15\tTransfer-Encoding:chunked,\0\x7f".to_vec()), 0..120)) {
        let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", &bytes[..], b"\r\n\r\n"].concat();
        if let Ok(Some(end)) = HeadParser::default().push(&head, HeadLimits { bytes: 4096, target: 40, fields: 100 }) {
            let mut fields = [httparse::EMPTY_HEADER; 128];
            let mut request = httparse::Request::new(&mut fields);
            prop_assert_eq!(request.parse(&head).unwrap(), httparse::Status::Complete(end));
            let ours = request_of(&head);
            prop_assert_eq!(ours.method(), request.method.unwrap().as_bytes());
            prop_assert_eq!(ours.path(), request.path.unwrap());
            for field in request.headers.iter() {
                let first = request.headers.iter().find(|other| other.name.eq_ignore_ascii_case(field.name));
                prop_assert_eq!(ours.field(field.name), first.map(|first| first.value));
            }
        }
    }
}
