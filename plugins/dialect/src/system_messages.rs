//! System messages inside `messages` of the messages dialect: those that are hidden from the model, and settings that
//! not every provider can apply.

use crate::json_cursor::{self, JsonCursor};
use penstock_core::{ApiError, InferenceRequest};
use penstock_json_scan::json;

/// Positions of the system messages of a request that a later user message hides from the model (`clear_at`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiddenSystemMessages {
    /// Index of the last message of the user; `None` if no message is hidden.
    last_user: Option<usize>,
}

impl HiddenSystemMessages {
    /// Finds the last message of the user, if the validation has found hidden messages.
    pub(crate) fn from_request(ask: &InferenceRequest) -> Self {
        if !ask.history.hidden_system_messages {
            return Self { last_user: None };
        }
        let messages = json_cursor::elements(ask.member_value("messages").unwrap_or_default());
        let users = messages.enumerate().filter(|(_, message)| has_word(message, "role", "user"));
        Self { last_user: users.last().map(|(index, _)| index) }
    }

    /// Returns true if the value of `clear_at` hides the system message at this index.
    pub(crate) fn hides(self, index: usize, clear_at: &[u8]) -> bool {
        self.last_user.is_some_and(|last| index < last)
            && json::json_string_equals(clear_at, "next_user_message")
    }
}

/// Refuses a system message that sets the effort of its turn. Only providers that get the message itself apply it.
///
/// # Errors
/// Returns `Unsupported` with the path of the effort.
pub(crate) fn check_no_message_effort(ask: &InferenceRequest) -> Result<(), ApiError> {
    if !ask.history.late_system_messages {
        return Ok(());
    }
    JsonCursor::new(ask.member_value("messages").unwrap_or_default()).visit_elements(|index, message| {
        let message = message.take_value();
        let effort = json_cursor::member_value(message, "output_config")
            .and_then(|config| json_cursor::member_value(config, "effort"))
            .filter(|effort| !json_cursor::is_null(effort));
        if effort.is_none() || !has_word(message, "role", "system") {
            return Ok(());
        }
        Err(ApiError::unsupported(
            format!("messages.{index}.output_config.effort"),
            "This model has one effort for the whole request; send the top-level `output_config.effort`.",
        ))
    })
}

fn has_word(message: &[u8], name: &str, word: &str) -> bool {
    json_cursor::member_value(message, name).is_some_and(|value| json::json_string_equals(value, word))
}
