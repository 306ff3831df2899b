//! Writer of text completions.

use super::ResponseIdentity;
use super::chat::{finish_reason_name, write_integer, write_penstock_objects, write_usage};
use crate::answer::{AnswerChoice, DecodedAnswer};
use crate::event::AnswerEvent;
use crate::json_cursor;
use crate::write::EventBuffer;
use bytes::Bytes;
use penstock_core::{ApiError, BufferedResponse, FinishReason, ThinkingDisplay, TokenUsage, WorkDone};
use penstock_http_wire::error;
use penstock_json_scan::json;

const DONE_EVENT: &[u8] = b"data: [DONE]\n\n";

/// Members of a log probability object that are lists with one element per token.
const LOGPROB_LISTS: [&str; 4] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];

/// Writes the start of a text completion: `"id":…,"object":…,"created":…,"model":…,"choices":[`.
fn write_head(out: &mut Vec<u8>, identity: &ResponseIdentity) {
    out.extend_from_slice(b"\"id\":\"cmpl-");
    json::write_escaped(out, &identity.id);
    out.extend_from_slice(b"\",\"object\":\"text_completion\",\"created\":");
    write_integer(identity.created, out);
    out.extend_from_slice(b",\"model\":");
    json::write_str(out, &identity.model);
    out.extend_from_slice(b",\"choices\":[");
}

fn write_finish(out: &mut Vec<u8>, finish: Option<FinishReason>) {
    out.extend_from_slice(b",\"finish_reason\":\"");
    out.extend_from_slice(match finish {
        // The completions endpoint has no tool calls.
        None | Some(FinishReason::ToolCalls) => b"stop",
        Some(finish) => finish_reason_name(finish),
    });
    out.push(b'"');
}

/// Returns a buffered completion, together with its usage, measured energy, finish reason and output bytes.
#[must_use]
pub fn write_buffered(answer: &DecodedAnswer, identity: &ResponseIdentity) -> BufferedResponse {
    let mut out = Vec::with_capacity(512 + answer.output_bytes() * 9 / 8);
    out.push(b'{');
    write_head(&mut out, identity);
    for (index, choice) in (0_u64..).zip(&answer.choices) {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"index\":");
        write_integer(index, &mut out);
        out.extend_from_slice(b",\"text\":\"");
        choice.text.iter().for_each(|piece| out.extend_from_slice(piece.escaped()));
        out.extend_from_slice(b"\",\"logprobs\":");
        write_logprobs(choice, &mut out);
        write_finish(&mut out, choice.finish_reason);
        out.push(b'}');
    }
    out.push(b']');
    if let Some(usage) = &answer.usage {
        out.extend_from_slice(b",\"usage\":");
        write_usage(&mut out, usage);
    }
    out.push(b'}');
    BufferedResponse {
        body: vec![Bytes::from(out)],
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

/// Writes log probabilities as the provider wrote them. Those from a stream, one object for each chunk, are joined.
fn write_logprobs(choice: &AnswerChoice, out: &mut Vec<u8>) {
    match choice.logprobs.as_slice() {
        [] => return out.extend_from_slice(b"null"),
        [only] => return out.extend_from_slice(only),
        _ => {}
    }
    let mut before = b'{';
    for name in LOGPROB_LISTS {
        let lists = || choice.logprobs.iter().filter_map(|piece| json_cursor::member_value(piece, name));
        if lists().next().is_none() {
            continue;
        }
        out.push(before);
        before = b',';
        json::write_str(out, name);
        out.extend_from_slice(b":[");
        let arrays = lists().filter(|list| json_cursor::is_array(list));
        for (at, element) in arrays.flat_map(json_cursor::elements).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(element);
        }
        out.push(b']');
    }
    out.extend_from_slice(if before == b'{' { b"null" } else { b"}" });
}

/// Writer of a streamed completion.
#[derive(Debug)]
pub struct CompletionStreamWriter {
    /// Start of each chunk: `data: {"id":…,"choices":[`.
    chunk_head: Vec<u8>,
    include_usage: bool,
    /// Finish reason of each choice, which is written at the end.
    finish_reasons: Vec<Option<FinishReason>>,
}

impl CompletionStreamWriter {
    /// Creates a writer for `n` choices.
    #[must_use]
    pub fn new(identity: &ResponseIdentity, n: u32, include_usage: bool) -> Self {
        let mut chunk_head = b"data: {".to_vec();
        write_head(&mut chunk_head, identity);
        Self { chunk_head, include_usage, finish_reasons: vec![None; n.max(1) as usize] }
    }

    fn write_choice(&self, choice: u32, text: &[u8], logprobs: Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk_head);
        out.extend_from_slice(b"{\"index\":");
        write_integer(choice.into(), out);
        out.extend_from_slice(b",\"text\":\"");
        out.extend_from_slice(text);
        out.extend_from_slice(b"\",\"logprobs\":");
        out.extend_from_slice(logprobs.unwrap_or(b"null"));
    }

    /// Writes a comma, the usage and the Penstock objects.
    fn write_usage(usage: &TokenUsage, objects: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"usage\":");
        write_usage(out, usage);
        write_penstock_objects(out, objects);
    }
}

impl super::DialectWriter for CompletionStreamWriter {
    fn write(&mut self, event: &AnswerEvent, out: &mut EventBuffer) {
        match event {
            AnswerEvent::Text { choice, text, logprobs } => {
                self.write_choice(*choice, text.escaped(), logprobs.as_deref(), out);
                out.extend_from_slice(b",\"finish_reason\":null}]}\n\n");
            }
            AnswerEvent::Finish { choice, reason, .. } => {
                self.record_separate_choice_finish(*choice, *reason)
            }
            _ => {}
        }
    }

    fn record_separate_choice_finish(&mut self, choice: u32, finish: FinishReason) {
        if let Some(known) = self.finish_reasons.get_mut(choice as usize) {
            *known = Some(finish);
        }
    }

    fn reasoning_display(&self) -> ThinkingDisplay {
        ThinkingDisplay::Off
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut EventBuffer) {
        let last = self.finish_reasons.len().saturating_sub(1);
        for (at, (choice, finish)) in (0_u32..).zip(&self.finish_reasons).enumerate() {
            self.write_choice(choice, b"", None, out);
            write_finish(out, *finish);
            out.extend_from_slice(b"}]");
            if at == last && !self.include_usage {
                Self::write_usage(usage, objects, out);
            }
            out.extend_from_slice(b"}\n\n");
        }
        if self.include_usage {
            out.extend_from_slice(&self.chunk_head);
            out.push(b']');
            Self::write_usage(usage, objects, out);
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(DONE_EVENT);
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut EventBuffer) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&super::append_members(error::chat_envelope(refusal, request_id), objects));
        out.extend_from_slice(b"\n\n");
        out.extend_from_slice(DONE_EVENT);
    }
}
