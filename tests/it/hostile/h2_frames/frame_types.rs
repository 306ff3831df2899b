//! Frames on streams where they are not allowed, of invalid sizes, or from the peer that may not send them.

use super::ExpectedEnd::{Connection, Stream};
use super::{Table, open};
use crate::hostile::raw_h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITISED, PRIORITY,
    PUSH, RST, SETTINGS, WINDOW, frame, get, pseudo,
};

pub(super) fn invalid_frame_types() -> Table {
    let mut table = Vec::new();
    let payload = |kind: u8| -> Vec<u8> {
        match kind {
            PRIORITY => vec![0; 5],
            RST => vec![0, 0, 0, 8],
            PING => vec![0; 8],
            WINDOW => vec![0, 0, 0, 1],
            GOAWAY => vec![0; 8],
            HEADERS => pseudo("GET", "/"),
            PUSH => [&[0, 0, 0, 2][..], &pseudo("GET", "/")].concat(),
            _ => Vec::new(),
        }
    };
    // Frames of the connection (such as PING) on a stream, and frames of a stream on stream 0.
    for (kind, stream) in [
        (DATA, 0),
        (HEADERS, 0),
        (PRIORITY, 0),
        (RST, 0),
        (PUSH, 0),
        (CONTINUATION, 0),
        (SETTINGS, 1),
        (PING, 1),
        (GOAWAY, 1),
    ] {
        table.push((
            format!("kind {kind} on stream {stream}"),
            frame(kind, END_HEADERS, stream, &payload(kind)),
            Connection,
        ));
    }
    // Frames on a stream that was never opened.
    for kind in [DATA, RST, WINDOW, CONTINUATION] {
        table.push((
            format!("kind {kind} on an idle stream"),
            frame(kind, END_HEADERS, 1, &payload(kind)),
            Connection,
        ));
    }
    // Impossible sizes.
    for (kind, stream, sizes) in [
        (PRIORITY, 1, vec![0, 4, 6, 10]),
        (RST, 1, vec![0, 3, 5, 8]),
        (SETTINGS, 0, vec![1, 5, 7, 11]),
        (PING, 0, vec![0, 7, 9, 16]),
        (GOAWAY, 0, vec![0, 7]),
        (WINDOW, 0, vec![0, 3, 5, 8]),
        (WINDOW, 1, vec![0, 3, 5, 8]),
    ] {
        for size in sizes {
            let ends = if kind == PRIORITY { Stream } else { Connection };
            let bytes = [open(1), frame(kind, 0, stream, &vec![0; size])].concat();
            table.push((format!("kind {kind} of {size} bytes on {stream}"), bytes, ends));
        }
    }
    for kind in [DATA, HEADERS, SETTINGS, PING, WINDOW, 0x42] {
        let stream = if matches!(kind, SETTINGS | PING) { 0 } else { 1 };
        let bytes = [open(1), frame(kind, END_HEADERS, stream, &vec![0; (64 << 10) + 1])].concat();
        table.push((format!("kind {kind}, larger than allowed"), bytes, Connection));
    }
    let within = frame(HEADERS, 0, 1, &payload(HEADERS));
    let long = frame(CONTINUATION, END_HEADERS, 1, &vec![0; (64 << 10) + 1]);
    table.push(("more headers, larger than allowed".into(), [within, long].concat(), Connection));
    for (what, flags, block) in [
        ("headers without the length of their padding", PADDED, vec![]),
        ("headers with a part of a priority", PRIORITISED, vec![0; 4]),
        ("headers that are padded over their priority", PADDED | PRIORITISED, vec![6, 0, 0, 0, 0, 15]),
    ] {
        let bytes = frame(HEADERS, flags | END_HEADERS | END_STREAM, 1, &block);
        table.push((what.into(), bytes, Connection));
    }
    table.push(("an acknowledgement on stream 1".into(), frame(SETTINGS, ACK, 1, b""), Connection));
    // Frames that a client must not send: pushes, and streams with even numbers.
    table.push((
        "a push".into(),
        [open(1), frame(PUSH, END_HEADERS, 1, &payload(PUSH))].concat(),
        Connection,
    ));
    for stream in [2, 4, 0x7fff_fffe] {
        table.push((format!("a stream with the even number {stream}"), get(stream), Connection));
    }
    table
}
