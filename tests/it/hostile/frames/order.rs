//! Frames that come too early, too late or within others, that say what cannot be, and blocks that are no HPACK.

use super::Ends::{Connection, Nothing, Stream};
use super::{Table, open};
use crate::hostile::raw2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PRIORITISED, PRIORITY, RST,
    SETTINGS, WINDOW, field, frame, get, pseudo, setting,
};

pub(super) fn wrong_order() -> Table {
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
    // Blocks that are no HPACK.
    for (what, block) in [
        ("an index beyond the tables", vec![0xff, 0x20]),
        ("the index of nothing", vec![0x80]),
        ("a number without an end", vec![0xff; 40]),
        ("a string that is cut", vec![0x40, 0x05, b'a']),
        ("Huffman code with a wrong end", vec![0x40, 0x81, 0xff, 0x81, 0x00]),
        ("a table larger than allowed", vec![0x3f, 0xff, 0xff, 0x03]),
        ("a table that changes late", vec![0x82, 0x20]),
    ] {
        table.push((what.into(), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block), Connection));
    }
    table
}
