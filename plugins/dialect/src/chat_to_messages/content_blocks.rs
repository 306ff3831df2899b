//! Conversion of content parts of the chat dialect to blocks of the messages dialect.

use crate::body_builder::BodyBuilder;
use crate::event::EscapedText;
use crate::json_cursor;
use crate::repeated_call_ids::messages_call_id;
use crate::tool_names::portable_tool_name;
use penstock_core::{ApiError, CacheMarker, CachePosition, Dialect};
use penstock_json_scan::json;
use std::borrow::Cow;

/// Media types of images: the client's spelling and the name in the messages dialect.
const IMAGE_TYPES: [(&str, &str); 7] = [
    ("image/jpeg", "image/jpeg"),
    ("image/png", "image/png"),
    ("image/gif", "image/gif"),
    ("image/webp", "image/webp"),
    ("image/jpg", "image/jpeg"),
    ("image/pjpeg", "image/jpeg"),
    ("image/x-png", "image/png"),
];

/// Markers of the prompt cache of one message.
#[derive(Clone, Copy)]
pub(super) struct MessageMarkers<'m> {
    /// Markers of the request.
    markers: &'m [CacheMarker],
    /// Index of the message.
    index: usize,
}

impl<'m> MessageMarkers<'m> {
    /// Selects the markers of the message with this index from those of the request.
    pub(super) const fn new(markers: &'m [CacheMarker], index: usize) -> Self {
        Self { markers, index }
    }

    fn of_part(self, part: usize) -> Option<CacheMarker> {
        self.find(CachePosition::Part(self.index, part))
    }

    /// Returns the marker after the whole message.
    pub(super) fn of_message(self) -> Option<CacheMarker> {
        self.find(CachePosition::Message(self.index))
    }

    fn find(self, position: CachePosition) -> Option<CacheMarker> {
        self.markers.iter().find(|marker| marker.position == position).copied()
    }
}

/// Content block of a message of the messages dialect.
pub(super) struct OutputBlock<'a> {
    pub(super) content: BlockContent<'a>,
    /// Marker of the prompt cache after the block.
    cache_marker: Option<CacheMarker>,
}

/// Content of a block. Byte slices are bodies of JSON strings, without the quotes, unless stated otherwise.
pub(super) enum BlockContent<'a> {
    /// Text that is not blank.
    Text(&'a [u8]),
    /// Text that the gateway adds, not escaped.
    Generated(String),
    /// System text, written after the name of its author, if any.
    SystemText {
        author: Option<&'a [u8]>,
        text: &'a [u8],
    },
    /// System text in a user turn, marked as not from the user.
    FoldedSystem {
        author: Option<&'a [u8]>,
        text: &'a [u8],
    },
    /// Text of one of several users, written after the user's name.
    NamedText {
        name: &'a [u8],
        text: &'a [u8],
    },
    InlineImage {
        media: &'static str,
        data: &'a [u8],
    },
    ImageUrl(&'a [u8]),
    /// Tool call; `arguments` is the JSON object, trimmed, and `repetition` the number of earlier calls with this id.
    ToolUse {
        id: &'a [u8],
        repetition: u32,
        name: &'a [u8],
        arguments: String,
    },
    ToolResult {
        id: &'a [u8],
        repetition: u32,
        content: Vec<OutputBlock<'a>>,
    },
    /// Reasoning of an earlier answer, written with a placeholder as its signature.
    Thinking(&'a [u8]),
}

impl<'a> From<BlockContent<'a>> for OutputBlock<'a> {
    fn from(content: BlockContent<'a>) -> Self {
        Self::new(content, None)
    }
}

impl<'a> OutputBlock<'a> {
    pub(super) const fn new(content: BlockContent<'a>, cache_marker: Option<CacheMarker>) -> Self {
        Self { content, cache_marker }
    }

    /// Removes the name of a system text's author.
    pub(super) fn remove_author(&mut self) {
        if let BlockContent::SystemText { author, .. } | BlockContent::FoldedSystem { author, .. } =
            &mut self.content
        {
            *author = None;
        }
    }

    /// Writes the JSON object of the block.
    pub(super) fn write(&self, out: &mut BodyBuilder<'_>) {
        self.content.write_members(out);
        write_cache_marker(self.cache_marker, out);
        out.push_byte(b'}');
    }
}

/// Writes a marker of the prompt cache after a comma, if there is one.
pub(super) fn write_cache_marker(marker: Option<CacheMarker>, out: &mut BodyBuilder<'_>) {
    if let Some(marker) = marker {
        out.push_str(r#","cache_control":"#);
        out.push_str(marker.messages_value());
    }
}

/// Sets the marker of the last block that may have one: any block but reasoning. Does nothing without such a block.
pub(super) fn set_cache_marker(blocks: &mut [OutputBlock<'_>], marker: Option<CacheMarker>) {
    let may_have = |block: &&mut OutputBlock<'_>| !matches!(block.content, BlockContent::Thinking(_));
    if let Some(block) = blocks.iter_mut().rev().find(may_have).filter(|_| marker.is_some()) {
        block.cache_marker = marker;
    }
}

impl BlockContent<'_> {
    /// Writes the JSON object of the block without its last brace.
    fn write_members(&self, out: &mut BodyBuilder<'_>) {
        match self {
            Self::Text(text) => write_wrapped(r#"{"type":"text","text":""#, text, "\"", out),
            Self::Generated(text) => {
                write_wrapped(r#"{"type":"text","text":""#, EscapedText::new(text).escaped(), "\"", out)
            }
            Self::SystemText { author: None, text } => Self::Text(text).write_members(out),
            Self::SystemText { author: Some(name), text } => {
                Self::NamedText { name, text }.write_members(out);
            }
            Self::FoldedSystem { author, text } => {
                out.push_str(r#"{"type":"text","text":"<system>\n"#);
                if let Some(name) = author {
                    write_wrapped("", name, ": ", out);
                }
                write_wrapped("", text, r#"\n</system>""#, out);
            }
            Self::NamedText { name, text } => {
                write_wrapped(r#"{"type":"text","text":""#, name, ": ", out);
                write_wrapped("", text, "\"", out);
            }
            Self::InlineImage { media, data } => {
                write_wrapped(
                    r#"{"type":"image","source":{"type":"base64","media_type":""#,
                    media.as_bytes(),
                    r#"","data":""#,
                    out,
                );
                out.push_source(data);
                out.push_str(r#""}"#);
            }
            Self::ImageUrl(url) => {
                write_wrapped(r#"{"type":"image","source":{"type":"url","url":""#, url, r#""}"#, out)
            }
            Self::ToolUse { id, repetition, name, arguments } => {
                write_wrapped(
                    r#"{"type":"tool_use","id":""#,
                    &messages_call_id(id, *repetition),
                    r#"","name":""#,
                    out,
                );
                write_wrapped("", &portable_tool_name(Dialect::Messages, name), r#"","input":"#, out);
                out.push_str(arguments);
            }
            Self::ToolResult { id, repetition, content } => {
                let id = messages_call_id(id, *repetition);
                write_wrapped(r#"{"type":"tool_result","tool_use_id":""#, &id, r#"","content":"#, out);
                write_content(content, out);
            }
            Self::Thinking(text) => {
                write_wrapped(r#"{"type":"thinking","thinking":""#, text, r#"","signature":"penstock""#, out);
            }
        }
    }
}

fn write_wrapped(before: &str, inside: &[u8], after: &str, out: &mut BodyBuilder<'_>) {
    out.push_str(before);
    out.push_source(inside);
    out.push_str(after);
}

/// Writes no blocks as an empty string, a single text without a name or a marker as a string, and all else as a list of
/// blocks.
pub(super) fn write_content(blocks: &[OutputBlock<'_>], out: &mut BodyBuilder<'_>) {
    match blocks {
        [] => out.push_str(r#""""#),
        [
            OutputBlock {
                content: BlockContent::Text(text) | BlockContent::SystemText { author: None, text },
                cache_marker: None,
            },
        ] => write_wrapped("\"", text, "\"", out),
        _ => {
            for (at, block) in blocks.iter().enumerate() {
                out.push_byte(if at == 0 { b'[' } else { b',' });
                block.write(out);
            }
            out.push_byte(b']');
        }
    }
}

/// Adds the blocks of a content that is a string, null or a list of parts. Blank texts are dropped, because providers
/// refuse them; their markers move to the block before. `markers` are those of the message.
///
/// # Errors
/// Returns an error for a part that has no equivalent in the messages dialect; `path` is the path of the content.
pub(super) fn append_blocks<'a>(
    content: Option<&'a [u8]>,
    markers: MessageMarkers<'_>,
    path: &str,
    out: &mut Vec<OutputBlock<'a>>,
) -> Result<(), ApiError> {
    let Some(content) = content.filter(|content| !json_cursor::is_null(content)) else {
        return Ok(());
    };
    if let Some(text) = json_cursor::string_body(content) {
        append_text(text, out);
        return Ok(());
    }
    if !json_cursor::is_array(content) {
        return Err(ApiError::invalid(path, "Expected a string or a list of content parts."));
    }
    for (index, part) in json_cursor::elements(content).enumerate() {
        let (mut kind, mut text) = (Cow::Borrowed(""), &b""[..]);
        for (key, value) in json_cursor::members(part) {
            match &*key {
                "type" => kind = json_cursor::parse_string(value).unwrap_or_default(),
                "text" | "refusal" => text = json_cursor::string_body(value).unwrap_or_default(),
                _ => {}
            }
        }
        match &*kind {
            "text" | "refusal" => append_text(text, out),
            "image_url" => out.push(parse_image(part, || format!("{path}[{index}].image_url"))?.into()),
            _ => {
                return Err(ApiError::unsupported(
                    format!("{path}[{index}].type"),
                    "Only text and images are supported with this model.",
                ));
            }
        }
        set_cache_marker(out, markers.of_part(index));
    }
    Ok(())
}

/// Removes the markers of blocks, and returns the last one.
pub(super) fn take_cache_marker(blocks: &mut [OutputBlock<'_>]) -> Option<CacheMarker> {
    blocks.iter_mut().fold(None, |last, block| block.cache_marker.take().or(last))
}

/// Adds a text block, unless the text is blank.
pub(super) fn append_text<'a>(text: &'a [u8], out: &mut Vec<OutputBlock<'a>>) {
    if !json_cursor::is_blank_string_body(text) {
        out.push(BlockContent::Text(text).into());
    }
}

fn parse_image(part: &[u8], path: impl Fn() -> String) -> Result<BlockContent<'_>, ApiError> {
    let image = json_cursor::member_value(part, "image_url").unwrap_or_default();
    let url = json_cursor::member_value(image, "url").unwrap_or(image);
    let url = json_cursor::string_body(url)
        .ok_or_else(|| ApiError::invalid(path(), "An image needs a string `url`."))?;
    let comma = memchr::memchr(b',', url);
    let (head, data) = comma.and_then(|comma| url.split_at_checked(comma)).unwrap_or((url, b""));
    let head = json::unescape_lossy(head).unwrap_or_default();
    if !head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return Ok(BlockContent::ImageUrl(url));
    }
    let described = head.get(5..).unwrap_or_default().rsplit_once(';');
    let (kind, _) = described
        .filter(|(_, last)| comma.is_some() && last.eq_ignore_ascii_case("base64"))
        .ok_or_else(|| ApiError::invalid(path(), "A data URL must be base64: `data:image/png;base64,…`."))?;
    let kind = kind.split(';').next().unwrap_or_default().to_ascii_lowercase();
    let known = IMAGE_TYPES.into_iter().find(|(spelt, _)| *spelt == kind);
    let (_, media) = known.ok_or_else(|| {
        let which = "This model's provider reads images of the types image/jpeg, image/png, image/gif and image/webp.";
        ApiError::unsupported(path(), which)
    })?;
    Ok(BlockContent::InlineImage { media, data: data.get(1..).unwrap_or_default() })
}
