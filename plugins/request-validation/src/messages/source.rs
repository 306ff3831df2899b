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
    block_path: &FieldPath<'_>,
    kinds: &[&'static str],
) -> Result<BlockSource<'d>, ApiError> {
    let [source] = read::read_named_members(block, block_path, ["source"])?;
    let source_path = block_path.member("source");
    let source = read::require_member(source, &source_path, "an object")?;
    let [kind, media_type, data, url, content] =
        read::read_named_members(source, &source_path, ["type", "media_type", "data", "url", "content"])?;
    let path = source_path.member("type");
    let kind = read::require_member(kind, &path, read::QuotedAlternatives(kinds))?;
    if kind.equals_text("file") {
        return Err(path.unsupported_error("files by id are not supported"));
    }
    Ok(BlockSource { kind: read::read_keyword(kind, &path, kinds)?, media_type, data, url, content })
}

impl BlockSource<'_> {
    /// Validates base64 of one of the given media types; returns the length of the base64 string in bytes, as sent.
    fn base64(&self, source_path: &FieldPath<'_>, types: &[&'static str]) -> Result<usize, ApiError> {
        let path = source_path.member("media_type");
        read::read_keyword(
            read::require_member(self.media_type, &path, read::QuotedAlternatives(types))?,
            &path,
            types,
        )?;
        let path = source_path.member("data");
        media::validate_base64(
            read::require_string(read::require_member(self.data, &path, "base64")?, &path)?,
            &path,
            0,
        )
    }

    fn link(&self, source_path: &FieldPath<'_>) -> Result<(), ApiError> {
        let path = source_path.member("url");
        let url = read::require_member(self.url, &path, "an http: or https: URL")?;
        let url = read::require_string(url, &path)?;
        if media::is_data_url(&url) {
            let sentence = "expected an http: or https: URL; send data in a source of the type \"base64\"";
            return Err(path.invalid_error(sentence));
        }
        media::validate_http_url(url, &path)
    }
}

/// Validates an `image` block.
pub(super) fn validate_image_block(
    block: JsonValue<'_>,
    block_path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let source = read_source(block, block_path, &["base64", "url"])?;
    let [transformations] = read::read_named_members(block, block_path, ["transformations"])?;
    let source_path = block_path.member("source");
    if source.kind == "base64" {
        found.media += source.base64(&source_path, IMAGES)?;
    } else {
        source.link(&source_path)?;
        found.needs.image_urls = true;
    }
    found.images += 1;
    found.needs.images = true;
    validate_transformations(transformations, block_path)
}

/// Validates the transformations of an image before the model reads it.
fn validate_transformations(
    transformations: Option<JsonValue<'_>>,
    block: &FieldPath<'_>,
) -> Result<(), ApiError> {
    let Some(transformations) = transformations else { return Ok(()) };
    let path = block.member("transformations");
    let [oversized] = read::read_named_members(transformations, &path, ["oversized_image"])?;
    let path = path.member("oversized_image");
    oversized.map(|action| read::read_keyword(action, &path, &["downsize", "error"])).transpose()?;
    Ok(())
}

/// Validates a `document` block.
pub(super) fn validate_document_block(
    block: JsonValue<'_>,
    block_path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let source = read_source(block, block_path, &["base64", "text", "content", "url"])?;
    let [title, context] = read::read_named_members(block, block_path, ["title", "context"])?;
    title.map(|text| read::require_string(text, &block_path.member("title"))).transpose()?;
    context.map(|text| read::require_string(text, &block_path.member("context"))).transpose()?;
    let source_path = block_path.member("source");
    match source.kind {
        "base64" => {
            found.media += source.base64(&source_path, &["application/pdf"])?;
            found.needs.files = true;
        }
        "url" => {
            source.link(&source_path)?;
            found.needs.files = true;
        }
        "text" => {
            let path = source_path.member("data");
            read::require_string(read::require_member(source.data, &path, "a string")?, &path)?;
        }
        _ => {
            let path = source_path.member("content");
            let content =
                read::require_member(source.content, &path, "a string or an array of content blocks")?;
            validate_content(content, &path, BlockContext::Document, found)?;
        }
    }
    Ok(())
}

/// Validates a `search_result` block.
pub(super) fn validate_search_result_block(
    block: JsonValue<'_>,
    block_path: &FieldPath<'_>,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let [source, title, content] =
        read::read_named_members(block, block_path, ["source", "title", "content"])?;
    for (name, member) in [("source", source), ("title", title)] {
        let path = block_path.member(name);
        read::require_string(read::require_member(member, &path, "a string")?, &path)?;
    }
    let path = block_path.member("content");
    validate_texts(
        read::require_array(read::require_member(content, &path, "an array of text blocks")?, &path)?,
        &path,
        found,
    )
}
