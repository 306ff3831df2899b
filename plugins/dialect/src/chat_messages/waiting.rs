//! Tool calls that wait for their results.
//!
//! A messages provider takes a call only if the user's next turn answers it,
//! and a result only of such a call. Engines of the chat dialect are not so
//! strict, so what a client may send them is refused here by its field, where a
//! provider would refuse the whole request in words of its own.

use penstock_contract::Refusal;
use penstock_wire::json;
use std::borrow::Cow;

/// The calls of the assistant's last turn that have no result yet.
#[derive(Default)]
pub(super) struct Waiting<'a>(Vec<Call<'a>>);

struct Call<'a> {
    id: Cow<'a, str>,
    /// Its path.
    at: String,
}

/// Ids are the same whatever their escapes are.
fn read(id: &[u8]) -> Cow<'_, str> {
    json::unescape_lossy(id).unwrap_or_default()
}

impl<'a> Waiting<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A call of this id, at this path.
    ///
    /// # Errors
    /// Another call of the turn has the id.
    pub(super) fn asked(&mut self, id: &'a [u8], at: String) -> Result<(), Refusal> {
        let id = read(id);
        if self.0.iter().any(|call| call.id == id) {
            return Err(Refusal::invalid(
                format!("{at}.id"),
                "With this model's provider each tool call of a turn needs an id of its own.",
            ));
        }
        self.0.push(Call { id, at });
        Ok(())
    }

    /// A result for this id; `at` is its message's path.
    ///
    /// # Errors
    /// No call of the turn before has the id, or it has its result.
    pub(super) fn answered(&mut self, id: &[u8], at: impl FnOnce() -> String) -> Result<(), Refusal> {
        let id = read(id);
        let Some(found) = self.0.iter().position(|call| call.id == id) else {
            return Err(Refusal::invalid(
                format!("{}.tool_call_id", at()),
                "With this model's provider a result needs a tool call with its id in the assistant's turn \
                 before it, each answered once.",
            ));
        };
        self.0.remove(found);
        Ok(())
    }

    /// The assistant speaks again, or the conversation is over.
    ///
    /// # Errors
    /// A call has no result.
    pub(super) fn all_answered(&self) -> Result<(), Refusal> {
        match self.0.first() {
            None => Ok(()),
            Some(call) => Err(Refusal::invalid(
                call.at.as_str(),
                "With this model's provider each tool call needs a `tool` message with its id before the \
                 assistant's next message.",
            )),
        }
    }
}
