//! Conversation rewritten for a provider that would reject the original, in slices
//! of the client's bytes.
//!
//! - Removes texts that no provider should receive: blank ones, which clients send
//!   back from the gateway's own answers, and the billing header of coding agents.
//! - Rewrites foreign call ids in characters that every provider accepts.
//! - If the provider rejects system messages, leading ones join `system`, and later
//!   ones join an adjacent user message, after its tool results and marked as not
//!   from the user. Later ones never move to the front: that would change the
//!   prompt's prefix on every turn.

use super::said::{Content, Said, around};
use crate::body_builder::BodyBuilder;
use crate::event::EscapedText;
use crate::json_cursor::{self, JsonCursor};
use penstock_core::{AttemptTarget, InferenceRequest};
use std::convert::Infallible;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    User,
    Assistant,
    System,
}

/// One message. Without original bytes it is a user message that the gateway adds.
#[derive(Default)]
struct Turn<'a> {
    role: Role,
    message: &'a [u8],
    content: Content<'a>,
}

/// Values of `system` and `messages` that the provider accepts.
pub(super) struct Conversation<'a> {
    system: Option<Content<'a>>,
    turns: Vec<Turn<'a>>,
    /// True if system messages are moved into other messages.
    fold: bool,
    /// System texts for the next user message.
    carry: Vec<Said<'a>>,
    /// Number of tool calls without a result so far.
    pending: usize,
    /// True if a message after the last turn was dropped.
    gap: bool,
}

impl<'a> Conversation<'a> {
    /// Returns the rewritten conversation; `None` if the client's members can be forwarded unchanged.
    pub(super) fn of(ask: &'a InferenceRequest, target: &AttemptTarget<'_>) -> Option<Self> {
        let fold = ask.said.late_system_messages && !target.capabilities.system_anywhere;
        if !fold && !ask.said.removable_text && !ask.said.nonstandard_ids {
            return None;
        }
        let system =
            ask.member_value("system").map(|system| Content::read(&mut JsonCursor::new(system), true));
        let mut told = Self { system, turns: Vec::new(), fold, carry: Vec::new(), pending: 0, gap: false };
        let Ok(()) =
            JsonCursor::new(ask.member_value("messages")?).visit_elements::<Infallible>(|_, message| {
                told.take(Turn::read(message));
                Ok(())
            });
        told.let_go();
        Some(told)
    }

    fn take(&mut self, mut turn: Turn<'a>) {
        if turn.content.is_empty() {
            self.gap = true;
            return;
        }
        match turn.role {
            Role::System if self.fold => return self.fold(turn.content),
            Role::System => {}
            Role::Assistant => {
                // Results can be missing only if this message continues the same turn.
                if self.pending == 0 {
                    self.let_go();
                }
                self.pending += turn.content.calls;
            }
            Role::User => {
                self.pending = self.pending.saturating_sub(turn.content.results);
                if self.pending == 0 {
                    turn.content.insert(std::mem::take(&mut self.carry));
                }
            }
        }
        let gap = std::mem::take(&mut self.gap);
        match self.turns.last_mut() {
            // An empty answer between the two was dropped: strict templates require alternating roles.
            Some(last) if gap && last.role == turn.role && turn.content.idle => {}
            Some(last) if gap && last.role == turn.role => last.content.append(turn.content),
            _ => self.turns.push(turn),
        }
    }

    fn fold(&mut self, system: Content<'a>) {
        match self.turns.last_mut() {
            None => self.system.get_or_insert_default().append(system),
            Some(turn) if turn.role == Role::User && self.pending == 0 => {
                turn.content.append(system.marked())
            }
            Some(_) => self.carry.extend(system.marked().said),
        }
    }

    /// Adds a user message with the pending system texts.
    fn let_go(&mut self) {
        if !self.carry.is_empty() {
            let mut turn = Turn::default();
            turn.content.insert(std::mem::take(&mut self.carry));
            self.turns.push(turn);
        }
    }

    /// Writes the two members; `delivered` is the text of the assistant's answer so far.
    pub(super) fn write(&self, delivered: Option<&str>, out: &mut BodyBuilder<'_>) {
        if let Some(system) = self.system.as_ref().filter(|system| !system.is_empty()) {
            out.push_str(r#","system":"#);
            system.write(out);
        }
        out.push_str(r#","messages":["#);
        for (at, turn) in self.turns.iter().enumerate() {
            if at > 0 {
                out.push_byte(b',');
            }
            turn.write(out);
        }
        if let Some(delivered) = delivered {
            continuation(delivered, out);
        }
        out.push_byte(b']');
    }
}

impl<'a> Turn<'a> {
    fn read(message: &mut JsonCursor<'a>) -> Self {
        let start = message.at();
        let mut turn = Self::default();
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match key {
                "role" => {
                    turn.role = match &*json_cursor::parse_string(value.take_value()).unwrap_or_default() {
                        "assistant" => Role::Assistant,
                        "system" => Role::System,
                        _ => Role::User,
                    }
                }
                "content" => turn.content = Content::read(value, false),
                _ => {}
            }
            Ok(())
        });
        turn.message = message.slice_from(start);
        match turn.role {
            Role::System => turn.content.leave_out_billing(),
            // A user message is never dropped: that would change the conversation.
            Role::User => turn.content = turn.content.unless_empty(),
            Role::Assistant => {}
        }
        turn
    }

    fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.content.changed {
            return out.push_source(self.message);
        }
        let (before, after) = match self.message {
            [] => (&br#"{"role":"user","content":"#[..], &b"}"[..]),
            message => around(message, self.content.value).unwrap_or_default(),
        };
        out.push_source(before);
        self.content.write(out);
        out.push_source(after);
    }
}

/// Writes a comma and the assistant message that the provider must continue.
pub(super) fn continuation(delivered: &str, out: &mut BodyBuilder<'_>) {
    out.push_str(r#",{"role":"assistant","content":""#);
    out.push_source(EscapedText::new(delivered).escaped());
    out.push_str(r#""}"#);
}
