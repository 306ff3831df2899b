//! Conversion of a message's content: its blocks become system texts, tool results, or texts and calls of the
//! assistant.

use super::block::{ContentBlock, ContentPart, EscapedBytes, MessageContent, append_content_parts};
use super::conversation::{AssistantMessage, ToolResultBlock, ToolUse, UserMessage};
use crate::json_cursor;
use penstock_core::ApiError;
use std::borrow::Cow;

/// Prefix of a system text in which coding agents send a hash of each request. With this text, no provider could cache
/// the prefix of the prompt.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// Adds the texts of a system prompt. A block with the billing header is dropped, but not a string with it, because the
/// string is the complete prompt.
pub(super) fn append_system_texts<'a>(
    content: &MessageContent<'a>,
    path: &dyn Fn() -> String,
    out: &mut Vec<EscapedBytes<'a>>,
) -> Result<(), ApiError> {
    let mut parts = Vec::new();
    append_content_parts(content, path, &mut parts)?;
    let blocks = matches!(content, MessageContent::Blocks(_));
    for part in parts {
        match part {
            ContentPart::Text(text) if blocks && text.starts_with(BILLING_HEADER) => {}
            ContentPart::Text(text) => out.push(text),
            ContentPart::InlineImage { .. } | ContentPart::ImageUrl(_) => {
                return Err(ApiError::unsupported(path(), "A system prompt can hold text only."));
            }
        }
    }
    Ok(())
}

/// Parses a `tool_result` block.
pub(super) fn parse_tool_result<'a>(
    block: &ContentBlock<'a>,
    path: &dyn Fn() -> String,
) -> Result<ToolResultBlock<'a>, ApiError> {
    let id = block.tool_use_id.ok_or_else(|| {
        ApiError::invalid(
            format!("{}.tool_use_id", path()),
            "A `tool_result` block needs a string `tool_use_id`.",
        )
    })?;
    let mut parts = Vec::new();
    if let Some(content) = &block.content {
        append_content_parts(content, &|| format!("{}.content", path()), &mut parts)?;
    }
    Ok(ToolResultBlock { id, parts, is_error: block.is_error })
}

/// Adds one block of an assistant message to the turn.
pub(super) fn append_assistant_block<'a>(
    block: &ContentBlock<'a>,
    path: &dyn Fn() -> String,
    turn: &mut AssistantMessage<'a>,
) -> Result<(), ApiError> {
    match &*block.kind {
        "text" => turn.texts.push(Cow::Borrowed(block.text.unwrap_or_default())),
        "thinking" => {
            turn.reasoning.extend(block.thinking.filter(|text| !text.is_empty()).map(Cow::Borrowed))
        }
        // Encrypted reasoning of another vendor is dropped, because no model behind the gateway can read it.
        "redacted_thinking" => {}
        "tool_use" => {
            let input = block.input.filter(|input| !json_cursor::is_null(input)).unwrap_or(b"{}");
            match (block.id, block.name) {
                (Some(id), Some(name)) if json_cursor::is_object(input) => {
                    turn.calls.push(ToolUse { id, name, input })
                }
                _ => {
                    return Err(ApiError::invalid(
                        path(),
                        "A `tool_use` block needs strings `id` and `name` and an object `input`.",
                    ));
                }
            }
        }
        _ => {
            let mut parts = Vec::new();
            block.append_parts(path, &mut parts)?;
            for part in parts {
                match part {
                    ContentPart::Text(text) => turn.texts.push(text),
                    ContentPart::InlineImage { .. } | ContentPart::ImageUrl(_) => {
                        return Err(ApiError::unsupported(
                            path(),
                            "An assistant message cannot hold images.",
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Removes white space at the end of a prefill: providers refuse it, and it confuses models.
pub(super) fn trim_trailing_space(texts: &mut Vec<EscapedBytes<'_>>) {
    while let Some(last) = texts.last_mut() {
        let length = json_cursor::trim_string_body_end(last).len();
        match last {
            Cow::Borrowed(text) => *last = Cow::Borrowed(text.get(..length).unwrap_or_default()),
            Cow::Owned(text) => text.truncate(length),
        }
        if length > 0 {
            return;
        }
        texts.pop();
    }
}

/// Adds system texts to the parts of a user turn, or to its last tool result if it has no parts.
pub(super) fn fold_system_texts<'a>(turn: &mut UserMessage<'a>, texts: Vec<EscapedBytes<'a>>) {
    let home = match turn.results.last_mut() {
        Some(result) if turn.parts.is_empty() => &mut result.parts,
        _ => &mut turn.parts,
    };
    home.extend(texts.into_iter().map(mark_as_system));
}

/// Returns a system text as a part of a user turn, marked as not from the user.
pub(super) fn mark_as_system(text: EscapedBytes<'_>) -> ContentPart<'_> {
    ContentPart::Text(Cow::Owned([br"<system>\n", &*text, br"\n</system>"].concat()))
}
