//! Ids of tool calls that a conversation uses again in a later turn. Providers of the messages and responses dialects
//! need unique ids, so that a result refers to exactly one call.

use crate::messages_to_chat::ids::{FNV_OFFSET_BASIS, fnv1a_update, portable_call_id};
use penstock_json_scan::json;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum length of a call id at responses providers, in bytes.
const MAX_RESPONSES_ID_BYTES: usize = 64;

/// Call ids of a conversation so far. A map is used because a client may send half a million calls.
#[derive(Default)]
pub(crate) struct RepeatedCallIds<'a>(HashMap<Cow<'a, str>, CallsOfId>);

/// Calls with one id.
struct CallsOfId {
    /// Number of calls so far.
    count: u32,
    /// Index of the message with the last call.
    message: usize,
    /// Number of calls before that message.
    count_before: u32,
    /// Number of results since that message.
    result_count: u32,
}

impl<'a> RepeatedCallIds<'a> {
    /// Adds a call of the message with this index; returns the number of earlier calls with the same id.
    pub(crate) fn add_call(&mut self, id: &'a [u8], message: usize) -> u32 {
        let entry = self.0.entry(json::unescape_lossy(id).unwrap_or_default());
        let calls = entry.or_insert(CallsOfId { count: 0, message, count_before: 0, result_count: 0 });
        if calls.message != message {
            *calls = CallsOfId { message, count_before: calls.count, result_count: 0, ..*calls };
        }
        calls.count += 1;
        calls.count - 1
    }

    /// Returns the number of earlier calls with the id of the call that the next result answers: the first unanswered
    /// call with this id in the last message that has one.
    pub(crate) fn add_result(&mut self, id: &[u8]) -> u32 {
        let id = json::unescape_lossy(id).unwrap_or_default();
        let Some(calls) = self.0.get_mut(&*id) else { return 0 };
        calls.result_count = calls.result_count.saturating_add(1);
        (calls.count_before.saturating_add(calls.result_count - 1)).min(calls.count - 1)
    }
}

/// Returns the id of a call (body of a JSON string) for messages providers; `repetition` is the number of earlier calls
/// with the same id.
pub(crate) fn messages_call_id(id: &[u8], repetition: u32) -> Cow<'_, [u8]> {
    if repetition == 0 { portable_call_id(id) } else { repeated_call_id(id, repetition) }
}

/// Returns the id of a call (body of a JSON string) for responses providers: unchanged, unless it is repeated or too
/// long.
pub(crate) fn responses_call_id(id: &[u8], repetition: u32) -> Cow<'_, [u8]> {
    let is_long = || json::unescape_lossy(id).is_some_and(|id| id.len() > MAX_RESPONSES_ID_BYTES);
    if repetition == 0 && !is_long() { Cow::Borrowed(id) } else { repeated_call_id(id, repetition) }
}

/// Returns an id that consists of two hashes of the repeated id and the number of its repetition.
fn repeated_call_id(id: &[u8], repetition: u32) -> Cow<'static, [u8]> {
    let id = json::unescape_lossy(id).unwrap_or_default();
    let start = fnv1a_update(FNV_OFFSET_BASIS, &repetition.to_be_bytes());
    let (one, other) =
        (fnv1a_update(start, id.as_bytes()), fnv1a_update(fnv1a_update(start, b"id"), id.as_bytes()));
    Cow::Owned(format!("call_{one:016x}{other:016x}").into_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn a_result_belongs_to_the_call_of_its_turn() {
        let mut ids = RepeatedCallIds::default();
        assert_eq!((ids.add_call(b"a", 1), ids.add_call(b"b", 1)), (0, 0));
        assert_eq!((ids.add_result(b"a"), ids.add_result(br"\u0062"), ids.add_result(b"a")), (0, 0, 0));
        assert_eq!((ids.add_call(br"\u0061", 3), ids.add_call(b"a", 3)), (1, 2));
        assert_eq!((ids.add_result(b"a"), ids.add_result(b"a"), ids.add_result(b"a")), (1, 2, 2));
        // An earlier call without a result does not get the result of a later one.
        assert_eq!((ids.add_call(b"c", 4), ids.add_call(b"c", 5), ids.add_result(b"c")), (0, 1, 1));
        assert_eq!(ids.add_result(b"unknown"), 0);
    }

    #[test]
    fn each_repetition_has_an_id_of_its_own() {
        let long = "x".repeat(65);
        let mut seen: Vec<_> = (0..4).map(|repetition| messages_call_id(b"call_1", repetition)).collect();
        seen.extend((1..4).map(|repetition| messages_call_id(b"call_2", repetition)));
        seen.extend((0..2).map(|repetition| responses_call_id(long.as_bytes(), repetition)));
        assert!(seen.iter().enumerate().all(|(at, id)| id.len() <= 64 && !seen[..at].contains(id)));
        assert_eq!(messages_call_id(b"call_1", 0), &b"call_1"[..]);
        assert_eq!(responses_call_id(b"a:b", 0), &b"a:b"[..]);
        assert_eq!(messages_call_id(br"call_\u0031", 2), messages_call_id(b"call_1", 2));
    }
}
