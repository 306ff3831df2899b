//! Heads of HTTP/2 requests that are in memory at the same time. A connection
//! over HTTP/1.1 has one; over HTTP/2 it might have one for each of its streams,
//! long before anybody knows who asks. So each connection may have one, like
//! those over HTTP/1.1, and all further ones share a bound.

use crate::config::settings::Settings;
use pingora_http::RequestHeader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes counted for each field beside its own (RFC 9113 §10.5.1).
const FIELD_OVERHEAD: usize = 32;
/// A stream with an empty head weighs this part of the largest head.
const STREAM_OVERHEAD: usize = 4;

/// The further heads of all connections.
#[derive(Debug, Default)]
pub(super) struct HeaderBudget {
    held: AtomicUsize,
}

/// One that is counted, until it is dropped.
#[derive(Debug)]
pub(super) struct HeaderReservation {
    heads: Arc<HeaderBudget>,
    bytes: usize,
}

impl HeaderBudget {
    /// Counts a head of so many bytes, unless all of them would exceed `most`.
    pub(super) fn try_reserve(self: &Arc<Self>, bytes: usize, most: usize) -> Option<HeaderReservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(HeaderReservation { heads: self.clone(), bytes })
    }
}

impl Drop for HeaderReservation {
    fn drop(&mut self) {
        self.heads.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of further heads at most: as many of the largest as there may be requests at work or waiting. One of usual
/// size weighs less than half of that, so who is in or waits finds room.
pub(super) fn budget_limit(settings: &Settings) -> usize {
    let requests = settings.overload.requests.saturating_add(settings.overload.queue);
    requests.saturating_mul(settings.limits.head)
}

/// The size of a head, as clients count it too.
pub(super) fn header_bytes(head: &RequestHeader) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
    head.raw_path().len() + fields.sum::<usize>()
}

/// Returns the memory of a head: its bytes, and a part of the largest head for its stream.
pub(super) fn header_cost(head: &RequestHeader, largest: usize) -> usize {
    header_bytes(head) + largest / STREAM_OVERHEAD
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn further_headers_share_a_budget_and_release_it() {
        let heads = Arc::new(HeaderBudget::default());
        let first = heads.try_reserve(60, 100).unwrap();
        assert!(heads.try_reserve(41, 100).is_none());
        let second = heads.try_reserve(40, 100).unwrap();
        assert!(heads.try_reserve(1, 100).is_none() && heads.try_reserve(usize::MAX, usize::MAX).is_none());
        drop(first);
        assert!(heads.try_reserve(60, 100).is_some());
        drop(second);
        assert_eq!(heads.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_header_costs_its_fields_and_its_stream() {
        let mut head = RequestHeader::build("GET", b"/v1/models", None).unwrap();
        assert_eq!(header_cost(&head, 400), 10 + 100);
        head.insert_header("x-note", "four").unwrap();
        assert_eq!(header_cost(&head, 400), 10 + 6 + 4 + FIELD_OVERHEAD + 100);
    }
}
