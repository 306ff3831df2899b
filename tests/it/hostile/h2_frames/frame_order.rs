//! Frames that come too early, too late or within others, impossible values, and blocks that are not HPACK.

use super::ExpectedEnd::{Connection, Nothing, Stream};
use super::{Table, open};
use crate::hostile::raw_h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITISED, PRIORITY,
    RST, SETTINGS, WINDOW, field, frame, get, pseudo, setting,
};

pub(super) fn invalid_frame_order() -> Table {
    let half = |stream| frame(HEADERS, END_STREAM, stream, &pseudo("GET", "/v1/nothing"));
    let mut table = vec![
        ("no preface".into(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Connection),
        ("a stream below an earlier one".into(), [get(5), get(3)].concat(), Connection),
        ("a stream again after its end".into(), [get(1), get(1)].concat(), Connection),
        ("data after the end of a stream".into(), [get(1), frame(DATA, 0, 1, b"x")].concat(), Stream),
        (
            "data after a reset".into(),
            [open(1), frame(RST, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x")].concat(),
            Stream,
        ),
        ("headers within headers".into(), [half(1), get(3)].concat(), Connection),
        ("data within headers".into(), [half(1), frame(DATA, 0, 1, b"x")].concat(), Connection),
        ("a ping within headers".into(), [half(1), frame(PING, 0, 0, &[0; 8])].concat(), Connection),
        ("settings within headers".into(), [half(1), frame(SETTINGS, 0, 0, b"")].concat(), Connection),
        ("an unknown frame within headers".into(), [half(1), frame(0x42, 0, 1, b"x")].concat(), Connection),
        ("a reset within headers".into(), [half(1), frame(RST, 0, 1, &[0; 4])].concat(), Connection),
        (
            "more of another stream's headers".into(),
            [half(1), frame(CONTINUATION, END_HEADERS, 3, b"")].concat(),
            Connection,
        ),
        (
            "more headers after their end".into(),
            [get(1), frame(CONTINUATION, END_HEADERS, 1, b"")].concat(),
            Connection,
        ),
        (
            "headers that go on".into(),
            [half(1), frame(CONTINUATION, END_HEADERS, 1, &field("x", "y"))].concat(),
            Nothing,
        ),
        (
            "a stream that depends on itself".into(),
            [open(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])].concat(),
            Nothing,
        ),
        (
            "headers that depend on themselves".into(),
            frame(
                HEADERS,
                END_HEADERS | END_STREAM | PRIORITISED,
                1,
                &[&[0, 0, 0, 1, 0][..], &pseudo("GET", "/v1/nothing")].concat(),
            ),
            Stream,
        ),
        ("more padding than data".into(), [open(1), frame(DATA, PADDED, 1, &[9, 0])].concat(), Connection),
        (
            "more padding than headers".into(),
            frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, &[255, 0x82]),
            Connection,
        ),
        ("no length of padding".into(), [open(1), frame(DATA, PADDED, 1, b"")].concat(), Connection),
        ("a window of nothing, of a stream".into(), [open(1), frame(WINDOW, 0, 1, &[0; 4])].concat(), Stream),
        ("a window of nothing".into(), frame(WINDOW, 0, 0, &[0; 4]), Connection),
        (
            "a window too wide".into(),
            frame(WINDOW, 0, 0, &0x7fff_ffff_u32.to_be_bytes()).repeat(2),
            Connection,
        ),
        (
            "a window too wide, of a stream".into(),
            [open(1), frame(WINDOW, 0, 1, &0x7fff_ffff_u32.to_be_bytes()).repeat(2)].concat(),
            Stream,
        ),
        ("an acknowledgement with settings".into(), frame(SETTINGS, ACK, 0, &setting(3, 1)), Connection),
        ("a push that is neither on nor off".into(), frame(SETTINGS, 0, 0, &setting(2, 2)), Connection),
        ("a first window too wide".into(), frame(SETTINGS, 0, 0, &setting(4, 0x8000_0000)), Connection),
        ("frames too small".into(), frame(SETTINGS, 0, 0, &setting(5, 16_383)), Connection),
        ("frames too large".into(), frame(SETTINGS, 0, 0, &setting(5, 1 << 24)), Connection),
        ("a setting nobody knows".into(), frame(SETTINGS, 0, 0, &setting(0x4242, 7)), Nothing),
        ("a frame nobody knows".into(), frame(0x42, 0xff, 0, b"what"), Nothing),
        ("an answer to no ping".into(), frame(PING, ACK, 0, b"12345678"), Nothing),
        ("a good request".into(), get(1), Nothing),
    ];
    table.extend(interleaved_frames());
    table.extend(invalid_settings());
    table.extend(odd_and_right());
    // Blocks that are no HPACK.
    for (what, block) in [
        ("an index beyond the tables", vec![0xff, 0x20]),
        ("the index of nothing", vec![0x80]),
        ("a number without an end", vec![0xff; 40]),
        ("a string that is cut", vec![0x40, 0x05, b'a']),
        ("Huffman code with a wrong end", vec![0x40, 0x81, 0xff, 0x81, 0x00]),
        ("a table larger than allowed", vec![0x3f, 0xff, 0xff, 0x03]),
        ("a table that changes late", vec![0x82, 0x20]),
        ("an index of a table that is empty", vec![0xbe]),
        ("a name beyond the tables", vec![0x7f, 0x20, 0x01, b'x']),
        ("a name that is cut", vec![0x40]),
        ("a value that is cut", vec![0x40, 0x01, b'x', 0x03, b'y']),
        ("Huffman code of nothing but its end", vec![0x40, 0x84, 0xff, 0xff, 0xff, 0xff, 0x00]),
    ] {
        table.push((what.into(), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block), Connection));
    }
    table
}

/// Returns frames that are not allowed between the parts of a header block.
fn interleaved_frames() -> Table {
    let half = || frame(HEADERS, END_STREAM, 1, &pseudo("GET", "/v1/nothing"));
    let reset = frame(RST, 0, 1, &[0, 0, 0, 8]);
    let mut table = Vec::new();
    for (what, bytes) in [
        ("a priority", frame(PRIORITY, 0, 1, &[0; 5])),
        ("a window", frame(WINDOW, 0, 0, &[0, 0, 0, 1])),
        ("a farewell", frame(GOAWAY, 0, 0, &[0; 8])),
        ("the same headers", half()),
        ("an acknowledgement", frame(SETTINGS, ACK, 0, b"")),
        ("data of another stream", frame(DATA, 0, 3, b"x")),
    ] {
        table.push((format!("{what} within headers"), [half(), bytes].concat(), Connection));
    }
    let trailers = |flags| frame(HEADERS, flags | END_HEADERS, 1, &field("x", "y"));
    table.push(("headers after a reset".into(), [open(1), reset, get(1)].concat(), Stream));
    let ended = [open(1), trailers(END_STREAM)].concat();
    table.push((
        "data after trailers".into(),
        [&ended, &frame(DATA, END_STREAM, 1, b"x")[..]].concat(),
        Stream,
    ));
    table.push(("trailers after trailers".into(), [&ended, &trailers(END_STREAM)[..]].concat(), Stream));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r";
    let cut = [&preface[..], &frame(SETTINGS, 0, 0, b"")].concat();
    table.push(("no preface but most of one".into(), cut, Connection));
    table.push(("no preface but a frame".into(), frame(SETTINGS, 0, 0, b""), Connection));
    table
}

/// Returns values of settings at the limits of their ranges, and beyond.
fn invalid_settings() -> Table {
    let mut table = Vec::new();
    for (what, id, value, ends) in [
        ("a table of nothing", 1, 0, Nothing),
        ("a table of any size", 1, u32::MAX, Nothing),
        ("no push", 2, 0, Nothing),
        ("a push of any number", 2, u32::MAX, Connection),
        ("no streams", 3, 0, Nothing),
        ("the widest window", 4, 0x7fff_ffff, Nothing),
        ("a window of any width", 4, u32::MAX, Connection),
        ("the smallest frames", 5, 16_384, Nothing),
        ("the largest frames", 5, (1 << 24) - 1, Nothing),
        ("frames of nothing", 5, 0, Connection),
        ("lists of nothing", 6, 0, Nothing),
    ] {
        table.push((format!("settings: {what}"), frame(SETTINGS, 0, 0, &setting(id, value)), ends));
    }
    let twice = frame(SETTINGS, ACK, 0, b"").repeat(2);
    table.push(("settings acknowledged twice".into(), twice, Connection));
    table
}

/// Unusual frames that are valid.
fn odd_and_right() -> Table {
    let padded = [&[3][..], &pseudo("GET", "/v1/nothing"), &[0; 3]].concat();
    let [first, second, third] = ["x", "y", "z"].map(|name| field(name, "1"));
    vec![
        (
            "headers with padding".into(),
            frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, &padded),
            Nothing,
        ),
        (
            "data of nothing but padding".into(),
            [open(1), frame(DATA, PADDED, 1, &[2, 0, 0])].concat(),
            Nothing,
        ),
        (
            "headers in many parts".into(),
            [
                frame(HEADERS, END_STREAM, 1, &pseudo("GET", "/v1/nothing")),
                frame(CONTINUATION, 0, 1, &first),
                frame(CONTINUATION, 0, 1, b""),
                frame(CONTINUATION, 0, 1, &second),
                frame(CONTINUATION, END_HEADERS, 1, &third),
            ]
            .concat(),
            Nothing,
        ),
        ("a priority of a stream that is not there".into(), frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 9]), Nothing),
        (
            "a window after the end of a stream".into(),
            [get(1), frame(WINDOW, 0, 1, &[0, 0, 0, 1])].concat(),
            Nothing,
        ),
        (
            "a reset after a reset".into(),
            [open(1), frame(RST, 0, 1, &[0, 0, 0, 8]).repeat(2)].concat(),
            Nothing,
        ),
    ]
}
