//! Validation of message content: a string, or parts of text, images, audio and files.

use super::ChatFindings;
use crate::field_path::FieldPath;
use crate::media::{self, ImageLocation};
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Content parts allowed in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedParts {
    /// Text, in system messages.
    Text,
    /// Text and refusals, in assistant messages.
    TextOrRefusal,
    /// Text and images, in tool results.
    TextAndImages,
    /// All types of content parts, in user messages.
    TextAndMedia,
}

impl AllowedParts {
    const fn type_names(self) -> &'static [&'static str] {
        match self {
            Self::Text => &["text"],
            Self::TextOrRefusal => &["text", "refusal"],
            Self::TextAndImages => &["text", "image_url"],
            Self::TextAndMedia => &["text", "image_url", "input_audio", "file"],
        }
    }
}

/// Validates the content of a message: a string or an array of parts of the allowed types.
pub(super) fn validate_parts(
    content: JsonValue<'_>,
    path: &FieldPath<'_>,
    allowed: AllowedParts,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    if content.is_string() {
        return Ok(());
    }
    if !content.is_array() {
        return Err(path.unexpected_type_error("a string or an array of content parts", content.kind()));
    }
    for (index, part) in content.items().enumerate() {
        self::validate_part(part, &path.item(index), allowed, found)?;
    }
    Ok(())
}

fn validate_part(
    part: JsonValue<'_>,
    part_path: &FieldPath<'_>,
    allowed: AllowedParts,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [kind, text, refusal, image_url, input_audio, file] = read::read_named_members(
        part,
        part_path,
        ["type", "text", "refusal", "image_url", "input_audio", "file"],
    )?;
    let path = part_path.member("type");
    let kind = read::require_member(kind, &path, read::QuotedAlternatives(allowed.type_names()))?;
    if kind.equals_text("video_url") {
        return Err(path.unsupported_error("video is not supported"));
    }
    let word = read::read_keyword(kind, &path, allowed.type_names())?;
    let path = part_path.member(word);
    match word {
        "text" => read::require_string(read::require_member(text, &path, "a string")?, &path).map(|_| ())?,
        "refusal" => {
            read::require_string(read::require_member(refusal, &path, "a string")?, &path)?;
            // A refusal is converted to a text part, because the model reads it as normal text.
            found.edits.replace(kind.range(), r#""text""#);
            let key = part.members().find(|(key, _)| key.equals_text("refusal")).map(|(key, _)| key);
            key.map(|key| found.edits.replace(key.range(), r#""text""#)).unwrap_or_default();
        }
        "image_url" => validate_image(read::require_member(image_url, &path, "an object")?, &path, found)?,
        "input_audio" => {
            validate_audio(read::require_member(input_audio, &path, "an object")?, &path, found)?
        }
        _ => self::validate_file(read::require_member(file, &path, "an object")?, &path, found)?,
    }
    found.edits.retain_members(part, |key, value| {
        !value.is_null() && (key.equals_text("type") || key.equals_text(word))
    });
    Ok(())
}

/// Validates an image: `{url, detail}`, or only a URL.
fn validate_image(
    image: JsonValue<'_>,
    image_path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let picture = if image.is_string() {
        found.edits.wrap(image, r#"{"url":"#, "}");
        media::validate_image_url(image, image_path)?
    } else {
        let [url, detail] = read::read_named_members(image, image_path, ["url", "detail"])?;
        if let Some(detail) = detail {
            let words = &["auto", "low", "high", "original"];
            if read::read_keyword(detail, &image_path.member("detail"), words)? == "original" {
                found.edits.replace(detail.range(), r#""high""#);
            }
        }
        found.edits.retain_members(image, |key, value| {
            !value.is_null() && (key.equals_text("url") || key.equals_text("detail"))
        });
        let path = image_path.member("url");
        media::validate_image_url(read::require_member(url, &path, "a URL")?, &path)?
    };
    found.images += 1;
    found.needs.images = true;
    match picture {
        ImageLocation::Inline(bytes) => found.media += bytes,
        ImageLocation::Linked => found.needs.image_urls = true,
    }
    Ok(())
}

fn validate_audio(
    audio: JsonValue<'_>,
    audio_path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [sound, format] = read::read_named_members(audio, audio_path, ["data", "format"])?;
    let path = audio_path.member("format");
    read::read_keyword(read::require_member(format, &path, "\"wav\" or \"mp3\"")?, &path, &["wav", "mp3"])?;
    let path = audio_path.member("data");
    let sound = read::require_string(read::require_member(sound, &path, "base64")?, &path)?;
    found.media += media::validate_base64(sound, &path, 0)?;
    found.needs.audio = true;
    Ok(())
}

/// Validates a file: `{file_data, filename}`, whose data is a `data:` URL or plain base64.
fn validate_file(
    file: JsonValue<'_>,
    file_path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [content, filename, id] =
        read::read_named_members(file, file_path, ["file_data", "filename", "file_id"])?;
    if id.is_some() {
        return Err(file_path
            .member("file_id")
            .unsupported_error("files by id are not supported; send `file_data`"));
    }
    filename.map(|name| read::require_string(name, &file_path.member("filename"))).transpose()?;
    let path = file_path.member("file_data");
    let content = read::require_string(read::require_member(content, &path, "a data: URL")?, &path)?;
    let is_url = content.string_bytes().get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"data:"));
    found.media += if is_url {
        media::validate_data_url(content, &path, &["application/", "text/", "image/"])?
    } else {
        media::validate_base64(content, &path, 0)?
    };
    found.needs.files = true;
    Ok(())
}
