//! The date of an answer (RFC 9110 §6.6.1), written once a second for each thread.

use bytes::BytesMut;
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Appends the date of now.
pub(super) fn put(wire: &mut BytesMut) {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    WRITTEN.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            (*of, *text) = (second, httpdate::fmt_http_date(now));
        }
        wire.extend_from_slice(text.as_bytes());
    });
}
