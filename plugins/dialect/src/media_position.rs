//! Position of the first image, audio or file in a request, for the error of a model that does not read such media.

use crate::json_cursor;
use penstock_core::{InferenceRequest, RequestBodyFormat};

/// Kind of media in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// Images of any type.
    Image,
    /// Recorded sound.
    Audio,
    /// Documents, such as PDF files.
    File,
}

/// Maximum nesting of content that is searched: a document in the content of a tool result.
const MAX_DEPTH: u8 = 4;

/// Returns the path of the first content part of this kind, in the notation of the client's dialect, such as
/// `messages[0].content[1]`; `None` if the request has none.
#[must_use]
pub fn first_media_path(ask: &InferenceRequest, kind: MediaKind) -> Option<String> {
    let format = ask.dialect.request_body_format();
    let messages = json_cursor::elements(ask.member_value("messages")?);
    let path = messages.enumerate().find_map(|(index, message)| {
        let path = format!("{}.content", item_path(format, "messages", index));
        find_part(json_cursor::member_value(message, "content")?, &path, format, kind, 0)
    })?;
    let own = ask.responses.as_ref().and_then(|details| details.client_param_path(&path));
    Some(own.unwrap_or(path))
}

fn item_path(format: RequestBodyFormat, list: &str, index: usize) -> String {
    match format {
        RequestBodyFormat::Chat => format!("{list}[{index}]"),
        RequestBodyFormat::Messages => format!("{list}.{index}"),
    }
}

/// Returns the path of the first part of this kind in a content, whose path is `content_path`.
fn find_part(
    content: &[u8],
    content_path: &str,
    format: RequestBodyFormat,
    kind: MediaKind,
    depth: u8,
) -> Option<String> {
    if depth > MAX_DEPTH || !json_cursor::is_array(content) {
        return None;
    }
    json_cursor::elements(content).enumerate().find_map(|(index, part)| {
        let member = |name| json_cursor::member_value(part, name);
        let path = item_path(format, content_path, index);
        let nested =
            |content: &[u8], name| find_part(content, &format!("{path}.{name}"), format, kind, depth + 1);
        let part_type = member("type").and_then(json_cursor::parse_string)?;
        match (&*part_type, kind) {
            ("image_url" | "image", MediaKind::Image)
            | ("input_audio", MediaKind::Audio)
            | ("file", MediaKind::File) => Some(path),
            ("document", _) => {
                let source = member("source")?;
                let source_type =
                    json_cursor::member_value(source, "type").and_then(json_cursor::parse_string)?;
                match &*source_type {
                    "content" => nested(json_cursor::member_value(source, "content")?, "source.content"),
                    "base64" | "url" => (kind == MediaKind::File).then_some(path),
                    _ => None,
                }
            }
            ("tool_result", _) => nested(member("content")?, "content"),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::test_support;
    use penstock_core::Dialect;
    use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
    use serde_json::{Value, json};

    fn path(dialect: Dialect, messages: &Value, kind: MediaKind) -> Option<String> {
        let body = json!({"model": "m", "messages": messages}).to_string();
        first_media_path(&test_support::sample_request(dialect, body.as_bytes()), kind)
    }

    #[test]
    fn the_first_part_of_each_kind_is_found() {
        let (text, image) =
            (json!({"type": "text", "text": "a"}), json!({"type": "image_url", "image_url": {"url": "x"}}));
        let chat = json!([
            {"role": "user", "content": "image_url"},
            {"role": "user", "content": [text, {"type": "input_audio"}, {"type": "file"}]},
            {"role": "tool", "content": [text, image]},
            {"role": "user", "content": [image]},
        ]);
        for (kind, expected) in [
            (MediaKind::Image, "messages[2].content[1]"),
            (MediaKind::Audio, "messages[1].content[1]"),
            (MediaKind::File, "messages[1].content[2]"),
        ] {
            assert_eq!(path(Dialect::Chat, &chat, kind).as_deref(), Some(expected));
            assert_eq!(path(Dialect::Chat, &json!([{"role": "user", "content": [text]}]), kind), None);
        }
    }

    #[test]
    fn nested_parts_of_a_messages_request_are_found() {
        let (text, image) =
            (json!({"type": "text", "text": "a"}), json!({"type": "image", "source": {"type": "url"}}));
        let plain = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain"}});
        let document = json!({"type": "document", "source": {"type": "content", "content": [text, image]}});
        let pdf = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}});
        let result = json!({"type": "tool_result", "content": [plain, document, pdf]});
        let messages = json!([{"role": "user", "content": [plain, result]}]);
        for (kind, expected) in [
            (MediaKind::Image, Some("messages.0.content.1.content.1.source.content.1")),
            (MediaKind::Audio, None),
            (MediaKind::File, Some("messages.0.content.1.content.2")),
        ] {
            assert_eq!(path(Dialect::Messages, &messages, kind).as_deref(), expected);
        }
    }

    #[test]
    fn a_part_of_a_responses_request_has_the_path_of_its_item() {
        let image = json!({"type": "input_image", "image_url": "https://example.com/a.png"});
        let body = json!({"model": "m", "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": [image]},
            {"role": "user", "content": [image]},
        ]});
        let limits = RequestLimits::default();
        let ask =
            validate_responses_request(body.to_string().into(), &limits, ResponsesPurpose::Generate).unwrap();
        assert_eq!(first_media_path(&ask, MediaKind::Image).as_deref(), Some("input[2].output[0]"));
    }
}
