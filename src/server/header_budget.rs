//! Memory limit on the request heads of HTTP/2 streams. An HTTP/1.1 connection has one request head in memory. An
//! HTTP/2 connection may have one for each stream, before the client is authenticated. So the first stream of each
//! connection is not counted, as with HTTP/1.1, and the heads of all other streams share one budget.

use crate::config::settings::Settings;
use pingora_http::RequestHeader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes counted for each field in addition to its name and value (RFC 9113 §10.5.1).
const FIELD_OVERHEAD: usize = 32;
/// Divisor of the maximum head size: a quarter of it is counted for each stream in addition to its head.
const STREAM_OVERHEAD_DIVISOR: usize = 4;

/// Bytes that are held by the request heads of additional streams of all connections.
#[derive(Debug, Default)]
pub(super) struct HeaderBudget {
    held: AtomicUsize,
}

/// Reservation of one head, released on drop.
#[derive(Debug)]
pub(super) struct HeaderReservation {
    heads: Arc<HeaderBudget>,
    bytes: usize,
}

impl HeaderBudget {
    /// Reserves `bytes`; returns `None` if the total would exceed `max_bytes`.
    pub(super) fn try_reserve(self: &Arc<Self>, bytes: usize, max_bytes: usize) -> Option<HeaderReservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= max_bytes);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(HeaderReservation { heads: self.clone(), bytes })
    }
}

impl Drop for HeaderReservation {
    fn drop(&mut self) {
        self.heads.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the limit on the bytes of additional heads: the largest head for each request that may be active or queued.
/// A head of usual size costs less than half of the largest one, so active and queued requests always fit.
pub(super) fn header_budget_limit(settings: &Settings) -> usize {
    let requests = settings.overload.requests.saturating_add(settings.overload.queue);
    requests.saturating_mul(settings.limits.head)
}

/// Returns the size of a head in bytes: its path, and its fields with the overhead of RFC 9113 §10.5.1 for each. The
/// other pseudo-header fields are not counted.
pub(super) fn header_list_size(head: &RequestHeader) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
    head.raw_path().len() + fields.sum::<usize>()
}

/// Returns the bytes that a head counts in the budget: its size, and a quarter of the largest head for its stream.
pub(super) fn header_cost(head: &RequestHeader, largest: usize) -> usize {
    header_list_size(head) + largest / STREAM_OVERHEAD_DIVISOR
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
