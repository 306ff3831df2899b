//! Writer of a buffered completion.

use super::common_members::{self, finish_reason_name, write_integer, write_usage};
use crate::answer::{AnswerChoice, DecodedAnswer};
use crate::event::EscapedText;
use crate::json_cursor;
use crate::write::ResponseIdentity;
use crate::write::logprobs::complete_chat_logprobs;
use bytes::Bytes;
use penstock_core::{BufferedResponse, ChoiceSelection, FinishReason, WorkDone};

/// Returns the body of a buffered completion, with usage if the answer has it. With [`ChoiceSelection::One`], the first
/// choice of the answer gets that index.
#[must_use]
pub fn write_completion(
    answer: &DecodedAnswer,
    identity: &ResponseIdentity,
    choices: ChoiceSelection,
) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(512 + answer.output_bytes() * 9 / 8);
    out.push(b'{');
    common_members::write_identity(&mut out, identity, "chat.completion");
    out.extend_from_slice(b",\"choices\":[");
    let first = match choices {
        ChoiceSelection::All => 0,
        ChoiceSelection::One(index) => index.into(),
    };
    for (index, candidate) in (first..).zip(&answer.choices) {
        if index > first {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"index\":");
        write_integer(index, &mut out);
        out.extend_from_slice(b",\"message\":");
        write_message(candidate, &mut out);
        out.extend_from_slice(b",\"logprobs\":");
        write_logprobs(&candidate.logprobs, &mut out);
        out.extend_from_slice(b",\"finish_reason\":\"");
        out.extend_from_slice(finish_reason_name(candidate.finish_reason.unwrap_or(FinishReason::Stop)));
        out.extend_from_slice(b"\"}");
    }
    out.push(b']');
    if let Some(usage) = &answer.usage {
        out.extend_from_slice(b",\"usage\":");
        write_usage(&mut out, usage);
    }
    out.push(b'}');
    vec![Bytes::from(out)]
}

/// Returns a buffered completion, together with its usage, measured energy, finish reason and output bytes.
#[must_use]
pub fn write_buffered(
    answer: &DecodedAnswer,
    identity: &ResponseIdentity,
    choices: ChoiceSelection,
) -> BufferedResponse {
    BufferedResponse {
        body: write_completion(answer, identity, choices),
        work: answer.usage.map(WorkDone::Tokens),
        provider_work: answer.provider_usage.map(WorkDone::Tokens),
        measured_energy: answer.measured_energy,
        finish_reason: answer
            .choices
            .first()
            .and_then(|first| first.finish_reason)
            .unwrap_or(FinishReason::Stop),
        output_bytes: answer.output_bytes(),
        images: Vec::new(),
        observation: answer.observation,
    }
}

/// Writes log probabilities as one object. Those from a stream arrive in one object for each chunk, and are joined.
fn write_logprobs(pieces: &[Bytes], out: &mut Vec<u8>) {
    let joined = match pieces {
        [] => return out.extend_from_slice(b"null"),
        [only] => only.clone(),
        _ => join_logprobs(pieces).into(),
    };
    out.extend_from_slice(&complete_chat_logprobs(&joined));
}

fn join_logprobs(pieces: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pieces.iter().map(Bytes::len).sum());
    let lists = |name: &'static str| {
        let lists = pieces.iter().filter_map(move |piece| json_cursor::member_value(piece, name));
        lists.filter(|list| json_cursor::is_array(list)).flat_map(json_cursor::elements)
    };
    for (name, before) in [("content", "{\"content\":"), ("refusal", ",\"refusal\":")] {
        out.extend_from_slice(before.as_bytes());
        let mut bracket = b'[';
        for token in lists(name) {
            out.push(bracket);
            out.extend_from_slice(token);
            bracket = b',';
        }
        out.extend_from_slice(if bracket == b'[' { b"null" } else { b"]" });
    }
    out.push(b'}');
    out
}

fn write_message(candidate: &AnswerChoice, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    // Clients use the content without checking for null, so it is null only if there are tool calls. If there are log
    // probabilities, the content may be an empty text.
    if candidate.text.iter().all(EscapedText::is_empty) && !candidate.tool_calls.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        write_string(&candidate.text, out);
    }
    out.extend_from_slice(b",\"refusal\":");
    if candidate.refusal.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        write_string(&candidate.refusal, out);
    }
    if !candidate.reasoning.is_empty() {
        out.extend_from_slice(b",\"reasoning_content\":");
        write_string(&candidate.reasoning, out);
    }
    if !candidate.tool_calls.is_empty() {
        out.extend_from_slice(b",\"tool_calls\":[");
        for (at, call) in candidate.tool_calls.iter().enumerate() {
            let comma: &[u8] = if at > 0 { b"," } else { b"" };
            out.extend_from_slice(comma);
            out.extend_from_slice(b"{\"id\":\"");
            out.extend_from_slice(call.id.escaped());
            out.extend_from_slice(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
            out.extend_from_slice(call.name.escaped());
            out.extend_from_slice(b"\",\"arguments\":");
            let has_none = call.arguments.iter().all(EscapedText::is_blank);
            if has_none && candidate.finish_reason == Some(FinishReason::ToolCalls) {
                out.extend_from_slice(b"\"{}\"");
            } else {
                write_string(&call.arguments, out);
            }
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}

fn write_string(pieces: &[EscapedText], out: &mut Vec<u8>) {
    out.push(b'"');
    pieces.iter().for_each(|piece| out.extend_from_slice(piece.escaped()));
    out.push(b'"');
}
