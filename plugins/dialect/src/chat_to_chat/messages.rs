//! Writer of the `messages` member: forwards it unchanged if the provider accepts
//! it, and rewrites it message by message otherwise.

use super::conversation::ChatConversation;
use crate::body_builder::BodyBuilder;
use crate::continuation_mark::ContinuationMark;
use penstock_core::{ApiError, AttemptTarget, InferenceRequest};
use std::borrow::Cow;
use std::ops::Range;

/// Writes `messages` and the mark of a last message to continue.
///
/// # Errors
/// Returns an error if `messages` is missing, or if the provider cannot continue the last message.
pub(super) fn write_messages(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let Some(field) = ask.members.get("messages") else {
        return Err(ApiError::invalid("messages", "`messages` is missing."));
    };
    let mark = continuation_mark(ask, target, delivered.is_some())?;
    out.push_str(r#","messages":"#);
    let range = field.value_range.clone();
    if delivered.is_none() && mark != Some(ContinuationMark::Prefix) && !needs_rewriting(ask, target) {
        for_each_edited_slice(ask, range, &mut |bytes| out.push_source(bytes));
    } else {
        let canonical = edited_messages(ask, range);
        let mut turns = ChatConversation::parse(&canonical);
        turns.relocate_unsupported_content(target.capabilities);
        if let Some(delivered) = delivered {
            // An engine that always continues a last message of the assistant has continued the client's.
            let prefilled = ask.required.prefill || mark == Some(ContinuationMark::Implicit);
            turns.append_delivered_text(delivered, prefilled)?;
        }
        turns.write(target, mark, out);
    }
    if let Some(mark) = mark {
        mark.write_request_members(out);
    }
    Ok(())
}

/// Returns the mark of a last message to continue; `None` if the request does not end with one.
fn continuation_mark(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    rescue: bool,
) -> Result<Option<ContinuationMark>, ApiError> {
    if !rescue && !ask.required.prefill {
        return Ok(None);
    }
    match ContinuationMark::for_target(target, rescue) {
        None => Err(ApiError::unsupported(
            "messages",
            "This model does not continue a last message of the assistant.",
        )),
        mark => Ok(mark),
    }
}

/// Returns true if the messages must be rewritten for this provider, because they contain reasoning, or tool call
/// ids, images in tool results or late system messages that the provider does not accept.
const fn needs_rewriting(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    let (abilities, history) = (target.capabilities, ask.history);
    history.reasoning
        || (abilities.short_tool_ids && history.calls)
        || (!abilities.tool_images && ask.image_count > 0 && history.results)
        || (!abilities.system_anywhere && history.late_system_messages)
}

/// Calls `put` for consecutive slices of a range of the request body, with the edits of the validation applied.
pub(super) fn for_each_edited_slice(
    ask: &InferenceRequest,
    range: Range<usize>,
    put: &mut impl FnMut(&[u8]),
) {
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

/// Returns a range of the request body with the edits of the validation applied; borrowed if it has none.
fn edited_messages(ask: &InferenceRequest, range: Range<usize>) -> Cow<'_, [u8]> {
    let touched = ask.edits.iter().any(|edit| edit.range.start >= range.start && edit.range.end <= range.end);
    if !touched {
        return Cow::Borrowed(ask.body.get(range).unwrap_or_default());
    }
    let mut whole = Vec::with_capacity(range.len());
    for_each_edited_slice(ask, range, &mut |bytes| whole.extend_from_slice(bytes));
    Cow::Owned(whole)
}
