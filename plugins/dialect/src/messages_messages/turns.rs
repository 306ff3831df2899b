//! The conversation where the provider does not take it as it came, in slices of
//! the client's own bytes.
//!
//! - Texts that no provider should get are left out: those of white space alone,
//!   which clients send back from our own answers, and the billing header of
//!   coding agents.
//! - Ids of calls from elsewhere are told in characters that every provider takes.
//! - System turns of a provider that takes none join `system` if they lead, else
//!   the user turn next to them, behind its tool results and marked as not from
//!   the user. None is ever moved to the front: that would change the prompt's
//!   prefix on every turn.

use super::said::{Content, Said, around};
use crate::body_builder::BodyBuilder;
use crate::event::EscapedText;
use crate::json_cursor::{self, JsonCursor};
use penstock_contract::{AttemptTarget, InferenceRequest};
use std::convert::Infallible;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    User,
    Assistant,
    System,
}

/// One message. Without bytes of its own it is a turn of the user that the gateway makes.
#[derive(Default)]
struct Turn<'a> {
    role: Role,
    message: &'a [u8],
    content: Content<'a>,
}

/// `system` and `messages` as the provider takes them.
pub(super) struct Conversation<'a> {
    system: Option<Content<'a>>,
    turns: Vec<Turn<'a>>,
    /// System turns are folded into others.
    fold: bool,
    /// System texts that wait for the next turn of the user.
    carry: Vec<Said<'a>>,
    /// Tool calls that wait for their results.
    pending: usize,
    /// A message was left out behind the last turn.
    gap: bool,
}

impl<'a> Conversation<'a> {
    /// What is to be said instead; none where the client's own members may pass.
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
                // Results may be missing only where this says more of the same turn.
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
            // Between the two there was an empty answer: strict templates want turns to alternate.
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

    /// Makes a turn of the user for what waited for one.
    fn let_go(&mut self) {
        if !self.carry.is_empty() {
            let mut turn = Turn::default();
            turn.content.insert(std::mem::take(&mut self.carry));
            self.turns.push(turn);
        }
    }

    /// Writes the two members; `delivered` is what the assistant has said in answer to all this.
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
            // A turn of the user is never left out: that would be another conversation.
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

/// The turn, with the comma before it, that asks the provider to go on.
pub(super) fn continuation(delivered: &str, out: &mut BodyBuilder<'_>) {
    out.push_str(r#",{"role":"assistant","content":""#);
    out.push_source(EscapedText::new(delivered).escaped());
    out.push_str(r#""}"#);
}
