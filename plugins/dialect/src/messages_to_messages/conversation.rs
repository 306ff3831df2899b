//! Rewriting of a conversation that a provider would reject or could not cache. The result consists of slices of the
//! client's bytes.
//!
//! - Removes texts that no provider should receive: blank ones, which clients send back from the gateway's own answers,
//!   and the billing header of coding agents.
//! - Leaves out system messages that a later user message hides from the model.
//! - Replaces call ids with characters that some providers reject, and adds an empty input to calls without one.
//! - If the provider rejects system messages, leading ones join `system`, and later ones join an adjacent user message,
//!   after its tool results and marked as not from the user. Later ones never move to the front, because that would
//!   change the prompt's prefix on every turn.

use super::content::{EditedContent, RewrittenBlock, split_around};
use crate::body_builder::BodyBuilder;
use crate::event::EscapedText;
use crate::json_cursor::{self, JsonCursor};
use crate::system_messages::{self, HiddenSystemMessages};
use penstock_core::{ApiError, AttemptTarget, InferenceRequest};
use std::convert::Infallible;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HistoryRole {
    #[default]
    User,
    Assistant,
    System,
}

/// Message of the conversation. If `source` is empty, it is a user message that the gateway adds.
#[derive(Default)]
struct HistoryMessage<'a> {
    role: HistoryRole,
    source: &'a [u8],
    content: EditedContent<'a>,
    /// Time at which a system message is hidden from the model.
    clear_at: Option<&'a [u8]>,
    /// True if the message has settings (`output_config`), so that it has an effect without content.
    has_settings: bool,
}

/// Values of `system` and `messages` that the provider accepts.
pub(super) struct RewrittenConversation<'a> {
    system: Option<EditedContent<'a>>,
    messages: Vec<HistoryMessage<'a>>,
    /// True if system messages are moved into other messages.
    folds_system: bool,
    /// System texts for the next user message.
    pending_system: Vec<RewrittenBlock<'a>>,
    /// Number of tool calls without a result so far.
    unanswered_calls: usize,
    /// True if an empty message was dropped after the last message.
    has_gap: bool,
}

impl<'a> RewrittenConversation<'a> {
    /// Returns the rewritten conversation; `None` if the client's members can be forwarded unchanged.
    ///
    /// # Errors
    /// Returns `Unsupported` for settings of a system message that would be lost, and `InvalidRequest` if no message is
    /// left.
    pub(super) fn from_request(
        ask: &'a InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Option<Self>, ApiError> {
        let fold = ask.history.late_system_messages && !target.capabilities.system_anywhere;
        if fold {
            system_messages::check_no_message_effort(ask)?;
        }
        let history = &ask.history;
        let is_unchanged = !(fold || history.removable_text || history.hidden_system_messages);
        if is_unchanged && !history.nonstandard_ids && !history.calls_without_input {
            return Ok(None);
        }
        let system =
            ask.member_value("system").map(|system| EditedContent::parse(&mut JsonCursor::new(system), true));
        let mut rewritten = Self {
            system,
            messages: Vec::new(),
            folds_system: fold,
            pending_system: Vec::new(),
            unanswered_calls: 0,
            has_gap: false,
        };
        let hidden = HiddenSystemMessages::from_request(ask);
        let Ok(()) = JsonCursor::new(ask.member_value("messages").unwrap_or_default())
            .visit_elements::<Infallible>(|index, message| {
                let message = HistoryMessage::parse(message);
                let is_hidden = message.clear_at.is_some_and(|clear_at| hidden.hides(index, clear_at));
                if message.role != HistoryRole::System || !is_hidden {
                    rewritten.add_message(message);
                }
                Ok(())
            });
        rewritten.flush_pending_system();
        if rewritten.messages.iter().all(|message| message.role == HistoryRole::System) {
            return Err(ApiError::invalid("messages", "There must be at least one message with content."));
        }
        Ok(Some(rewritten))
    }

    fn add_message(&mut self, mut turn: HistoryMessage<'a>) {
        if turn.content.is_empty() && !turn.has_settings {
            self.has_gap = true;
            return;
        }
        match turn.role {
            HistoryRole::System if self.folds_system => return self.fold(turn.content),
            HistoryRole::System => {}
            HistoryRole::Assistant => {
                // If tool calls are unanswered, the message continues the same turn and may contain their results.
                if self.unanswered_calls == 0 {
                    self.flush_pending_system();
                }
                self.unanswered_calls += turn.content.call_count;
            }
            HistoryRole::User => {
                self.unanswered_calls = self.unanswered_calls.saturating_sub(turn.content.result_count);
                if self.unanswered_calls == 0 {
                    turn.content.insert_system_texts(std::mem::take(&mut self.pending_system));
                }
            }
        }
        let gap = std::mem::take(&mut self.has_gap);
        match self.messages.last_mut() {
            // An empty message between two messages of the same role was dropped. The second message is dropped too if
            // it has only blank text, because strict templates require alternating roles.
            Some(last) if gap && last.role == turn.role && turn.content.has_only_blank_text => {}
            Some(last) if gap && last.role == turn.role => last.content.append(turn.content),
            _ => self.messages.push(turn),
        }
    }

    fn fold(&mut self, system: EditedContent<'a>) {
        match self.messages.last_mut() {
            None => self.system.get_or_insert_default().append(system),
            Some(turn) if turn.role == HistoryRole::User && self.unanswered_calls == 0 => {
                turn.content.append(system.mark_as_system())
            }
            Some(_) => self.pending_system.extend(system.mark_as_system().blocks),
        }
    }

    /// Adds a user message with the pending system texts.
    fn flush_pending_system(&mut self) {
        if !self.pending_system.is_empty() {
            let mut turn = HistoryMessage::default();
            turn.content.insert_system_texts(std::mem::take(&mut self.pending_system));
            self.messages.push(turn);
        }
    }

    /// Writes `system` and `messages`, each after a comma. `delivered` is the delivered text of the answer, which the
    /// provider must continue.
    pub(super) fn write(&self, delivered: Option<&str>, out: &mut BodyBuilder<'_>) {
        if let Some(system) = self.system.as_ref().filter(|system| !system.is_empty()) {
            out.push_str(r#","system":"#);
            system.write(out);
        }
        out.push_str(r#","messages":["#);
        for (at, turn) in self.messages.iter().enumerate() {
            if at > 0 {
                out.push_byte(b',');
            }
            turn.write(out);
        }
        if let Some(delivered) = delivered {
            write_continuation(delivered, out);
        }
        out.push_byte(b']');
    }
}

impl<'a> HistoryMessage<'a> {
    fn parse(message: &mut JsonCursor<'a>) -> Self {
        let start = message.position();
        let mut turn = Self::default();
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match key {
                "role" => {
                    turn.role = match &*json_cursor::parse_string(value.take_value()).unwrap_or_default() {
                        "assistant" => HistoryRole::Assistant,
                        "system" => HistoryRole::System,
                        _ => HistoryRole::User,
                    }
                }
                "content" => turn.content = EditedContent::parse(value, false),
                "clear_at" => turn.clear_at = Some(value.take_value()),
                "output_config" => turn.has_settings = json_cursor::is_object(value.take_value()),
                _ => {}
            }
            Ok(())
        });
        turn.source = message.slice_from(start);
        turn.has_settings &= turn.role == HistoryRole::System;
        match turn.role {
            HistoryRole::System => turn.content.remove_billing_header(),
            // A user message that became empty gets its content back, because a dropped message would change the
            // conversation.
            HistoryRole::User => turn.content = turn.content.restore_if_empty(),
            HistoryRole::Assistant => {}
        }
        turn
    }

    fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.content.is_changed {
            return out.push_source(self.source);
        }
        let (before, after) = match self.source {
            [] => (&br#"{"role":"user","content":"#[..], &b"}"[..]),
            message => split_around(message, self.content.value).unwrap_or_default(),
        };
        out.push_source(before);
        self.content.write(out);
        out.push_source(after);
    }
}

/// Writes a comma and the assistant message that the provider must continue.
pub(super) fn write_continuation(delivered: &str, out: &mut BodyBuilder<'_>) {
    out.push_str(r#",{"role":"assistant","content":""#);
    out.push_source(EscapedText::new(delivered).escaped());
    out.push_str(r#""}"#);
}
