//! Tests of provider responses, complete and truncated, and of rejected ones.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use bytes::BytesMut;

fn parse_head(text: &str) -> Result<Option<Http1ResponseHead>, MalformedMessage> {
    Http1ResponseHead::parse(text.as_bytes())
}

fn framing_of(fields: &str) -> (BodyFraming, bool) {
    let head = parse_head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap().unwrap();
    (head.framing, head.is_last)
}

#[test]
fn body_framing_follows_the_standard() {
    let cases = [
        ("Content-Length: 12\r\n", BodyFraming::Length(12), false),
        ("content-length: 12, 12\r\nContent-Length: 12\r\n", BodyFraming::Length(12), false),
        ("Content-Length: 12\r\nConnection: x, Close\r\n", BodyFraming::Length(12), true),
        ("Transfer-Encoding: Chunked\r\n", BodyFraming::Chunked, false),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", BodyFraming::Chunked, true),
        ("", BodyFraming::UntilClose, true),
        ("Connection: keep-alive\r\n", BodyFraming::UntilClose, true),
    ];
    for (fields, framing, last) in cases {
        assert_eq!(framing_of(fields), (framing, last), "{fields}");
    }
    for status in [100, 103, 204, 304] {
        let head = parse_head(&format!("HTTP/1.1 {status} x\r\nContent-Length: 9\r\n\r\n")).unwrap().unwrap();
        assert_eq!((head.status, head.framing), (status, BodyFraming::Length(0)));
    }
}

#[test]
fn the_old_version_ends_with_its_connection_unless_it_says_otherwise() {
    let last =
        |fields: &str| parse_head(&format!("HTTP/1.0 200 OK\r\n{fields}\r\n")).unwrap().unwrap().is_last;
    assert!(last("Content-Length: 1\r\n"));
    assert!(!last("Content-Length: 1\r\nConnection: keep-alive\r\n"));
    assert!(last("Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n"));
}

#[test]
fn ambiguous_heads_are_refused() {
    let cases = [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "hello, world\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
    ];
    for case in cases {
        assert!(parse_head(case).is_err(), "{case:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(MAX_FIELDS + 1));
    assert!(parse_head(&many).is_err());
    let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(MAX_HEAD_BYTES));
    assert!(parse_head(&long).is_err());
}

#[test]
fn a_head_is_the_same_at_every_split() {
    let text = "HTTP/1.1 429 Slow down\r\nRetry-After:  7 \r\nX: y\r\nContent-Length: 2\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(parse_head(text.get(..end).unwrap()), Ok(None), "{end}");
    }
    let whole = parse_head(&format!("{text}ab")).unwrap().unwrap();
    let expected =
        Http1ResponseHead { size: text.len(), status: 429, framing: BodyFraming::Length(2), is_last: false };
    assert_eq!(whole, expected);
    assert_eq!(header_value(text.as_bytes(), "retry-after").map(<[u8]>::trim_ascii), Some(&b"7"[..]));
    assert_eq!(header_value(text.as_bytes(), "none"), None);
    for (fields, value) in [
        ("x-energy : 5\r\n", Some(&b"5"[..])),
        ("X-Energy:5\nx-energy: 6\n", Some(b"5")),
        ("a: b\r\n x-energy: 5\r\n", None),
        ("x-energy-method: 5\r\nax-energy: 6\r\n", None),
        ("x-energy-method: 5\r\nx-energy: 6\r\n", Some(b"6")),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        assert_eq!(header_value(text.as_bytes(), "x-energy").map(<[u8]>::trim_ascii), value, "{fields:?}");
    }
}

/// Number of parses of a head that arrives byte by byte, and its length when complete.
fn parse_bytewise(text: &[u8]) -> (usize, Option<usize>) {
    let (mut scan, mut reads) = (ResponseHeadScan::default(), 0);
    for end in 0..=text.len() {
        let bytes = text.get(..end).unwrap();
        if scan.should_parse(bytes) {
            reads += 1;
            if Http1ResponseHead::parse(bytes).unwrap().is_some() {
                return (reads, Some(end));
            }
        }
    }
    (reads, None)
}

#[test]
fn a_head_received_byte_by_byte_is_parsed_a_few_times() {
    for end in ["\r\n", "\n"] {
        let line = format!("X: {}{end}", "y".repeat(500));
        let text = format!("HTTP/1.1 200 OK{end}{}Content-Length: 2{end}{end}", line.repeat(100));
        let (reads, found) = parse_bytewise(text.as_bytes());
        assert_eq!(found, Some(text.len()));
        assert!(reads <= 18, "{reads}");
        assert_eq!(parse_bytewise(text.get(..text.len() - 1).unwrap().as_bytes()).1, None);
    }
    // At any split, `should_parse` returns true when the head is complete.
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    for cut in 0..text.len() {
        let mut scan = ResponseHeadScan::default();
        scan.should_parse(text.get(..cut).unwrap());
        assert!(scan.should_parse(text), "{cut}");
    }
    assert!(!ResponseHeadScan::default().should_parse(b""));
}

/// Body decoded from the pieces, true if the body has ended, and the number of bytes left in the buffer; or the
/// error.
fn decode_body(pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), MalformedMessage> {
    let (mut chunks, mut buffer, mut body) = (ChunkDecoder::default(), BytesMut::new(), Vec::new());
    let mut over = false;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while !over {
            match chunks.decode_next(&mut buffer)? {
                ChunkStep::Data(data) => body.extend_from_slice(&data),
                ChunkStep::Incomplete => break,
                ChunkStep::End => over = true,
            }
        }
    }
    Ok((body, over, buffer.len()))
}

#[test]
fn chunks_are_the_same_at_every_split() {
    let text =
        b"5\r\nhello\r\n1 ;name=\"x\"\r\n,\r\n00A\t\r\n 0123\r\n56 \r\n0\r\nTrailer: x\r\nA-b:\t\r\n\r\nnext";
    let whole = (b"hello, 0123\r\n56 ".to_vec(), true, 4);
    assert_eq!(decode_body(&[text]), Ok(whole.clone()));
    for cut in 0..text.len() {
        let (first, second) = text.split_at(cut);
        assert_eq!(decode_body(&[first, second]), Ok(whole.clone()), "{cut}");
    }
    let each: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(decode_body(&each), Ok(whole));
    let cut = text.get(..text.len() - 6).unwrap();
    assert!(!decode_body(&[cut]).unwrap().1);
}

#[test]
fn chunks_that_break_a_rule_are_refused() {
    let long = format!("1;{}", "x".repeat(LINE_OVER));
    let trailers = format!("0\r\n{}", "a: b\r\n".repeat(TRAILERS_OVER));
    let cases = [
        "5\nhello\r\n",
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "0x5\r\n",
        "5\r\nhello!\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "\r5\r\nhello\r\n0\r\n\r\n",
        "5\r\r\nhello\r\n0\r\n\r\n",
        "5 \r;a\r\nhello\r\n0\r\n\r\n",
        "5;a=\rb\r\nhello\r\n0\r\n\r\n",
        "5;a=\0b\r\nhello\r\n0\r\n\r\n",
        "5\x0b\r\nhello\r\n0\r\n\r\n",
        "5;\x7f\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\r\n0\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\n: no name\r\n\r\n",
        "0\r\na b: c\r\n\r\n",
        "0\r\na : c\r\n\r\n",
        "0\r\n a: c\r\n\r\n",
        "0\r\na: b\r\n c\r\n\r\n",
        "0\r\na: b\rc\r\n\r\n",
        "0\r\na: b\0\r\n\r\n",
        "0\r\n\r\r\n\r\n",
        "1000000000000000\r\n",
        " ;\r\n",
        &long,
        &format!("{long}\r\n"),
        &trailers,
    ];
    for case in cases {
        assert!(decode_body(&[case.as_bytes()]).is_err(), "{case:?}");
    }
}

/// Error of a body that the decoder and the scanner read in pieces of `size` bytes; `None` if both accept it.
fn chunk_error(body: &[u8], size: usize) -> Option<&'static str> {
    let pieces: Vec<&[u8]> = body.chunks(size).collect();
    let mut scanner = ChunkedBodyScanner::default();
    let scanned: Result<Vec<usize>, _> = pieces.iter().map(|piece| scanner.push(piece)).collect();
    let (decoded, scanned) = (decode_body(&pieces).err(), scanned.err());
    assert_eq!(decoded, scanned, "{} bytes in pieces of {size}", body.len());
    decoded.map(|error| error.0)
}

#[test]
fn the_decoder_and_the_scanner_have_the_same_limits() {
    let too_long = Some("a line of its chunks is too long");
    for size in [1, 7, 4096, 4097, 4098, 8192] {
        for length in 4090..4102 {
            let expected = too_long.filter(|_| length > 4096);
            let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(length - 2));
            assert_eq!(chunk_error(extension.as_bytes(), size), expected, "{length}");
            let trailer = format!("0\r\na:{}\r\n\r\n", "b".repeat(length - 2));
            assert_eq!(chunk_error(trailer.as_bytes(), size), expected, "{length}");
            let endless = vec![b'1'; length];
            let expected = too_long.filter(|_| length > 4097);
            assert_eq!(chunk_error(&endless, size), expected, "{length}");
        }
        for (line, error) in [
            ("000000000000001", None),
            ("0000000000000001", Some("a chunk's size has more than 15 digits")),
            ("ffffffffffffffff", Some("a chunk's size has more than 15 digits")),
            (";x", Some("a chunk has no size")),
            ("1g", Some("a chunk's size is not a number")),
        ] {
            assert_eq!(chunk_error(format!("{line}\r\nx\r\n0\r\n\r\n").as_bytes(), size), error, "{line}");
        }
    }
}

/// Result of a body that arrives in two pieces, for each cut, and byte by byte: the same from the decoder and the
/// scanner.
fn chunk_error_at_each_cut(body: &str) -> Option<&'static str> {
    let whole = chunk_error(body.as_bytes(), body.len());
    for size in 1..body.len() {
        assert_eq!(chunk_error(body.as_bytes(), size), whole, "{body:?} in pieces of {size}");
    }
    for cut in 0..=body.len() {
        let (first, second) = body.as_bytes().split_at(cut);
        assert_eq!(decode_body(&[first, second]).err().map(|error| error.0), whole, "{body:?} cut at {cut}");
        let mut scanner = ChunkedBodyScanner::default();
        let scanned = scanner.push(first).and_then(|_| scanner.push(second));
        assert_eq!(scanned.err().map(|error| error.0), whole, "{body:?} cut at {cut}");
    }
    whole
}

#[test]
fn blanks_may_follow_a_chunk_size_and_not_precede_it() {
    let not_number = Some("a chunk's size is not a number");
    let no_size = Some("a chunk has no size");
    for (size, error) in [
        ("1", None),
        ("1 ", None),
        ("1\t", None),
        ("1 \t ", None),
        ("1;a=b", None),
        ("1 ;a=b", None),
        ("1\t; a = b ", None),
        ("00000000000001 ", None),
        (" 1", not_number),
        ("\t1", not_number),
        (" \t 1", not_number),
        (" 1 ", not_number),
        (" 1;a=b", not_number),
        ("\t1 ; a=b", not_number),
        (" 00000000000001", not_number),
        ("1 1", not_number),
        ("1\t1", not_number),
        ("1 a;b", not_number),
        ("", no_size),
        (" ", no_size),
        ("\t", no_size),
        (";a=b", no_size),
        (" ;a=b", no_size),
    ] {
        // The rule is the same for the first chunk, for a later one and for the last.
        assert_eq!(chunk_error_at_each_cut(&format!("{size}\r\nx\r\n0\r\n\r\n")), error, "{size:?}");
        assert_eq!(
            chunk_error_at_each_cut(&format!("1\r\nx\r\n{size}\r\ny\r\n0\r\n\r\n")),
            error,
            "{size:?}"
        );
        let last = size.replace('1', "0");
        assert_eq!(chunk_error_at_each_cut(&format!("1\r\nx\r\n{last}\r\n\r\n")), error, "{last:?}");
    }
}

const LINE_OVER: usize = 4 * 1024;
const TRAILERS_OVER: usize = 16 * 1024 / 4 + 1;
