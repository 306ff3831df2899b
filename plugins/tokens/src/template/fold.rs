//! Fallback forms of a conversation, for templates that refuse the original.

use crate::conversation::{Part, Role, Turn};
use std::borrow::Cow;

/// Degree of the change to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// No change.
    None,
    /// System messages after the leading ones become user messages, and neighbours of one role are merged.
    Later,
    /// All system messages become user messages.
    All,
}

/// Returns the changed messages; `None` if nothing changes, so that another attempt would fail as well.
pub(super) fn folded(turns: &[Turn], fold: Fold) -> Option<Cow<'_, [Turn]>> {
    if fold == Fold::None {
        return Some(Cow::Borrowed(turns));
    }
    let mut out: Vec<Turn> = Vec::with_capacity(turns.len());
    let mut leading = fold == Fold::Later;
    for turn in turns {
        leading &= turn.role == Role::System;
        let mut turn = turn.clone();
        if turn.role == Role::System && !leading {
            turn.role = Role::User;
        }
        match out.last_mut() {
            Some(last) if last.role == turn.role && turn.role != Role::Tool => join(last, turn),
            _ => out.push(turn),
        }
    }
    let changed = out.len() != turns.len() || out.iter().zip(turns).any(|(new, old)| new.role != old.role);
    changed.then_some(Cow::Owned(out))
}

fn join(last: &mut Turn, turn: Turn) {
    if !last.parts.is_empty() && !turn.parts.is_empty() {
        match last.parts.last_mut() {
            Some(Part::Text(text)) => text.push_str("\n\n"),
            _ => last.parts.push(Part::Text("\n\n".to_owned())),
        }
    }
    last.listed |= turn.listed;
    last.calls.extend(turn.calls);
    last.reasoning = last.reasoning.take().or(turn.reasoning);
    for part in turn.parts {
        match (last.parts.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more)) if !last.listed => text.push_str(&more),
            (_, part) => last.parts.push(part),
        }
    }
}
