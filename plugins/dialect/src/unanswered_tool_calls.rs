//! Unanswered tool calls of a conversation: calls that have no result so far.
//!
//! Strict chat templates and messages providers accept a call only if the next message answers it, and a result only
//! for such a call. The callers refuse other requests, each with the error of its client dialect.

use penstock_json_scan::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Tool calls that have no result so far, by id. A map is used because a client may send half a million calls. `At` is
/// the type of the position of a call in the request.
pub(crate) struct UnansweredToolCalls<'a, At> {
    calls: HashMap<Cow<'a, str>, UnansweredCall<At>>,
    /// Number of tool calls so far.
    call_count: usize,
}

struct UnansweredCall<At> {
    number: usize,
    position: At,
}

/// Unescapes an id, so that two notations of the same id are equal.
fn decode_id(id: &[u8]) -> Cow<'_, str> {
    json::unescape_lossy(id).unwrap_or_default()
}

impl<At> Default for UnansweredToolCalls<'_, At> {
    fn default() -> Self {
        Self { calls: HashMap::new(), call_count: 0 }
    }
}

impl<'a, At> UnansweredToolCalls<'a, At> {
    /// Returns true if every call has a result.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a call; returns false if another unanswered call has this id.
    #[must_use]
    pub(crate) fn add_call(&mut self, id: &'a [u8], position: At) -> bool {
        match self.calls.entry(decode_id(id)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(UnansweredCall { number: self.call_count, position });
                self.call_count += 1;
                true
            }
        }
    }

    /// Removes the call with this id, which a result answers; returns false if no unanswered call has this id.
    #[must_use]
    pub(crate) fn remove_answered(&mut self, id: &[u8]) -> bool {
        self.calls.remove(&*decode_id(id)).is_some()
    }

    /// Returns the position of the unanswered call that was added first; `None` if every call has a result.
    pub(crate) fn first_unanswered_position(&self) -> Option<&At> {
        self.calls.values().min_by_key(|call| call.number).map(|call| &call.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of calls that fit into one request body. With a linear search for each call, the test would take minutes.
    const MANY: usize = 300_000;

    #[test]
    fn many_calls_and_results_are_matched_in_linear_time() {
        let ids: Vec<String> = (0..MANY).map(|number| format!("call_{number}")).collect();
        let mut waiting = UnansweredToolCalls::default();
        for (number, id) in ids.iter().enumerate() {
            assert!(waiting.add_call(id.as_bytes(), number));
        }
        assert!(!waiting.add_call(b"call_7", MANY));
        assert!(!waiting.add_call(br"call_\u0037", MANY));
        for id in ids.iter().skip(1) {
            assert!(waiting.remove_answered(id.as_bytes()));
        }
        assert!(!waiting.remove_answered(b"call_7"));
        assert_eq!(waiting.first_unanswered_position(), Some(&0));
        assert!(waiting.remove_answered(br"c\u0061ll_0"));
        assert!(waiting.is_empty() && waiting.first_unanswered_position().is_none());
    }
}
