//! Writer of a buffered message.

use super::block::signature_or_default;
use super::options::{self, WriterOptions};
use crate::answer::{AnswerChoice, DecodedAnswer, ToolCall};
use crate::answer_sections::AnswerSection;
use crate::event::EscapedText;
use crate::messages_to_chat::ids::{FNV_OFFSET_BASIS, fnv1a_update};
use crate::partial_json::{JsonState, MAX_SCALAR_BYTES, PartialJson};
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, ThinkingDisplay, UpstreamError,
    UpstreamErrorKind, WorkDone,
};
use penstock_json_scan::json;

/// Name of the member for arguments that are not a JSON object, as the vendor of the dialect recommends.
const INVALID_JSON_MEMBER: &str = "INVALID_JSON";

/// Decodes a provider's buffered answer and writes it in the messages dialect.
///
/// # Errors
/// Returns the error of an answer that cannot be decoded. Tool arguments that are not a JSON object are no error, but
/// output of the model. If they cannot be repaired, they are passed on as text, in an object with
/// [`INVALID_JSON_MEMBER`] as its only member.
pub(crate) fn translate_buffered(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    let answer = DecodedAnswer::decode(ask, target, body)?;
    let manner = WriterOptions::from_request(ask, target);
    let candidate = answer.choices.first().ok_or(UpstreamError::new(UpstreamErrorKind::Malformed))?;
    let finish = candidate.finish_reason.unwrap_or(FinishReason::Stop);
    let mut out = Vec::with_capacity(512 + answer.output_bytes());
    out.push(b'{');
    manner.write_identity(&mut out);
    out.extend_from_slice(br#","content":["#);
    write_content(&manner, candidate, finish, &mut out);
    out.extend_from_slice(b"],");
    options::write_stop_members(
        finish,
        candidate.stop_sequence.as_ref(),
        !candidate.tool_calls.is_empty(),
        &mut out,
    );
    out.extend_from_slice(br#","usage":"#);
    options::write_usage(&answer.usage.unwrap_or_default(), &mut out);
    out.push(b'}');
    let output_bytes = answer.output_bytes();
    Ok(BufferedResponse {
        body: vec![Bytes::from(out)],
        work: answer.usage.map(WorkDone::Tokens),
        provider_work: answer.provider_usage.map(WorkDone::Tokens),
        measured_energy: answer.measured_energy,
        finish_reason: finish,
        output_bytes,
        images: Vec::new(),
        observation: answer.observation,
    })
}

/// Writes the content blocks in the order of the sections. Text after hidden reasoning continues the text before it, as
/// in a stream.
fn write_content(manner: &WriterOptions, candidate: &AnswerChoice, finish: FinishReason, out: &mut Vec<u8>) {
    let start = out.len();
    let mut is_text_open = false;
    for section in &candidate.sections {
        match section {
            AnswerSection::Reasoning { .. } if manner.thinking == ThinkingDisplay::Off => {}
            AnswerSection::Reasoning { fragments, signature } => {
                let texts: Vec<_> = candidate.reasoning_texts(fragments).collect();
                if !texts.is_empty() || signature.is_some() {
                    close_text(&mut is_text_open, out);
                    write_thinking(manner, &texts, signature.as_ref(), out);
                }
            }
            AnswerSection::Message(message) => {
                for text in candidate.message_texts(message) {
                    if !std::mem::replace(&mut is_text_open, true) {
                        out.extend_from_slice(br#"{"type":"text","text":""#);
                    }
                    out.extend_from_slice(text.escaped());
                }
            }
            AnswerSection::Call(number) => {
                close_text(&mut is_text_open, out);
                if let Some(call) = candidate.tool_calls.get(*number) {
                    write_tool_use(call, finish, out);
                    out.push(b',');
                }
            }
        }
    }
    close_text(&mut is_text_open, out);
    // Example code of clients reads `content[0].text`, so an answer without blocks gets an empty text block.
    if out.len() == start {
        out.extend_from_slice(br#"{"type":"text","text":""},"#);
    }
    out.pop();
}

/// Ends an open text block.
fn close_text(is_open: &mut bool, out: &mut Vec<u8>) {
    if std::mem::take(is_open) {
        out.extend_from_slice(br#""},"#);
    }
}

fn write_thinking(
    manner: &WriterOptions,
    texts: &[&EscapedText],
    signature: Option<&EscapedText>,
    out: &mut Vec<u8>,
) {
    let hash = texts.iter().fold(FNV_OFFSET_BASIS, |hash, text| fnv1a_update(hash, text.escaped()));
    out.extend_from_slice(br#"{"type":"thinking","thinking":""#);
    if manner.thinking == ThinkingDisplay::Shown {
        texts.iter().for_each(|text| out.extend_from_slice(text.escaped()));
    }
    out.extend_from_slice(br#"","signature":""#);
    out.extend_from_slice(signature_or_default(signature, hash).escaped());
    out.extend_from_slice(br#""},"#);
}

fn write_tool_use(call: &ToolCall, finish: FinishReason, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"tool_use","id":""#);
    out.extend_from_slice(call.id.escaped());
    out.extend_from_slice(br#"","name":""#);
    out.extend_from_slice(call.name.escaped());
    out.extend_from_slice(br#"","input":"#);
    let arguments: String = call.arguments.iter().map(EscapedText::decoded).collect();
    let cut =
        matches!(finish, FinishReason::Length | FinishReason::ContextWindow | FinishReason::ContentFilter);
    match arguments_object(&arguments, cut) {
        Some(input) => out.extend_from_slice(input.as_bytes()),
        None => {
            out.push(b'{');
            json::write_str(out, INVALID_JSON_MEMBER);
            out.push(b':');
            json::write_str(out, &arguments);
            out.push(b'}');
        }
    }
    out.push(b'}');
}

/// Returns the arguments as a JSON object: unchanged if they are an object, and `{}` if they are empty, `null` or `""`.
/// Otherwise removes a code fence and trailing commas. If that gives no object either, the result for a truncated
/// answer (`cut`) is the longest prefix that can be closed to form an object, and `None` for any other answer.
fn arguments_object(arguments: &str, cut: bool) -> Option<String> {
    let mut watch = PartialJson::new();
    match watch.push(arguments) {
        JsonState::Complete => return Some(arguments.trim().to_owned()),
        JsonState::Empty | JsonState::NonObject if watch.is_valid_end() => return Some("{}".to_owned()),
        _ => {}
    }
    let bare = strip_code_fence(arguments);
    let mended = strip_trailing_commas(bare);
    if PartialJson::new().push(&mended) == JsonState::Complete {
        return Some(mended);
    }
    cut.then(|| close_partial(bare))
}

fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inside) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else {
        return text;
    };
    inside.strip_prefix("json").unwrap_or(inside).trim()
}

/// Removes commas before a closing bracket, outside strings.
fn strip_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut inside, mut escaped) = (false, false);
    for letter in text.chars() {
        if !inside && matches!(letter, '}' | ']') {
            let trimmed = out.trim_end();
            if trimmed.ends_with(',') {
                out.truncate(trimmed.len() - 1);
            }
        }
        match letter {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
        out.push(letter);
    }
    out
}

/// Returns the longest prefix of truncated JSON that can be closed to form an object, with its open string and brackets
/// closed; `{}` without such a prefix. The text may be as long as an answer, so it is read only three times, instead of
/// once for each possible end.
fn close_partial(text: &str) -> String {
    let sound = valid_prefix(text);
    let (mut watch, mut end) = (PartialJson::new(), 0);
    for (at, letter) in sound.char_indices() {
        watch.push(letter.encode_utf8(&mut [0; 4]));
        // Inside a number or word, `can_close_brackets` parses this number or word again. It is called there only in
        // the last bytes of the text: elsewhere the number or word ends later, and a longer prefix can be closed.
        let before = !watch.is_in_scalar() || sound.len() - at <= MAX_SCALAR_BYTES;
        if before && watch.can_close_brackets() {
            end = at + letter.len_utf8();
        }
    }
    let Some(beginning) = sound.get(..end).filter(|beginning| !beginning.is_empty()) else {
        return "{}".to_owned();
    };
    let mut watch = PartialJson::new();
    watch.push(beginning);
    watch.with_closed_brackets(beginning)
}

/// Returns the longest prefix that is the start of a JSON object.
fn valid_prefix(text: &str) -> &str {
    let mut watch = PartialJson::new();
    let mut letters = text.char_indices();
    let first_invalid =
        letters.find(|(_, letter)| watch.push(letter.encode_utf8(&mut [0; 4])) == JsonState::Invalid);
    first_invalid.map_or(text, |(at, _)| text.get(..at).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_arguments_become_an_object() {
        let whole = |text| arguments_object(text, false);
        assert_eq!(whole("").as_deref(), Some("{}"));
        assert_eq!(whole("null").as_deref(), Some("{}"));
        assert_eq!(whole(r#" {"b":1,"a":2} "#).as_deref(), Some(r#"{"b":1,"a":2}"#));
        assert_eq!(whole(r#"{"a":[1,2,],}"#).as_deref(), Some(r#"{"a":[1,2]}"#));
        assert_eq!(whole("```json\n{\"a\":\"x,}\"}\n```").as_deref(), Some(r#"{"a":"x,}"}"#));
        assert_eq!(whole(r#"{"a":"#), None);
        assert_eq!(whole("call me"), None);
    }

    #[test]
    fn truncated_arguments_retain_their_complete_parts() {
        let cut = |text| arguments_object(text, true).unwrap_or_default();
        assert_eq!(cut(r#"{"path":"a.txt","text":"Hel"#), r#"{"path":"a.txt","text":"Hel"}"#);
        assert_eq!(cut(r#"{"path":"a.txt","te"#), r#"{"path":"a.txt"}"#);
        assert_eq!(cut(r#"{"list":[1,2,"#), r#"{"list":[1,2]}"#);
        assert_eq!(cut(r#"{"a":"x\"#), r#"{"a":"x"}"#);
        assert_eq!(cut("{"), "{}");
        assert_eq!(cut(""), "{}");
    }

    /// Reference implementation of [`close_partial`], which tries every position.
    fn close_by_trial(text: &str) -> String {
        let mut best = "{}".to_owned();
        let (mut nest, mut inside, mut escaped) = (Vec::new(), false, false);
        for (at, letter) in text.char_indices() {
            match letter {
                _ if escaped => escaped = false,
                '\\' if inside => escaped = true,
                '"' => inside = !inside,
                '{' if !inside => nest.push('}'),
                '[' if !inside => nest.push(']'),
                '}' | ']' if !inside => {
                    nest.pop();
                }
                _ => {}
            }
            let start = text.get(..at + letter.len_utf8()).unwrap_or_default();
            let mut closed = match inside {
                true => format!("{start}\""),
                false => start.trim_end().trim_end_matches(',').to_owned(),
            };
            closed.extend(nest.iter().rev());
            if !escaped && PartialJson::new().push(&closed) == JsonState::Complete {
                best = closed;
            }
        }
        best
    }

    /// Removes white space between tokens.
    fn compact(json: &str) -> Vec<u8> {
        let mut out = Vec::new();
        crate::body_builder::write_escaped_json(json.as_bytes(), &mut out);
        out
    }

    #[test]
    fn truncated_arguments_are_closed_at_the_longest_valid_prefix() {
        const LETTERS: [char; 13] = ['{', '}', '[', ']', ',', ':', '"', '\\', 'u', ' ', '1', '.', '\u{a0}'];
        let mut tails = vec![String::new()];
        for length in 0..4 {
            let longest = tails.iter().filter(|tail| tail.chars().count() == length);
            let longer = longest.flat_map(|tail| LETTERS.map(|letter| format!("{tail}{letter}")));
            tails.extend(longer.collect::<Vec<_>>());
        }
        for start in ["", r#"{"a":"#, r#"{"a":[1,"#, r#"{"a":[{"b":"x"#, r#"{"a":null"#, r#"{"a":{"b":0}"#] {
            for tail in &tails {
                let text = format!("{start}{tail}");
                assert_eq!(compact(&close_partial(&text)), compact(&close_by_trial(&text)), "{text}");
            }
        }
    }

    #[test]
    fn long_truncated_arguments_are_closed_in_linear_time() {
        let numbers = |number: &str| {
            format!("{{\"a\":[{number}{}", format!(",{number}").repeat((1 << 20) / number.len()))
        };
        for number in ["1", &"2".repeat(MAX_SCALAR_BYTES)] {
            let text = numbers(number);
            assert!(arguments_object(&text, true) == Some(format!("{text}]}}")));
            assert!(arguments_object(&format!("{text},-"), true) == Some(format!("{text}]}}")));
            assert!(arguments_object(&format!("{text},]:{text}"), true) == Some(format!("{text}]}}")));
        }
        let (open, close) = ("[".repeat(511), "]".repeat(511));
        let text = format!("{{\"a\":1,\"b\":{open}");
        assert_eq!(arguments_object(&(text.clone() + &"[".repeat(1 << 20)), true), Some(text + &close + "}"));
    }
}
