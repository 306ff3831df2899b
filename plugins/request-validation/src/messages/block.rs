//! Validation of content blocks.

use super::MessagesFindings;
use super::source;
use crate::field_path::FieldPath;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Prefix of a text block that coding agents insert with a hash of each request. The text differs in each request, so
/// with it no provider could cache the prompt's prefix.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// Position of a block in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockContext {
    User,
    Assistant,
    /// Block inside a `tool_result`.
    Result,
    /// Block inside a `document`.
    Document,
}

impl BlockContext {
    /// Returns the types of the blocks that are validated. Blocks of vendor tools ([`is_vendor_block`]) are accepted
    /// too.
    const fn type_names(self) -> &'static [&'static str] {
        match self {
            Self::User => &["text", "image", "tool_result", "document", "search_result"],
            Self::Assistant => &["text", "tool_use", "thinking", "redacted_thinking"],
            Self::Result => &["text", "image", "document", "search_result"],
            Self::Document => &["text", "image"],
        }
    }
}

/// Kind of a validated block, by its effect on the message that contains it.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParsedBlock<'d> {
    /// Empty text.
    Empty,
    /// Block of any other kind: text that is not empty, or any type except tool call and tool result.
    Content,
    /// Tool call, with its id.
    ToolUse(JsonValue<'d>),
    /// Tool result, with the id of its call.
    ToolResult(JsonValue<'d>),
}

/// Types of blocks that another service writes into a conversation, besides those of results: calls of tools that the
/// service runs itself, lists of such tools, and marks of a change of the model.
const VENDOR_BLOCKS: [&str; 6] =
    ["server_tool_use", "mcp_tool_use", "mcp_tool_listing", "container_upload", "tool_reference", "fallback"];

/// Returns true for blocks that come from a conversation with another service.
fn is_vendor_block(kind: &str) -> bool {
    VENDOR_BLOCKS.contains(&kind) || kind.ends_with("_tool_result")
}

/// Returns true for a block of a vendor's tool, whose content is not validated. Refuses a block of the user that
/// uploads a file into a container.
fn is_unchecked_block(
    kind: JsonValue<'_>,
    path: &FieldPath<'_>,
    context: BlockContext,
) -> Result<bool, ApiError> {
    if context == BlockContext::User && kind.equals_text("container_upload") {
        return Err(path.unsupported_error("the gateway has no containers; send the file as a document"));
    }
    Ok(kind.is_string() && is_vendor_block(&kind.text()))
}

/// Members of a block that [`validate_block`] reads; it ignores others.
const BLOCK_MEMBERS: [&str; 11] = [
    "type",
    "text",
    "id",
    "name",
    "input",
    "tool_use_id",
    "content",
    "is_error",
    "thinking",
    "signature",
    "data",
];

/// Validates a block.
pub(super) fn validate_block<'d>(
    block: JsonValue<'d>,
    block_path: &FieldPath<'_>,
    context: BlockContext,
    found: &mut MessagesFindings,
) -> Result<ParsedBlock<'d>, ApiError> {
    let [kind, text, id, name, input, call, content, is_error, thinking, signature, sealed] =
        read::read_named_members(block, block_path, BLOCK_MEMBERS)?;
    let path = block_path.member("type");
    let kind = read::require_member(kind, &path, read::QuotedAlternatives(context.type_names()))?;
    if is_unchecked_block(kind, &path, context)? {
        return Ok(ParsedBlock::Content);
    }
    let string = |member: Option<JsonValue<'d>>, name: &str| {
        let path = block_path.member(name);
        read::require_string(read::require_member(member, &path, "a string")?, &path)
    };
    match read::read_keyword(kind, &path, context.type_names())? {
        "text" => {
            let text = string(text, "text")?;
            found.history.removable_text |= text.is_blank();
            return Ok(if text.string_bytes().is_empty() {
                ParsedBlock::Empty
            } else {
                ParsedBlock::Content
            });
        }
        "tool_use" => {
            return Ok(ParsedBlock::ToolUse(validate_tool_use([name, input, id], block_path, found)?));
        }
        "tool_result" => {
            return Ok(ParsedBlock::ToolResult(validate_tool_result(
                [is_error, content, call],
                block_path,
                found,
            )?));
        }
        "thinking" => {
            string(thinking, "thinking")?;
            signature
                .map(|signature| read::require_string(signature, &block_path.member("signature")))
                .transpose()?;
        }
        "redacted_thinking" => drop(string(sealed, "data")?),
        "image" => source::validate_image_block(block, block_path, found)?,
        "document" => source::validate_document_block(block, block_path, found)?,
        _ => source::validate_search_result_block(block, block_path, found)?,
    }
    Ok(ParsedBlock::Content)
}

/// Validates name, input and id of a tool call; returns the id. The input may be absent, because clients drop an empty
/// object.
fn validate_tool_use<'d>(
    [name, input, id]: [Option<JsonValue<'d>>; 3],
    block_path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<JsonValue<'d>, ApiError> {
    read::require_text_member(name, &block_path.member("name"))?;
    let path = block_path.member("input");
    input.map(|input| read::check_object(input, &path)).transpose()?;
    found.history.calls_without_input |= input.is_none();
    let id = read::require_text_member(id, &block_path.member("id"))?;
    found.history.nonstandard_ids |= !is_plain(id);
    Ok(id)
}

/// Validates flag, content and call id of a tool result; returns the call id.
fn validate_tool_result<'d>(
    [is_error, content, call]: [Option<JsonValue<'d>>; 3],
    path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<JsonValue<'d>, ApiError> {
    read::read_optional_bool(is_error, &path.member("is_error"))?;
    content
        .map(|content| validate_content(content, &path.member("content"), BlockContext::Result, found))
        .transpose()?;
    let call = read::require_text_member(call, &path.member("tool_use_id"))?;
    found.history.nonstandard_ids |= !is_plain(call);
    Ok(call)
}

/// Returns true if every provider of the messages dialect accepts the id: letters, digits, `_` and `-`.
fn is_plain(id: JsonValue<'_>) -> bool {
    id.string_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Validates the content of a block: a string, or blocks, possibly empty.
pub(super) fn validate_content(
    content: JsonValue<'_>,
    path: &FieldPath<'_>,
    context: BlockContext,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    if content.is_string() {
        return Ok(());
    }
    if !content.is_array() {
        return Err(path.unexpected_type_error("a string or an array of content blocks", content.kind()));
    }
    for (index, item) in content.items().enumerate() {
        validate_block(item, &path.item(index), context, found)?;
    }
    Ok(())
}

/// Validates a string or an array of text blocks, as in `system` and messages of that role.
pub(super) fn validate_texts(
    content: JsonValue<'_>,
    content_path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    if content.is_string() {
        found.history.removable_text |= content.is_blank();
        return Ok(());
    }
    if !content.is_array() {
        return Err(content_path.unexpected_type_error("a string or an array of text blocks", content.kind()));
    }
    for (index, item) in content.items().enumerate() {
        let block_path = content_path.item(index);
        let [kind, text] = read::read_named_members(item, &block_path, ["type", "text"])?;
        let path = block_path.member("type");
        read::read_keyword(read::require_member(kind, &path, "\"text\"")?, &path, &["text"])?;
        let path = block_path.member("text");
        let text = read::require_string(read::require_member(text, &path, "a string")?, &path)?;
        found.history.removable_text |= text.is_blank() || text.string_bytes().starts_with(BILLING_HEADER);
    }
    Ok(())
}
