//! Content of messages and tool outputs: a string, or parts of text, images and audio.

use super::chat_body::ChatBodyWriter;
use crate::field_path::FieldPath;
use crate::{media, read};
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Content parts allowed in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedParts {
    /// Text, in messages of the roles `system` and `developer`.
    Text,
    /// Text and refusals, in messages of the role `assistant`.
    TextOrRefusal,
    /// Text and images, in tool outputs.
    TextAndImages,
    /// Text, images and audio, in messages of the role `user`.
    TextAndMedia,
}

impl AllowedParts {
    const fn type_names(self) -> &'static [&'static str] {
        match self {
            Self::Text => &["input_text", "output_text"],
            Self::TextOrRefusal => &["output_text", "input_text", "refusal"],
            Self::TextAndImages => &["input_text", "input_image", "output_text"],
            Self::TextAndMedia => &["input_text", "input_image", "input_audio", "output_text"],
        }
    }
}

/// Validated content part.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentPart<'d> {
    /// Text, as a JSON string.
    Text(JsonValue<'d>),
    /// Image with its URL and its level of detail.
    Image { url: JsonValue<'d>, detail: Option<JsonValue<'d>> },
    /// Audio, as an object with `data` and `format`.
    Audio(JsonValue<'d>),
}

/// Validates content and returns its parts; a string is one part of text.
pub(super) fn read_parts<'d>(
    content: JsonValue<'d>,
    path: &FieldPath<'_>,
    allowed: AllowedParts,
) -> Result<Vec<ContentPart<'d>>, ApiError> {
    if content.is_string() {
        return Ok(vec![ContentPart::Text(content)]);
    }
    if !content.is_array() {
        return Err(path.unexpected_type_error("a string or an array of content parts", content.kind()));
    }
    let parts = content.items().enumerate().map(|(index, part)| read_part(part, &path.item(index), allowed));
    parts.collect()
}

fn read_part<'d>(
    part: JsonValue<'d>,
    part_path: &FieldPath<'_>,
    allowed: AllowedParts,
) -> Result<ContentPart<'d>, ApiError> {
    let [kind, text, refusal, audio] =
        read::read_named_members(part, part_path, ["type", "text", "refusal", "input_audio"])?;
    let path = part_path.member("type");
    let kind = read::require_member(kind, &path, read::QuotedAlternatives(allowed.type_names()))?;
    if kind.equals_text("input_file") {
        return Err(path.unsupported_error("files are not read here; send their text"));
    }
    match read::read_keyword(kind, &path, allowed.type_names())? {
        "input_image" => read_image(part, part_path),
        "input_audio" => {
            let path = part_path.member("input_audio");
            read_audio(read::require_member(audio, &path, "an object")?, &path)
        }
        "refusal" => {
            let path = part_path.member("refusal");
            read::require_string(read::require_member(refusal, &path, "a string")?, &path)
                .map(ContentPart::Text)
        }
        _ => {
            let path = part_path.member("text");
            read::require_string(read::require_member(text, &path, "a string")?, &path).map(ContentPart::Text)
        }
    }
}

fn read_image<'d>(part: JsonValue<'d>, part_path: &FieldPath<'_>) -> Result<ContentPart<'d>, ApiError> {
    let [url, detail, file] = read::read_named_members(part, part_path, ["image_url", "detail", "file_id"])?;
    if file.is_some() {
        return Err(part_path
            .member("file_id")
            .unsupported_error("files by id are not supported; send `image_url`"));
    }
    let path = part_path.member("image_url");
    let url = read::require_member(url, &path, "a URL")?;
    media::validate_image_url(url, &path)?;
    detail
        .map(|detail| {
            read::read_keyword(detail, &part_path.member("detail"), &["auto", "low", "high", "original"])
        })
        .transpose()?;
    Ok(ContentPart::Image { url, detail })
}

fn read_audio<'d>(audio: JsonValue<'d>, audio_path: &FieldPath<'_>) -> Result<ContentPart<'d>, ApiError> {
    let [sound, format] = read::read_named_members(audio, audio_path, ["data", "format"])?;
    let path = audio_path.member("format");
    read::read_keyword(read::require_member(format, &path, "\"wav\" or \"mp3\"")?, &path, &["wav", "mp3"])?;
    let path = audio_path.member("data");
    media::validate_base64(
        read::require_string(read::require_member(sound, &path, "base64")?, &path)?,
        &path,
        0,
    )?;
    Ok(ContentPart::Audio(audio))
}

/// Writes parts as the content of a chat message: a single text as a string, other parts as an array.
pub(super) fn write_parts(parts: &[ContentPart<'_>], out: &mut ChatBodyWriter) {
    if let [ContentPart::Text(text)] = parts {
        return out.write_raw_json(text.raw());
    }
    out.write_raw_json("[");
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.write_raw_json(",");
        }
        match part {
            ContentPart::Text(text) => {
                out.write_raw_json(r#"{"type":"text","text":"#);
                out.write_raw_json(text.raw());
            }
            ContentPart::Image { url, detail } => {
                out.write_raw_json(r#"{"type":"image_url","image_url":{"url":"#);
                out.write_raw_json(url.raw());
                if let Some(detail) = detail {
                    out.write_raw_json(r#","detail":"#);
                    out.write_raw_json(detail.raw());
                }
                out.write_raw_json("}");
            }
            ContentPart::Audio(audio) => {
                out.write_raw_json(r#"{"type":"input_audio","input_audio":"#);
                out.write_raw_json(audio.raw());
            }
        }
        out.write_raw_json("}");
    }
    out.write_raw_json("]");
}
