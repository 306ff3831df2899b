//! What one message says: its blocks, sorted into what a turn is made of.

use super::block::{Block, Content, Part, Text, parts_of};
use super::turns::{Assistant, Call, ToolResult};
use crate::json_cursor;
use penstock_contract::ApiError;
use std::borrow::Cow;

/// Coding agents put a hash of each request here, which would defeat every prefix cache.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// The texts of a system prompt. A block with the billing header is left out, and only a block: a string would be the
/// whole prompt.
pub(super) fn system_texts<'a>(
    content: &Content<'a>,
    at: &dyn Fn() -> String,
    out: &mut Vec<Text<'a>>,
) -> Result<(), ApiError> {
    let mut parts = Vec::new();
    parts_of(content, at, &mut parts)?;
    let blocks = matches!(content, Content::Blocks(_));
    for part in parts {
        match part {
            Part::Text(text) if blocks && text.starts_with(BILLING_HEADER) => {}
            Part::Text(text) => out.push(text),
            Part::Inline { .. } | Part::Link(_) => {
                return Err(ApiError::unsupported(at(), "A system prompt can hold text only."));
            }
        }
    }
    Ok(())
}

/// One answer to a tool call.
pub(super) fn tool_result<'a>(
    block: &Block<'a>,
    at: &dyn Fn() -> String,
) -> Result<ToolResult<'a>, ApiError> {
    let id = block.tool_use_id.ok_or_else(|| {
        ApiError::invalid(
            format!("{}.tool_use_id", at()),
            "A `tool_result` block needs a string `tool_use_id`.",
        )
    })?;
    let mut parts = Vec::new();
    if let Some(content) = &block.content {
        parts_of(content, &|| format!("{}.content", at()), &mut parts)?;
    }
    Ok(ToolResult { id, parts, is_error: block.is_error })
}

/// What the assistant said with one block.
pub(super) fn said<'a>(
    block: &Block<'a>,
    at: &dyn Fn() -> String,
    turn: &mut Assistant<'a>,
) -> Result<(), ApiError> {
    match &*block.kind {
        "text" => turn.texts.push(Cow::Borrowed(block.text.unwrap_or_default())),
        "thinking" => {
            turn.reasoning.extend(block.thinking.filter(|text| !text.is_empty()).map(Cow::Borrowed))
        }
        // Sealed by another vendor: no model here could read it.
        "redacted_thinking" => {}
        "tool_use" => match (block.id, block.name, block.input) {
            (Some(id), Some(name), Some(input)) if json_cursor::is_object(input) => {
                turn.calls.push(Call { id, name, input })
            }
            _ => {
                return Err(ApiError::invalid(
                    at(),
                    "A `tool_use` block needs strings `id` and `name` and an object `input`.",
                ));
            }
        },
        _ => {
            let mut parts = Vec::new();
            block.parts(at, &mut parts)?;
            for part in parts {
                match part {
                    Part::Text(text) => turn.texts.push(text),
                    Part::Inline { .. } | Part::Link(_) => {
                        return Err(ApiError::unsupported(at(), "An assistant message cannot hold images."));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Providers refuse, and models stumble over, a prefill that ends in white space.
pub(super) fn trim_last(texts: &mut Vec<Text<'_>>) {
    while let Some(last) = texts.last_mut() {
        let length = json_cursor::trim_end(last).len();
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
