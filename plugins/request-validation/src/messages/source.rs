//! Validation of blocks with a source: images, documents, search results.

use super::MessagesFindings;
use super::block::{BlockContext, validate_content, validate_texts};
use crate::field_path::FieldPath;
use crate::media;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Members of a `source` object.
struct BlockSource<'d> {
    kind: &'static str,
    media_type: Option<JsonValue<'d>>,
    data: Option<JsonValue<'d>>,
    url: Option<JsonValue<'d>>,
    content: Option<JsonValue<'d>>,
}

fn read_source<'d>(
    block: JsonValue<'d>,
    at: &FieldPath<'_>,
    kinds: &[&'static str],
) -> Result<BlockSource<'d>, ApiError> {
    let [source] = read::object(block, at, ["source"])?;
    let at = at.key("source");
    let source = read::required(source, &at, "an object")?;
    let [kind, media_type, data, url, content] =
        read::object(source, &at, ["type", "media_type", "data", "url", "content"])?;
    let path = at.key("type");
    let kind = read::required(kind, &path, read::QuotedAlternatives(kinds))?;
    if kind.equals_text("file") {
        return Err(path.unsupported("files by id are not supported"));
    }
    Ok(BlockSource { kind: read::one_of(kind, &path, kinds)?, media_type, data, url, content })
}

impl BlockSource<'_> {
    /// Validates base64 of one of the given media types; returns the number of its bytes.
    fn base64(&self, at: &FieldPath<'_>, types: &[&'static str]) -> Result<usize, ApiError> {
        let path = at.key("media_type");
        read::one_of(read::required(self.media_type, &path, read::QuotedAlternatives(types))?, &path, types)?;
        let path = at.key("data");
        media::validate_base64(read::string(read::required(self.data, &path, "base64")?, &path)?, &path, 0)
    }

    fn link(&self, at: &FieldPath<'_>) -> Result<(), ApiError> {
        let path = at.key("url");
        media::validate_link(read::string(read::required(self.url, &path, "an https: URL")?, &path)?, &path)
    }
}

/// Validates an `image` block.
pub(super) fn validate_image(
    block: JsonValue<'_>,
    at: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let source = read_source(block, at, &["base64", "url"])?;
    let at = at.key("source");
    if source.kind == "base64" {
        found.media += source.base64(&at, IMAGES)?;
    } else {
        source.link(&at)?;
        found.needs.image_urls = true;
    }
    found.images += 1;
    found.needs.images = true;
    Ok(())
}

/// Validates a `document` block.
pub(super) fn validate_document(
    block: JsonValue<'_>,
    at: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let source = read_source(block, at, &["base64", "text", "content", "url"])?;
    let [title, context] = read::object(block, at, ["title", "context"])?;
    title.map(|text| read::string(text, &at.key("title"))).transpose()?;
    context.map(|text| read::string(text, &at.key("context"))).transpose()?;
    let at = at.key("source");
    match source.kind {
        "base64" => {
            found.media += source.base64(&at, &["application/pdf"])?;
            found.needs.files = true;
        }
        "url" => {
            source.link(&at)?;
            found.needs.files = true;
        }
        "text" => {
            let path = at.key("data");
            read::string(read::required(source.data, &path, "a string")?, &path)?;
        }
        _ => {
            let path = at.key("content");
            let content = read::required(source.content, &path, "a string or an array of content blocks")?;
            validate_content(content, &path, BlockContext::Document, found)?;
        }
    }
    Ok(())
}

/// Validates a `search_result` block.
pub(super) fn validate_search_result(
    block: JsonValue<'_>,
    at: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let [source, title, content] = read::object(block, at, ["source", "title", "content"])?;
    for (name, member) in [("source", source), ("title", title)] {
        let path = at.key(name);
        read::string(read::required(member, &path, "a string")?, &path)?;
    }
    let path = at.key("content");
    validate_texts(
        read::array(read::required(content, &path, "an array of text blocks")?, &path)?,
        &path,
        found,
    )
}
