//! Writer of the `messages` member: forwards it unchanged if the provider accepts
//! it, and rewrites it message by message otherwise.

use super::turns::Turns;
use crate::body_builder::BodyBuilder;
use penstock_core::{ApiError, AttemptTarget, ContinuationMethod, InferenceRequest, PrefillMethod};
use std::borrow::Cow;
use std::ops::Range;

/// Marker of a final assistant message that the provider must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// No message to continue.
    None,
    /// No marker: the provider continues such a message by itself.
    Nothing,
    /// Member `prefix` of the message.
    Prefix,
    /// Members `add_generation_prompt` and `continue_final_message` of the request.
    Switch,
}

/// Writes `messages` and the marker of a last message to continue.
///
/// # Errors
/// Returns `Unsupported` if this provider cannot continue a message.
pub(super) fn write(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let Some(field) = ask.members.get("messages") else {
        return Err(ApiError::invalid("messages", "`messages` is missing."));
    };
    let mark = mark(ask, target, delivered.is_some())?;
    out.push_str(r#","messages":"#);
    let range = field.value.clone();
    if delivered.is_none() && mark != Mark::Prefix && !needs_rewriting(ask, target) {
        edited(ask, range, &mut |bytes| out.push_source(bytes));
    } else {
        let canonical = canonical(ask, range);
        let mut turns = Turns::read(&canonical);
        turns.fit(target.capabilities);
        if let Some(delivered) = delivered {
            turns.go_on(delivered, ask.required.prefill)?;
        }
        turns.write(target, mark == Mark::Prefix, out);
    }
    if mark == Mark::Switch {
        out.push_str(r#","add_generation_prompt":false,"continue_final_message":true"#);
    }
    Ok(())
}

fn mark(ask: &InferenceRequest, target: &AttemptTarget<'_>, rescue: bool) -> Result<Mark, ApiError> {
    let abilities = target.capabilities;
    let by_message = match abilities.prefill {
        PrefillMethod::Automatic => Mark::Nothing,
        _ => Mark::Prefix,
    };
    match (rescue, target.continuation(), target.prefill()) {
        (true, Some(ContinuationMethod::ContinueFinalMessage), _) => Ok(Mark::Switch),
        (true, Some(ContinuationMethod::Prefill), _) => Ok(by_message),
        (false, ..) if !ask.required.prefill => Ok(Mark::None),
        (false, _, PrefillMethod::ContinueFinalMessage) => Ok(Mark::Switch),
        (false, _, PrefillMethod::Prefix | PrefillMethod::Automatic) => Ok(by_message),
        (true, None, _) | (false, _, PrefillMethod::None) => Err(ApiError::unsupported(
            "messages",
            "This model does not continue a last message of the assistant.",
        )),
    }
}

/// Returns true if the messages contain something that this provider rejects.
const fn needs_rewriting(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    let (abilities, said) = (target.capabilities, ask.said);
    said.reasoning
        || (abilities.short_tool_ids && said.calls)
        || (!abilities.tool_images && ask.images > 0 && said.results)
        || (!abilities.system_anywhere && said.late_system_messages)
}

/// Calls `put` for the bytes of a range of the request body, with the edits applied.
pub(super) fn edited(ask: &InferenceRequest, range: Range<usize>, put: &mut impl FnMut(&[u8])) {
    let first = ask.edits.partition_point(|edit| edit.range.start < range.start);
    let mut at = range.start;
    for edit in ask.edits.get(first..).unwrap_or_default() {
        if edit.range.end > range.end {
            break;
        }
        put(ask.body.get(at..edit.range.start).unwrap_or_default());
        put(&edit.replacement);
        at = edit.range.end;
    }
    put(ask.body.get(at..range.end).unwrap_or_default());
}

/// Returns the messages with the request's edits; borrowed if there are none.
fn canonical(ask: &InferenceRequest, range: Range<usize>) -> Cow<'_, [u8]> {
    let touched = ask.edits.iter().any(|edit| edit.range.start >= range.start && edit.range.end <= range.end);
    if !touched {
        return Cow::Borrowed(ask.body.get(range).unwrap_or_default());
    }
    let mut whole = Vec::with_capacity(range.len());
    edited(ask, range, &mut |bytes| whole.extend_from_slice(bytes));
    Cow::Owned(whole)
}
