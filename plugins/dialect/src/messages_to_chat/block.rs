//! Parser of content blocks of the messages dialect, without copies, and their conversion to content parts of chat
//! messages. A block that has no equivalent is refused with the path of its field.

use crate::json_cursor::{self, JsonCursor};
use penstock_core::ApiError;
use penstock_json_scan::json;
use std::borrow::Cow;
use std::convert::Infallible;

/// Body of a JSON string, without its quotes and with its escapes.
pub(super) type EscapedBytes<'a> = Cow<'a, [u8]>;

/// Content part of a chat message: text or an image.
pub(super) enum ContentPart<'a> {
    /// Text that is not empty.
    Text(EscapedBytes<'a>),
    /// Image given by its base64 data.
    InlineImage {
        /// Media type such as `image/png`.
        media: &'a [u8],
        /// Image bytes in Base64.
        data: &'a [u8],
    },
    /// URL of an image, which the gateway does not fetch.
    ImageUrl(&'a [u8]),
}

/// Types of blocks that the dialect's vendor writes into a conversation, besides those of results.
const VENDOR_BLOCKS: [&str; 6] =
    ["server_tool_use", "mcp_tool_use", "mcp_tool_listing", "container_upload", "tool_reference", "fallback"];

/// Returns true for block types that only the vendor's API understands: calls and results of server tools, and the
/// `fallback` block of a model change. Validation accepts such blocks in a history, but no model behind the gateway can
/// read them.
pub(super) fn is_vendor_block(kind: &str) -> bool {
    VENDOR_BLOCKS.contains(&kind) || kind.ends_with("_tool_result")
}

/// Maximum nesting depth of content in blocks; the dialect has no deeper content.
const MAX_DEPTH: usize = 4;

/// Content of a message, a tool result or a document.
#[derive(Default)]
pub(super) enum MessageContent<'a> {
    /// Text, as the body of a JSON string.
    Text(&'a [u8]),
    /// List of blocks.
    Blocks(Vec<ContentBlock<'a>>),
    /// JSON value of another type than string and array, or an array that is nested too deeply ([`MAX_DEPTH`]).
    #[default]
    Other,
}

impl<'a> MessageContent<'a> {
    /// Parses the next value of the cursor as content.
    pub(super) fn parse(cursor: &mut JsonCursor<'a>) -> Self {
        Self::parse_nested(cursor, 0)
    }

    fn parse_nested(cursor: &mut JsonCursor<'a>, depth: usize) -> Self {
        match cursor.peek_byte() {
            Some(b'"') => json_cursor::string_body(cursor.take_value()).map_or(Self::Other, Self::Text),
            Some(b'[') if depth < MAX_DEPTH => {
                let mut blocks = Vec::new();
                let Ok(()) = cursor.visit_elements::<Infallible>(|_, cursor| {
                    blocks.push(ContentBlock::parse(cursor, depth + 1));
                    Ok(())
                });
                Self::Blocks(blocks)
            }
            _ => {
                cursor.take_value();
                Self::Other
            }
        }
    }
}

/// Members of a block of any type, as slices of the request.
#[derive(Default)]
pub(super) struct ContentBlock<'a> {
    pub kind: Cow<'a, str>,
    pub text: Option<&'a [u8]>,
    pub source: Option<&'a [u8]>,
    pub title: Option<&'a [u8]>,
    pub context: Option<&'a [u8]>,
    pub content: Option<MessageContent<'a>>,
    pub id: Option<&'a [u8]>,
    pub name: Option<&'a [u8]>,
    pub input: Option<&'a [u8]>,
    pub tool_use_id: Option<&'a [u8]>,
    pub is_error: bool,
    pub thinking: Option<&'a [u8]>,
    /// True if the client requests citations of the block.
    pub requests_citations: bool,
    /// True if the client forbids that an image is scaled down.
    pub forbids_downsizing: bool,
}

impl<'a> ContentBlock<'a> {
    /// Parses a block and skips unknown members (`cache_control`, `caller` …), which have no meaning for a chat
    /// provider.
    fn parse(cursor: &mut JsonCursor<'a>, depth: usize) -> Self {
        let mut block = Self::default();
        let Ok(()) = cursor.visit_members::<Infallible>(|key, cursor| {
            match key {
                "type" => block.kind = json_cursor::parse_string(cursor.take_value()).unwrap_or_default(),
                "text" => block.text = json_cursor::string_body(cursor.take_value()),
                "source" => block.source = Some(cursor.take_value()),
                "title" => block.title = json_cursor::string_body(cursor.take_value()),
                "context" => block.context = json_cursor::string_body(cursor.take_value()),
                "content" if cursor.peek_byte() != Some(b'n') => {
                    block.content = Some(MessageContent::parse_nested(cursor, depth));
                }
                "id" => block.id = json_cursor::string_body(cursor.take_value()),
                "name" => block.name = json_cursor::string_body(cursor.take_value()),
                "input" => block.input = Some(cursor.take_value()),
                "tool_use_id" => block.tool_use_id = json_cursor::string_body(cursor.take_value()),
                "is_error" => block.is_error = cursor.take_value() == b"true",
                "thinking" => block.thinking = json_cursor::string_body(cursor.take_value()),
                "citations" => {
                    let enabled = json_cursor::member_value(cursor.take_value(), "enabled");
                    block.requests_citations = enabled == Some(b"true");
                }
                "transformations" => {
                    let oversized = json_cursor::member_value(cursor.take_value(), "oversized_image");
                    block.forbids_downsizing =
                        oversized.is_some_and(|action| json::json_string_equals(action, "error"));
                }
                _ => {}
            }
            Ok(())
        });
        block
    }

    /// Adds the content parts for this block of a user message or a tool result; none for a block of a vendor's tool.
    ///
    /// # Errors
    /// Returns an error for a block or source without an equivalent in the chat dialect; `path` is the block's path.
    pub(super) fn append_parts(
        &self,
        path: &dyn Fn() -> String,
        out: &mut Vec<ContentPart<'a>>,
    ) -> Result<(), ApiError> {
        if self.requests_citations {
            return Err(ApiError::unsupported(
                format!("{}.citations.enabled", path()),
                "This model does not support citations.",
            ));
        }
        match &*self.kind {
            "text" => {
                let text = self.text.ok_or_else(|| {
                    ApiError::invalid(format!("{}.text", path()), "A text block needs a string `text`.")
                })?;
                append_text(out, Cow::Borrowed(text));
                Ok(())
            }
            "image" => {
                out.push(self.parse_image(path)?);
                Ok(())
            }
            "document" => self.append_document(path, out),
            "search_result" => {
                self.append_search_result(out);
                Ok(())
            }
            kind if is_vendor_block(kind) => Ok(()),
            other => Err(ApiError::unsupported(
                format!("{}.type", path()),
                format!("Content blocks of type `{}` are not supported here.", printable_word(other)),
            )),
        }
    }

    fn parse_image(&self, path: &dyn Fn() -> String) -> Result<ContentPart<'a>, ApiError> {
        if self.forbids_downsizing {
            return Err(ApiError::unsupported(
                format!("{}.transformations.oversized_image", path()),
                "This model's provider may scale an image down; leave this out, or send `downsize`.",
            ));
        }
        let source = MediaSource::parse(self.source.unwrap_or_default());
        match (&*source.source_type, source.media_type, source.data, source.url) {
            ("base64", Some(media), Some(data), _) => Ok(ContentPart::InlineImage { media, data }),
            ("url", _, _, Some(url)) => Ok(ContentPart::ImageUrl(url)),
            ("base64" | "url", ..) => Err(ApiError::invalid(
                format!("{}.source", path()),
                "An image source needs `media_type` and `data`, or `url`.",
            )),
            _ => Err(ApiError::unsupported(
                format!("{}.source.type", path()),
                "An image source must be of type `base64` or `url`.",
            )),
        }
    }

    fn append_document(
        &self,
        path: &dyn Fn() -> String,
        out: &mut Vec<ContentPart<'a>>,
    ) -> Result<(), ApiError> {
        let source = MediaSource::parse(self.source.unwrap_or_default());
        let mut inside = Vec::new();
        match (&*source.source_type, source.data, source.content) {
            ("text", Some(data), _) => append_text(&mut inside, Cow::Borrowed(data)),
            ("content", _, Some(content)) => {
                let content = MessageContent::parse(&mut JsonCursor::new(content));
                append_content_parts(&content, &|| format!("{}.source.content", path()), &mut inside)?;
            }
            _ => {
                return Err(ApiError::unsupported(
                    format!("{}.source.type", path()),
                    "A document source must be of type `text` or `content`; PDFs, links and files are not read here.",
                ));
            }
        }
        self.append_with_heading(&[self.title, self.context], inside, out);
        Ok(())
    }

    fn append_search_result(&self, out: &mut Vec<ContentPart<'a>>) {
        let mut inside = Vec::new();
        if let Some(MessageContent::Blocks(blocks)) = &self.content {
            for block in blocks {
                append_text(&mut inside, Cow::Borrowed(block.text.unwrap_or_default()));
            }
        }
        let source = self.source.and_then(json_cursor::string_body);
        self.append_with_heading(&[self.title, source], inside, out);
    }

    /// Adds the parts `inside`. The lines of `head` that are present are written before the first part, in the same
    /// text if that part is text.
    fn append_with_heading(
        &self,
        head: &[Option<&'a [u8]>],
        inside: Vec<ContentPart<'a>>,
        out: &mut Vec<ContentPart<'a>>,
    ) {
        let mut lead: Vec<u8> = Vec::new();
        for line in head.iter().flatten().filter(|line| !line.is_empty()) {
            lead.extend_from_slice(line);
            lead.extend_from_slice(br"\n");
        }
        let mut inside = inside.into_iter();
        match inside.next() {
            Some(ContentPart::Text(text)) if !lead.is_empty() => {
                lead.extend_from_slice(br"\n");
                lead.extend_from_slice(&text);
                out.push(ContentPart::Text(Cow::Owned(lead)));
            }
            first => {
                append_text(out, Cow::Owned(lead));
                out.extend(first);
            }
        }
        out.extend(inside);
    }
}

/// Adds the parts of a content that is a string or a list of blocks.
///
/// # Errors
/// Returns the errors of [`ContentBlock::append_parts`], and an error for content of another type.
pub(super) fn append_content_parts<'a>(
    content: &MessageContent<'a>,
    path: &dyn Fn() -> String,
    out: &mut Vec<ContentPart<'a>>,
) -> Result<(), ApiError> {
    match content {
        MessageContent::Text(text) => append_text(out, Cow::Borrowed(text)),
        MessageContent::Blocks(blocks) => {
            for (index, block) in blocks.iter().enumerate() {
                block.append_parts(&|| format!("{}.{index}", path()), out)?;
            }
        }
        MessageContent::Other => {
            return Err(ApiError::invalid(path(), "Expected a string or a list of content blocks."));
        }
    }
    Ok(())
}

/// Adds a text unless it is empty: clients send back the empty blocks of earlier answers.
pub(super) fn append_text<'a>(out: &mut Vec<ContentPart<'a>>, text: EscapedBytes<'a>) {
    if !text.is_empty() {
        out.push(ContentPart::Text(text));
    }
}

/// Returns a word from the client for use in an error sentence: at most 40 characters, without control characters.
pub(super) fn printable_word(word: &str) -> String {
    word.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

#[derive(Default)]
struct MediaSource<'a> {
    source_type: Cow<'a, str>,
    media_type: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    content: Option<&'a [u8]>,
}

impl<'a> MediaSource<'a> {
    fn parse(value: &'a [u8]) -> Self {
        let mut source = Self::default();
        for (key, value) in json_cursor::members(value) {
            match &*key {
                "type" => source.source_type = json_cursor::parse_string(value).unwrap_or_default(),
                "media_type" => source.media_type = json_cursor::string_body(value),
                "data" => source.data = json_cursor::string_body(value),
                "url" => source.url = json_cursor::string_body(value),
                "content" => source.content = Some(value),
                _ => {}
            }
        }
        source
    }
}
