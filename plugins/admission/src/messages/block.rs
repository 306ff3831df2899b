//! Validation of content blocks.

use super::Findings;
use super::source;
use crate::json::Value;
use crate::path::Path;
use crate::read;
use penstock_contract::Refusal;

/// Prefix of a text that coding agents insert with a hash of each request, which would defeat every prefix cache.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// Position of a block in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    User,
    Assistant,
    /// Block inside a `tool_result`.
    Result,
    /// Block inside a `document`.
    Document,
}

impl Place {
    /// Block types that are validated; blocks of [`vendor`] tools are accepted in addition.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::User => &["text", "image", "tool_result", "document", "search_result"],
            Self::Assistant => &["text", "tool_use", "thinking", "redacted_thinking"],
            Self::Result => &["text", "image", "document", "search_result"],
            Self::Document => &["text", "image"],
        }
    }
}

/// Meaning of a block for the turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Block<'d> {
    /// Empty text.
    Nothing,
    /// Other content.
    Said,
    /// Tool call, with its id.
    Call(Value<'d>),
    /// Tool result, with the id of its call.
    Result(Value<'d>),
}

/// True for blocks of the vendor's own tools, from a conversation with another service.
fn vendor(kind: &str) -> bool {
    matches!(kind, "server_tool_use" | "mcp_tool_use" | "container_upload" | "tool_reference")
        || kind.ends_with("_tool_result")
}

/// Validates a block.
pub(super) fn block<'d>(
    block: Value<'d>,
    at: &Path<'_>,
    place: Place,
    found: &mut Findings,
) -> Result<Block<'d>, Refusal> {
    let [kind, text, id, name, input, call, content, is_error, thinking, signature, sealed] = read::object(
        block,
        at,
        [
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
        ],
    )?;
    let path = at.key("type");
    let kind = read::required(kind, &path, read::Alternatives(place.words()))?;
    if kind.is_string() && vendor(&kind.text()) {
        return Ok(Block::Said);
    }
    let string = |member: Option<Value<'d>>, name: &str| {
        let path = at.key(name);
        read::string(read::required(member, &path, "a string")?, &path)
    };
    match read::one_of(kind, &path, place.words())? {
        "text" => {
            let text = string(text, "text")?;
            found.said.idle_text |= text.is_blank();
            return Ok(if text.body().is_empty() { Block::Nothing } else { Block::Said });
        }
        "tool_use" => {
            read::name(name, &at.key("name"))?;
            let path = at.key("input");
            read::any_object(read::required(input, &path, "an object")?, &path)?;
            let id = read::name(id, &at.key("id"))?;
            found.said.odd_ids |= !is_plain(id);
            return Ok(Block::Call(id));
        }
        "tool_result" => {
            read::flag(is_error, &at.key("is_error"))?;
            content.map(|content| inner(content, &at.key("content"), Place::Result, found)).transpose()?;
            let call = read::name(call, &at.key("tool_use_id"))?;
            found.said.odd_ids |= !is_plain(call);
            return Ok(Block::Result(call));
        }
        "thinking" => {
            string(thinking, "thinking")?;
            signature.map(|signature| read::string(signature, &at.key("signature"))).transpose()?;
        }
        "redacted_thinking" => drop(string(sealed, "data")?),
        "image" => source::image(block, at, found)?,
        "document" => source::document(block, at, found)?,
        _ => source::search_result(block, at, found)?,
    }
    Ok(Block::Said)
}

/// True if every provider of the dialect accepts the id.
fn is_plain(id: Value<'_>) -> bool {
    id.body().iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Validates the content of a block: a string, or blocks, possibly empty.
pub(super) fn inner(
    content: Value<'_>,
    at: &Path<'_>,
    place: Place,
    found: &mut Findings,
) -> Result<(), Refusal> {
    if content.is_string() {
        return Ok(());
    }
    if !content.is_array() {
        return Err(at.expected("a string or an array of content blocks", content.kind()));
    }
    for (index, item) in content.items().enumerate() {
        block(item, &at.index(index), place, found)?;
    }
    Ok(())
}

/// Validates a string or an array of text blocks, as in `system` and messages of that role.
pub(super) fn texts(content: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    if content.is_string() {
        found.said.idle_text |= content.is_blank();
        return Ok(());
    }
    if !content.is_array() {
        return Err(at.expected("a string or an array of text blocks", content.kind()));
    }
    for (index, item) in content.items().enumerate() {
        let at = at.index(index);
        let [kind, text] = read::object(item, &at, ["type", "text"])?;
        let path = at.key("type");
        read::one_of(read::required(kind, &path, "\"text\"")?, &path, &["text"])?;
        let path = at.key("text");
        let text = read::string(read::required(text, &path, "a string")?, &path)?;
        found.said.idle_text |= text.is_blank() || text.body().starts_with(BILLING_HEADER);
    }
    Ok(())
}
