//! Tool calls that wait for their results.
//!
//! A messages provider takes a call only if the user's next turn answers it,
//! and a result only of such a call. Engines of the chat dialect are not so
//! strict, so what a client may send them is refused here by its field, where a
//! provider would refuse the whole request in words of its own.

use penstock_contract::Refusal;
use penstock_wire::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The calls of the assistant's last turn that have no result yet, by their ids: a client may send half a million.
#[derive(Default)]
pub(super) struct Waiting<'a> {
    calls: HashMap<Cow<'a, str>, Call>,
    /// Calls so far.
    number: usize,
}

struct Call {
    number: usize,
    /// Its path.
    at: String,
}

/// Ids are the same whatever their escapes are.
fn read(id: &[u8]) -> Cow<'_, str> {
    json::unescape_lossy(id).unwrap_or_default()
}

impl<'a> Waiting<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A call of this id, at this path.
    ///
    /// # Errors
    /// Another call of the turn has the id.
    pub(super) fn asked(&mut self, id: &'a [u8], at: String) -> Result<(), Refusal> {
        match self.calls.entry(read(id)) {
            Entry::Occupied(_) => Err(Refusal::invalid(
                format!("{at}.id"),
                "With this model's provider each tool call of a turn needs an id of its own.",
            )),
            Entry::Vacant(place) => {
                place.insert(Call { number: self.number, at });
                self.number += 1;
                Ok(())
            }
        }
    }

    /// A result for this id; `at` is its message's path.
    ///
    /// # Errors
    /// No call of the turn before has the id, or it has its result.
    pub(super) fn answered(&mut self, id: &[u8], at: impl FnOnce() -> String) -> Result<(), Refusal> {
        match self.calls.remove(&*read(id)) {
            Some(_) => Ok(()),
            None => Err(Refusal::invalid(
                format!("{}.tool_call_id", at()),
                "With this model's provider a result needs a tool call with its id in the assistant's turn \
                 before it, each answered once.",
            )),
        }
    }

    /// The assistant speaks again, or the conversation is over.
    ///
    /// # Errors
    /// A call has no result.
    pub(super) fn all_answered(&self) -> Result<(), Refusal> {
        match self.calls.values().min_by_key(|call| call.number) {
            None => Ok(()),
            Some(call) => Err(Refusal::invalid(
                call.at.as_str(),
                "With this model's provider each tool call needs a `tool` message with its id before the \
                 assistant's next message.",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// As many as a body holds; were each looked for among all, it would take minutes.
    const MANY: usize = 300_000;

    #[test]
    fn many_calls_and_results_are_matched_at_once() {
        let ids: Vec<String> = (0..MANY).map(|number| format!("call_{number}")).collect();
        let mut waiting = Waiting::default();
        for id in &ids {
            waiting.asked(id.as_bytes(), String::new()).unwrap();
        }
        assert!(waiting.asked(b"call_7", "messages[1].tool_calls[300000]".to_owned()).is_err());
        for id in ids.iter().skip(1) {
            waiting.answered(id.as_bytes(), String::new).unwrap();
        }
        assert!(waiting.answered(b"call_7", || "messages[9]".to_owned()).is_err());
        assert!(waiting.all_answered().is_err());
        waiting.answered(b"call_0", String::new).unwrap();
        assert!(waiting.is_empty() && waiting.all_answered().is_ok());
    }
}
