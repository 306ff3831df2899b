//! Validation of blocks with a source: images, documents, search results.

use super::Findings;
use super::block::{Place, inner, texts};
use crate::json::Value;
use crate::media;
use crate::path::Path;
use crate::read;
use penstock_contract::Refusal;

const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Members of a `source` object.
struct Source<'d> {
    kind: &'static str,
    media_type: Option<Value<'d>>,
    data: Option<Value<'d>>,
    url: Option<Value<'d>>,
    content: Option<Value<'d>>,
}

fn source<'d>(block: Value<'d>, at: &Path<'_>, kinds: &[&'static str]) -> Result<Source<'d>, Refusal> {
    let [source] = read::object(block, at, ["source"])?;
    let at = at.key("source");
    let source = read::required(source, &at, "an object")?;
    let [kind, media_type, data, url, content] =
        read::object(source, &at, ["type", "media_type", "data", "url", "content"])?;
    let path = at.key("type");
    let kind = read::required(kind, &path, read::Alternatives(kinds))?;
    if kind.is("file") {
        return Err(path.unsupported("files by id are not supported"));
    }
    Ok(Source { kind: read::one_of(kind, &path, kinds)?, media_type, data, url, content })
}

impl Source<'_> {
    /// Validates base64 of one of these media types; returns its bytes.
    fn base64(&self, at: &Path<'_>, types: &[&'static str]) -> Result<usize, Refusal> {
        let path = at.key("media_type");
        read::one_of(read::required(self.media_type, &path, read::Alternatives(types))?, &path, types)?;
        let path = at.key("data");
        media::base64(read::string(read::required(self.data, &path, "base64")?, &path)?, &path, 0)
    }

    fn link(&self, at: &Path<'_>) -> Result<(), Refusal> {
        let path = at.key("url");
        media::link(read::string(read::required(self.url, &path, "an https: URL")?, &path)?, &path)
    }
}

pub(super) fn image(block: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let source = source(block, at, &["base64", "url"])?;
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

pub(super) fn document(block: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let source = source(block, at, &["base64", "text", "content", "url"])?;
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
            inner(content, &path, Place::Document, found)?;
        }
    }
    Ok(())
}

pub(super) fn search_result(block: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let [source, title, content] = read::object(block, at, ["source", "title", "content"])?;
    for (name, member) in [("source", source), ("title", title)] {
        let path = at.key(name);
        read::string(read::required(member, &path, "a string")?, &path)?;
    }
    let path = at.key("content");
    texts(read::array(read::required(content, &path, "an array of text blocks")?, &path)?, &path, found)
}
