//! Fallback forms of a conversation, for templates that refuse the original.

use crate::conversation::{PromptMessage, SpeakerRole};
use std::borrow::Cow;

/// Change of the system messages of a conversation that a template has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemMessageFallback {
    /// The conversation is passed to the template without a change.
    None,
    /// System messages after the leading ones become user messages. As for `AllSystem`, consecutive messages of one
    /// role are then merged, except tool messages.
    LaterSystem,
    /// All system messages become user messages.
    AllSystem,
}

/// Returns the changed messages; `None` if nothing changed, so that rendering them would fail again.
pub(super) fn apply_fallback(
    turns: &[PromptMessage],
    fold: SystemMessageFallback,
) -> Option<Cow<'_, [PromptMessage]>> {
    if fold == SystemMessageFallback::None {
        return Some(Cow::Borrowed(turns));
    }
    let mut out: Vec<PromptMessage> = Vec::with_capacity(turns.len());
    let mut leading = fold == SystemMessageFallback::LaterSystem;
    for turn in turns {
        leading &= turn.role == SpeakerRole::System;
        let mut turn = turn.clone();
        if turn.role == SpeakerRole::System && !leading {
            turn.role = SpeakerRole::User;
        }
        match out.last_mut() {
            Some(last) if last.role == turn.role && turn.role != SpeakerRole::Tool => {
                last.append_message(turn)
            }
            _ => out.push(turn),
        }
    }
    let changed = out.len() != turns.len() || out.iter().zip(turns).any(|(new, old)| new.role != old.role);
    changed.then_some(Cow::Owned(out))
}
