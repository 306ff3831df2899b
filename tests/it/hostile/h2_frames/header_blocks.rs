//! Header blocks that violate HTTP/2 or would change meaning in HTTP/1.1, bodies of another length than declared, and
//! invalid trailers.

use super::ExpectedEnd::Refused;
use super::{Table, open};
use crate::hostile::raw_h2::{DATA, END_HEADERS, END_STREAM, HEADERS, field, frame, pseudo};
use crate::hostile::{CHAT, ask};

pub(super) fn invalid_header_blocks(key: &str) -> Table {
    let mut table = Vec::new();
    // Forbidden fields, above all those with a meaning in HTTP/1.1.
    for (name, value) in [
        ("connection", "close"),
        ("connection", "authorization"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("Authorization", "upper case"),
        ("TRANSFER-ENCODING", "chunked"),
        ("x y", "a space"),
        ("x:y", "a colon"),
        ("", "no name"),
        ("x\r\ny", "a line"),
        ("x", "a\r\nSmuggled: yes"),
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        (":status", "200"),
        (":unknown", "x"),
        (":path", "/again"),
        (":method", "GET"),
        ("content-length", "-1"),
        ("content-length", "x"),
        ("content-length", "5, 6"),
        ("content-length", "99999999999999999999999"),
        ("content-length", ""),
        ("content-length", "+5"),
        ("content-length", "5 "),
        ("content-length", "0x5"),
        ("content-length", "5.0"),
        ("upgrade", "websocket"),
        ("te", "trailers, gzip"),
        ("x\0y", "nothing"),
        ("x\u{e9}", "a letter that is none"),
        ("x", "a\u{7f}b"),
        ("x", "a\u{1}b"),
        ("x", " a"),
        ("x", "a\t"),
        ("x", " "),
        ("host", "other"),
        ("host", "user@localhost"),
    ] {
        table.push((format!("the field {name:?}: {value:?}"), with(key, &[field(name, value)]), Refused));
    }
    let [method, scheme, path, authority] =
        [(":method", "POST"), (":scheme", "https"), (":path", CHAT), (":authority", "localhost")]
            .map(|(n, v)| field(n, v));
    for (what, fields) in [
        ("no method", vec![&scheme, &path, &authority]),
        ("no scheme", vec![&method, &path, &authority]),
        ("no path", vec![&method, &scheme, &authority]),
        ("no authority", vec![&method, &scheme, &path]),
        ("a method twice", vec![&method, &method, &scheme, &path, &authority]),
        ("a path twice", vec![&method, &scheme, &path, &path, &authority]),
        ("a scheme twice", vec![&method, &scheme, &scheme, &path, &authority]),
        ("an authority twice", vec![&method, &scheme, &path, &authority, &authority]),
        ("nothing", vec![]),
    ] {
        let fields: Vec<Vec<u8>> = fields.into_iter().cloned().collect();
        table.push((what.into(), only(key, &fields), Refused));
    }
    let late = [method.clone(), field("x", "y"), scheme.clone(), path.clone(), authority.clone()];
    table.push(("a field before the path".into(), only(key, &late), Refused));
    for bad in ["", "nothing", "/a b", "/a\r\nHost: b", "/a\0b", "http://other/v1", "//other@host/v1", "*"] {
        let fields = [method.clone(), scheme.clone(), field(":path", bad), authority.clone()];
        table.push((format!("the path {bad:?}"), only(key, &fields), Refused));
    }
    for bad in ["user@localhost", "a b", "a\r\nb", "local host:1"] {
        let fields = [method.clone(), scheme.clone(), path.clone(), field(":authority", bad)];
        table.push((format!("the authority {bad:?}"), only(key, &fields), Refused));
    }
    for bad in ["", "PO ST", "POST\r\n", "POST\0"] {
        let fields = [field(":method", bad), scheme.clone(), path.clone(), authority.clone()];
        table.push((format!("the method {bad:?}"), only(key, &fields), Refused));
    }
    for bad in ["", "ht tp", "https://", "ftp"] {
        let fields = [method.clone(), field(":scheme", bad), path.clone(), authority.clone()];
        table.push((format!("the scheme {bad:?}"), only(key, &fields), Refused));
    }
    let connect = [field(":method", "CONNECT"), field(":authority", "example.org:443")];
    table.push(("a tunnel".into(), only(key, &connect), Refused));
    let extended = [field(":method", "CONNECT"), field(":protocol", "websocket"), scheme, path, authority];
    table.push(("a tunnel with a protocol".into(), only(key, &extended), Refused));
    // Body whose length differs from `content-length`.
    for (stated, body) in [("5", &b"123"[..]), ("2", b"123"), ("0", b"1")] {
        let block =
            [pseudo("POST", CHAT), field("authorization", key), field("content-length", stated)].concat();
        let head = frame(HEADERS, END_HEADERS, 1, &block);
        let bytes = [head, frame(DATA, END_STREAM, 1, body)].concat();
        table.push((format!("{} bytes where {stated} were announced", body.len()), bytes, Refused));
    }
    // Wrong body lengths with several DATA frames, without a DATA frame, and with trailers.
    let announced_head = |stated: &str, flags| {
        let block =
            [pseudo("POST", CHAT), field("authorization", key), field("content-length", stated)].concat();
        frame(HEADERS, END_HEADERS | flags, 1, &block)
    };
    let parts =
        [announced_head("5", 0), frame(DATA, 0, 1, b"123"), frame(DATA, END_STREAM, 1, b"456")].concat();
    table.push(("3 bytes and 3 more where 5 were announced".into(), parts, Refused));
    table.push(("no body where 5 were announced".into(), announced_head("5", END_STREAM), Refused));
    let trailed = frame(HEADERS, END_HEADERS | END_STREAM, 1, &field("x", "y"));
    let parts = [announced_head("5", 0), frame(DATA, 0, 1, b"123"), trailed].concat();
    table.push(("3 bytes and trailers where 5 were announced".into(), parts, Refused));
    let lengths = [pseudo("POST", CHAT), field("content-length", "5"), field("content-length", "6")].concat();
    table.push(("two lengths".into(), with_body(key, &lengths), Refused));
    let trailers = |block: &[u8], flags| [open(1), frame(HEADERS, flags, 1, block)].concat();
    table.push(("trailers that end nothing".into(), trailers(&field("x", "y"), END_HEADERS), Refused));
    for (name, value) in [
        (":path", "/"),
        (":method", "GET"),
        (":status", "200"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("X-Upper", "case"),
    ] {
        let bytes = trailers(&field(name, value), END_HEADERS | END_STREAM);
        table.push((format!("trailers with {name:?}"), bytes, Refused));
    }
    table
}

/// Returns a valid request with these fields after the four pseudo-header fields.
fn with(key: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    only(key, &[&[pseudo("POST", CHAT)], fields].concat())
}

/// A request of these fields, a key and a body.
fn only(key: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    with_body(key, &fields.concat())
}

fn with_body(key: &str, fields: &[u8]) -> Vec<u8> {
    let block = [fields, &field("authorization", &format!("Bearer {key}"))].concat();
    [frame(HEADERS, END_HEADERS, 1, &block), frame(DATA, END_STREAM, 1, ask("Hi").as_bytes())].concat()
}
