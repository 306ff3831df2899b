//! Serializer of the turns of a messages request as chat messages.

use super::block::{ContentPart, EscapedBytes};
use super::conversation::{AssistantMessage, ToolResultBlock, UserMessage};
use super::ids;
use crate::body_builder::BodyBuilder;
use crate::continuation_mark::ContinuationMark;
use penstock_core::{AttemptTarget, OfferCapabilities};
use std::borrow::Cow;

/// Text in a tool result that replaces an image; the image follows in the next message.
const IMAGE_PLACEHOLDER: &[u8] = b"[image: see next message]";

/// Writes the comma between two messages.
pub(super) fn write_comma(out: &mut BodyBuilder<'_>) {
    out.push_byte(b',');
}

/// Writes a system message with its texts as paragraphs.
pub(super) fn write_system(texts: &[EscapedBytes<'_>], out: &mut BodyBuilder<'_>) {
    out.push_str(r#"{"role":"system","content":"#);
    write_joined_texts(texts, br"\n\n", out);
    out.push_byte(b'}');
}

/// Writes the tool messages of a turn, then its system texts, then a user message with the images that tool messages
/// cannot have and the other content.
pub(super) fn write_user(turn: UserMessage<'_>, abilities: &OfferCapabilities, out: &mut BodyBuilder<'_>) {
    let UserMessage { results, parts, system_texts: systems } = turn;
    let mut first = true;
    let mut separate = |out: &mut BodyBuilder<'_>| {
        if !std::mem::take(&mut first) {
            write_comma(out);
        }
    };
    let mut images = Vec::new();
    for result in results {
        separate(out);
        write_tool_result(result, abilities, &mut images, out);
    }
    for text in systems {
        separate(out);
        write_system(&[text], out);
    }
    images.extend(parts);
    if !images.is_empty() {
        separate(out);
        out.push_str(r#"{"role":"user","content":"#);
        write_content(&images, out);
        out.push_byte(b'}');
    }
}

/// Writes an assistant message; `mark` is set if the provider must continue the message.
pub(super) fn write_assistant(
    turn: &AssistantMessage<'_>,
    target: &AttemptTarget<'_>,
    mark: Option<ContinuationMark>,
    out: &mut BodyBuilder<'_>,
) {
    let abilities = target.capabilities;
    out.push_str(r#"{"role":"assistant","content":"#);
    if turn.texts.is_empty() && !turn.calls.is_empty() {
        out.push_str("null");
    } else {
        write_joined_texts(&turn.texts, b"", out);
    }
    if let Some(name) = target.reasoning_replay_member().filter(|_| !turn.reasoning.is_empty()) {
        out.push_byte(b',');
        out.push_json_string(name.as_str());
        out.push_byte(b':');
        write_joined_texts(&turn.reasoning, br"\n", out);
    }
    for (at, call) in turn.calls.iter().enumerate() {
        out.push_str(if at == 0 { r#","tool_calls":[{"id":""# } else { r#",{"id":""# });
        out.push_source(&provider_call_id(call.id, abilities));
        out.push_str(r#"","type":"function","function":{"name":""#);
        out.push_source(&ids::shorten_tool_name(call.name));
        out.push_str(r#"","arguments":""#);
        out.push_escaped_json(call.input);
        out.push_str(r#""}}"#);
    }
    if !turn.calls.is_empty() {
        out.push_byte(b']');
    }
    if let Some(mark) = mark {
        mark.write_message_member(out);
    }
    out.push_byte(b'}');
}

/// Writes a tool message. Images are added to `images` if the provider accepts none in tool messages.
fn write_tool_result<'a>(
    result: ToolResultBlock<'a>,
    abilities: &OfferCapabilities,
    images: &mut Vec<ContentPart<'a>>,
    out: &mut BodyBuilder<'_>,
) {
    out.push_str(r#"{"role":"tool","tool_call_id":""#);
    out.push_source(&provider_call_id(result.id, abilities));
    out.push_str(r#"","content":"#);
    let mut parts = result.parts;
    if result.is_error && !starts_with_error(&parts) {
        match parts.first_mut() {
            Some(ContentPart::Text(text)) => *text = Cow::Owned([b"Error: ", &text[..]].concat()),
            _ => parts.insert(0, ContentPart::Text(Cow::Borrowed(b"Error: the tool failed."))),
        }
    }
    if abilities.tool_images && parts.iter().any(|part| !matches!(part, ContentPart::Text(_))) {
        write_content(&parts, out);
    } else {
        let texts: Vec<EscapedBytes<'_>> = parts
            .into_iter()
            .map(|part| match part {
                ContentPart::Text(text) => text,
                image => {
                    images.push(image);
                    Cow::Borrowed(IMAGE_PLACEHOLDER)
                }
            })
            .collect();
        write_joined_texts(&texts, br"\n", out);
    }
    out.push_byte(b'}');
}

/// Returns true if the first 24 bytes of a tool result contain `error`, in any case.
fn starts_with_error(parts: &[ContentPart<'_>]) -> bool {
    let Some(ContentPart::Text(text)) = parts.first() else {
        return false;
    };
    let start: Vec<u8> = text.iter().take(24).map(u8::to_ascii_lowercase).collect();
    start.windows(5).any(|word| word == b"error")
}

fn provider_call_id<'a>(id: &'a [u8], abilities: &OfferCapabilities) -> Cow<'a, [u8]> {
    if abilities.short_tool_ids { ids::nine_char_call_id(id) } else { Cow::Borrowed(id) }
}

/// Writes a single text as a string, and other content as a list of parts.
fn write_content(parts: &[ContentPart<'_>], out: &mut BodyBuilder<'_>) {
    if let [ContentPart::Text(text)] = parts {
        write_joined_texts(std::slice::from_ref(text), b"", out);
        return;
    }
    for (at, part) in parts.iter().enumerate() {
        out.push_byte(if at == 0 { b'[' } else { b',' });
        match part {
            ContentPart::Text(text) => {
                out.push_str(r#"{"type":"text","text":""#);
                out.push_source(text);
                out.push_str(r#""}"#);
            }
            ContentPart::InlineImage { media, data } => {
                out.push_str(r#"{"type":"image_url","image_url":{"url":"data:"#);
                out.push_source(media);
                out.push_str(";base64,");
                out.push_source(data);
                out.push_str(r#""}}"#);
            }
            ContentPart::ImageUrl(url) => {
                out.push_str(r#"{"type":"image_url","image_url":{"url":""#);
                out.push_source(url);
                out.push_str(r#""}}"#);
            }
        }
    }
    out.push_byte(b']');
}

/// Writes texts as one JSON string, with a separator between them.
fn write_joined_texts(texts: &[EscapedBytes<'_>], separator: &[u8], out: &mut BodyBuilder<'_>) {
    out.push_byte(b'"');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push_source(separator);
        }
        out.push_source(text);
    }
    out.push_byte(b'"');
}

/// Escapes text as the body of a JSON string.
pub(super) fn escape_text(text: &str) -> EscapedBytes<'static> {
    Cow::Owned(crate::event::EscapedText::new(text).escaped().to_vec())
}
