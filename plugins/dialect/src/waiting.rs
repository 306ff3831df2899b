//! Tool calls that wait for their results, in a conversation of either dialect.
//!
//! Strict templates and messages providers take a call only if the next turn
//! answers it, and a result only of such a call. A client's dialect has its own
//! words for what is wrong then: here it is only found out.

use penstock_wire::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The calls of the assistant's last turn that have no result yet, by their ids: a client may send half a million.
/// `At` says where a call stands.
pub(crate) struct Waiting<'a, At> {
    calls: HashMap<Cow<'a, str>, Call<At>>,
    /// Calls so far.
    number: usize,
}

struct Call<At> {
    number: usize,
    at: At,
}

/// Ids are the same whatever their escapes are.
fn read(id: &[u8]) -> Cow<'_, str> {
    json::unescape_lossy(id).unwrap_or_default()
}

impl<At> Default for Waiting<'_, At> {
    fn default() -> Self {
        Self { calls: HashMap::new(), number: 0 }
    }
}

impl<'a, At> Waiting<'a, At> {
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A call of this id; false if another one that waits has it.
    #[must_use]
    pub(crate) fn asked(&mut self, id: &'a [u8], at: At) -> bool {
        match self.calls.entry(read(id)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Call { number: self.number, at });
                self.number += 1;
                true
            }
        }
    }

    /// A result for this id; false if no call that waits has it.
    #[must_use]
    pub(crate) fn answered(&mut self, id: &[u8]) -> bool {
        self.calls.remove(&*read(id)).is_some()
    }

    /// Where the first call without a result stands.
    pub(crate) fn first(&self) -> Option<&At> {
        self.calls.values().min_by_key(|call| call.number).map(|call| &call.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as a body holds; were each looked for among all, it would take minutes.
    const MANY: usize = 300_000;

    #[test]
    fn many_calls_and_results_are_matched_at_once() {
        let ids: Vec<String> = (0..MANY).map(|number| format!("call_{number}")).collect();
        let mut waiting = Waiting::default();
        for (number, id) in ids.iter().enumerate() {
            assert!(waiting.asked(id.as_bytes(), number));
        }
        assert!(!waiting.asked(b"call_7", MANY));
        assert!(!waiting.asked(br"call_\u0037", MANY));
        for id in ids.iter().skip(1) {
            assert!(waiting.answered(id.as_bytes()));
        }
        assert!(!waiting.answered(b"call_7"));
        assert_eq!(waiting.first(), Some(&0));
        assert!(waiting.answered(br"c\u0061ll_0"));
        assert!(waiting.is_empty() && waiting.first().is_none());
    }
}
