//! Repair of members on which client libraries fail, in the answer of a messages provider. All other bytes stay
//! unchanged.

use super::hidden_thinking::is_thinking_block;
use super::message_members::{add_null, complete_message};
use crate::answer::{AnswerChoice, DecodedAnswer};
use crate::body_builder::{shared_slice, write_escaped_json};
use crate::decode::messages::EventMembers;
use crate::decode::parse_finish_word;
use crate::document_patches::DocumentPatches;
use crate::event::EscapedText;
use crate::json_cursor;
use crate::messages_to_chat::ids::{FNV_OFFSET_BASIS, fnv1a_update};
use crate::response_constraints::ToolCallIds;
use crate::write::messages;
use bytes::Bytes;
use penstock_core::{AttemptTarget, FinishReason, ThinkingDisplay, TokenUsage};
use penstock_json_scan::json;

/// Stop reasons that clients know.
const STOP_REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

/// JSON of an empty string.
const EMPTY_STRING: &[u8] = br#""""#;

pub(super) fn json_string(text: &str) -> Vec<u8> {
    [b"\"", EscapedText::new(text).escaped(), b"\""].concat()
}

/// Repairs a buffered message, sets the client's model name, and removes thinking that was not requested.
pub(super) fn repair_message(
    body: &Bytes,
    answer: &DecodedAnswer,
    target: &AttemptTarget<'_>,
    thinking: ThinkingDisplay,
) -> Vec<Bytes> {
    let mut patches = DocumentPatches::new(body);
    let (mut content, mut usage, mut reason, mut stop) = (None, None, None, None);
    for (key, value) in json_cursor::members(body) {
        match &*key {
            "content" => content = Some(value),
            "usage" => usage = Some(value),
            "stop_reason" => reason = Some(value),
            "stop_sequence" => stop = Some(value),
            _ => {}
        }
    }
    complete_message(&mut patches, body, target.answer_model, target.answer_id);
    repair_blocks(&mut patches, content.unwrap_or_default(), thinking, target.answer_id);
    let replacement = answer.choices.first().and_then(|choice| replacement_stop_reason(reason, choice));
    if let Some(name) = replacement {
        patches.set_member(body, "stop_reason", reason, json_string(name));
    }
    if stop.is_none() || replacement.is_some_and(|name| name != "stop_sequence") {
        patches.set_member(body, "stop_sequence", stop, b"null".to_vec());
    }
    repair_usage(&mut patches, body, usage, &answer.usage.unwrap_or_default());
    patches.finish()
}

/// Repairs the blocks of a buffered message; writes an empty text block if none would remain.
fn repair_blocks(patches: &mut DocumentPatches<'_>, content: &[u8], thinking: ThinkingDisplay, seed: &str) {
    let hidden = |part: &[u8]| thinking == ThinkingDisplay::Off && is_thinking_block(part);
    if json_cursor::elements(content).all(hidden) {
        return patches.replace(content, &br#"[{"type":"text","text":""}]"#[..]);
    }
    patches.remove_elements(content, hidden);
    let mut ids = ToolCallIds::default();
    for part in json_cursor::elements(content).filter(|part| !hidden(part)) {
        repair_block(patches, part, |thought| {
            messages::signature_or_default(None, fnv1a_update(FNV_OFFSET_BASIS, thought))
                .decoded()
                .into_owned()
        });
        if thinking == ThinkingDisplay::Omitted {
            clear_thinking(patches, part);
        }
        repair_input(patches, part);
        ensure_unique_id(patches, part, &mut ids, seed);
    }
}

/// Replaces the id of a tool call if it is absent or empty, or an earlier call has the same id.
fn ensure_unique_id(patches: &mut DocumentPatches<'_>, block: &[u8], ids: &mut ToolCallIds, seed: &str) {
    if !has_type(block, "tool_use") {
        return;
    }
    let reported =
        json_cursor::members(block).filter(|(key, _)| key == "id").last().map(|(_, reported)| reported);
    let id = reported
        .and_then(json_cursor::string_body)
        .and_then(|id| EscapedText::from_json(Bytes::copy_from_slice(id)))
        .filter(|id| !id.is_empty());
    let own = match &id {
        Some(id) => ids.deduplicate_id(id.clone(), seed, 0),
        None => ids.generate_id(seed, 0),
    };
    if id.as_ref() != Some(&own) {
        patches.set_member(block, "id", reported, json_string(&own.decoded()));
    }
}

/// Empties the text of a thinking block and retains its signature.
fn clear_thinking(patches: &mut DocumentPatches<'_>, block: &[u8]) {
    if is_thinking_block(block) {
        for (_, words) in json_cursor::members(block).filter(|(key, _)| key == "thinking") {
            patches.replace(words, EMPTY_STRING);
        }
    }
}

/// Returns the repaired `message` of a `message_start` event with the client's model name; `id` is the unique part of
/// the answer's id. Of an absent or empty message, only these and the usage are known.
pub(super) fn repair_message_start(
    data: &Bytes,
    message: Option<&[u8]>,
    (model, id): (&str, &str),
    known_usage: &TokenUsage,
) -> Vec<u8> {
    let reported = message.filter(|message| json_cursor::members(message).next().is_some());
    let message = reported
        .and_then(|message| shared_slice(data, message))
        .unwrap_or(Bytes::from_static(br#"{"type":"message"}"#));
    let mut patches = DocumentPatches::new(&message);
    let (mut content, mut usage) = (None, None);
    for (key, value) in json_cursor::members(&message) {
        match &*key {
            "content" => content = Some(value),
            "usage" => usage = Some(value),
            _ => {}
        }
    }
    complete_message(&mut patches, &message, model, id);
    if !content.is_some_and(json_cursor::is_array) {
        patches.set_member(&message, "content", content, b"[]".to_vec());
    }
    add_null(&mut patches, &message, "stop_reason");
    add_null(&mut patches, &message, "stop_sequence");
    repair_usage(&mut patches, &message, usage, known_usage);
    patches.finish().concat()
}

/// Returns true if the details of a usage object count more tokens than the totals in `known_usage`.
pub(super) fn has_implausible_usage_details(usage: &[u8], known_usage: &TokenUsage) -> bool {
    let exceeds = |object: &[u8], most: u64| {
        json_cursor::members(object)
            .filter_map(|(_, value)| json_cursor::parse_integer(value))
            .any(|count| count > most)
    };
    json_cursor::member_value(usage, "output_tokens_details")
        .is_some_and(|details| exceeds(details, known_usage.output))
        || json_cursor::member_value(usage, "cache_creation")
            .is_some_and(|details| exceeds(details, known_usage.input))
}

/// Replaces the usage by `known_usage` in two cases: one of the two counts that every client reads is missing or
/// implausible, or the details exceed the totals.
fn repair_usage(
    patches: &mut DocumentPatches<'_>,
    message: &[u8],
    reported: Option<&[u8]>,
    known_usage: &TokenUsage,
) {
    let numbers = ["input_tokens", "output_tokens"];
    let counts = |usage: &[u8]| {
        numbers
            .iter()
            .all(|name| json_cursor::member_value(usage, name).and_then(json_cursor::parse_integer).is_some())
    };
    let is_sound =
        reported.is_some_and(|usage| counts(usage) && !has_implausible_usage_details(usage, known_usage));
    if known_usage.source.is_implausible() || !is_sound {
        let mut usage = Vec::with_capacity(128);
        messages::write_usage(known_usage, &mut usage);
        patches.set_member(message, "usage", reported, usage);
    }
}

/// Repairs a block: removes `caller`, `citations` and `toolset_name` if they are null, and adds a missing text and, to
/// a thinking block, a missing signature. `seal` returns the signature for a text.
pub(super) fn repair_block(patches: &mut DocumentPatches<'_>, block: &[u8], seal: impl Fn(&[u8]) -> String) {
    let (mut thinks, mut thought, mut signature, mut hollow) = (false, &b""[..], None, false);
    for (key, value) in json_cursor::members(block) {
        match &*key {
            "type" => thinks = json::json_string_equals(value, "thinking"),
            "thinking" => thought = json_cursor::string_body(value).unwrap_or_default(),
            "signature" => signature = Some(value),
            "caller" | "citations" | "toolset_name" => hollow |= json_cursor::is_null(value),
            _ => {}
        }
    }
    repair_text_member(patches, block);
    if hollow {
        patches.remove_members(block, |key, value| {
            matches!(key, b"caller" | b"citations" | b"toolset_name") && json_cursor::is_null(value)
        });
    }
    if thinks && signature.and_then(json_cursor::string_body).is_none() {
        patches.set_member(block, "signature", signature, json_string(&seal(thought)));
    }
}

/// Sets the text of a block to an empty string if it is null or absent.
fn repair_text_member(patches: &mut DocumentPatches<'_>, block: &[u8]) {
    const TEXT_MEMBERS: [(&str, &str); 3] =
        [("text", "text"), ("thinking", "thinking"), ("redacted_thinking", "data")];
    let Some((_, name)) = TEXT_MEMBERS.iter().find(|(kind, _)| has_type(block, kind)) else { return };
    let mut is_absent = true;
    for (_, value) in json_cursor::members(block).filter(|(key, _)| key == name) {
        is_absent = false;
        if json_cursor::is_null(value) {
            patches.replace(value, EMPTY_STRING);
        }
    }
    if is_absent {
        patches.set_member(block, name, None, EMPTY_STRING.to_vec());
    }
}

/// Sets the input of a tool call to an empty object if it is null or absent.
fn repair_input(patches: &mut DocumentPatches<'_>, block: &[u8]) {
    let input = json_cursor::members(block).filter(|(key, _)| key == "input").last().map(|(_, input)| input);
    if has_type(block, "tool_use") && input.is_none_or(json_cursor::is_null) {
        patches.set_member(block, "input", input, b"{}".to_vec());
    }
}

/// Returns the correct stop reason if the provider's is unknown to clients or does not match the answer's end; `None`
/// if no correction is needed.
fn replacement_stop_reason(reported: Option<&[u8]>, candidate: &AnswerChoice) -> Option<&'static str> {
    let finish = candidate.finish_reason?;
    (!is_matching_stop_reason(reported, finish))
        .then(|| messages::stop_reason(finish, candidate.stop_sequence.as_ref(), false))
}

fn is_matching_stop_reason(reported: Option<&[u8]>, finish: FinishReason) -> bool {
    let reported = reported.and_then(json_cursor::parse_string).unwrap_or_default();
    STOP_REASONS.contains(&&*reported) && parse_finish_word(&reported).is_ok_and(|meant| meant == finish)
}

/// Writes the `delta` of the `message_delta` event: unchanged if it fits the finish reason. `asked` has the client's
/// stop sequences.
pub(super) fn write_message_delta(
    delta: Option<&[u8]>,
    finish: FinishReason,
    asked: &[String],
    out: &mut Vec<u8>,
) {
    let delta = delta.unwrap_or_default();
    let has_stop_sequence = json_cursor::members(delta).any(|(key, _)| key == "stop_sequence");
    if has_stop_sequence && is_matching_stop_reason(json_cursor::member_value(delta, "stop_reason"), finish) {
        return out.extend_from_slice(delta);
    }
    let stop = json_cursor::member_value(delta, "stop_sequence").and_then(json_cursor::parse_string);
    let stop =
        stop.filter(|stop| asked.iter().any(|asked| asked == stop)).map(|stop| EscapedText::new(&stop));
    out.push(b'{');
    messages::write_stop_members(finish, stop.as_ref(), false, out);
    out.push(b'}');
}

/// Repaired `content_block_start` event. Missing members are added; text and tool input are removed, and sent in deltas
/// instead.
pub(super) struct RepairedBlockStart {
    pub(super) data: Bytes,
    /// Tool input that the original event contained; `None` for an empty input. It is removed, because clients would
    /// append the deltas to it.
    pub(super) early_input: Option<Bytes>,
    /// Name of the text member in the original event, and its text as the body of a JSON string. The text is removed
    /// from the event, because clients read text in deltas only. `None` without text, or if the client must not see it.
    pub(super) early_text: Option<(&'static str, Bytes)>,
}

/// Repairs a `content_block_start` event and removes the content of its block; `ids` are the ids of the calls so far.
pub(super) fn repair_block_start(
    data: &Bytes,
    members: &EventMembers<'_>,
    thinking: ThinkingDisplay,
    (ids, seed): (&mut ToolCallIds, &str),
) -> RepairedBlockStart {
    let opened = members.content_block.unwrap_or_default();
    let mut patches = DocumentPatches::new(data);
    repair_block(&mut patches, opened, |_| String::new());
    let mut words = None;
    if let Some(name) = text_member(opened) {
        // If the object has the member several times, the first value is used, as in the shadow translator. All
        // values are emptied.
        for reported in json_cursor::members(opened)
            .filter(|(key, _)| key == name)
            .filter_map(|(_, reported)| nonempty_string(reported))
        {
            patches.replace(reported, EMPTY_STRING);
        }
        let shown = name == "text" || thinking == ThinkingDisplay::Shown;
        let reported = early_text(opened).filter(|_| shown).and_then(json_cursor::string_body);
        words = reported.and_then(|reported| Some((name, shared_slice(data, reported)?)));
    }
    ensure_unique_id(&mut patches, opened, ids, seed);
    let mut early: Option<Bytes> = None;
    if has_type(opened, "tool_use") {
        let input =
            json_cursor::members(opened).filter(|(key, _)| key == "input").last().map(|(_, input)| input);
        let is_empty =
            |input: &[u8]| json_cursor::is_object(input) && json_cursor::members(input).next().is_none();
        if !input.is_some_and(is_empty) {
            patches.set_member(opened, "input", input, b"{}".to_vec());
            early = input
                .filter(|input| json_cursor::is_object(input))
                .and_then(|input| shared_slice(data, input));
        }
    }
    let data = if patches.is_empty() { data.clone() } else { Bytes::from(patches.finish().concat()) };
    RepairedBlockStart { data, early_input: early, early_text: words }
}

/// Returns the text that a text or thinking block has in its start event, with quotes; `None` if it has none.
pub(super) fn early_text(opened: &[u8]) -> Option<&[u8]> {
    json_cursor::member_value(opened, text_member(opened)?).and_then(nonempty_string)
}

/// Returns true if the block has this `type`.
fn has_type(block: &[u8], kind: &str) -> bool {
    json_cursor::member_value(block, "type").is_some_and(|reported| json::json_string_equals(reported, kind))
}

/// Returns the name of the text member of a text or thinking block.
fn text_member(opened: &[u8]) -> Option<&'static str> {
    ["text", "thinking"].into_iter().find(|kind| has_type(opened, kind))
}

/// Returns the value if it is a string that is not empty.
fn nonempty_string(value: &[u8]) -> Option<&[u8]> {
    json_cursor::string_body(value).is_some_and(|reported| !reported.is_empty()).then_some(value)
}

/// Builds a delta with the tool input that a start event contained.
pub(super) fn make_input_delta(index: usize, input: &[u8]) -> Vec<u8> {
    let mut data = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":""#
    )
    .into_bytes();
    write_escaped_json(input, &mut data);
    data.extend_from_slice(br#""}}"#);
    data
}

/// Builds a delta with the text that a start event contained.
pub(super) fn make_text_delta(index: usize, name: &str, words: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}_delta","{name}":""#
    );
    [head.as_bytes(), words, br#""}}"#].concat()
}

/// Builds a signature delta for a thinking block without a signature. The value proves nothing and is never verified.
pub(super) fn make_signature_delta(index: usize, id: &str) -> Vec<u8> {
    let seal = messages::signature_or_default(None, fnv1a_update(FNV_OFFSET_BASIS, id.as_bytes()));
    let delta = r#""delta":{"type":"signature_delta","signature":""#;
    let head = format!(r#"{{"type":"content_block_delta","index":{index},{delta}"#);
    [head.as_bytes(), seal.escaped(), br#""}}"#].concat()
}
