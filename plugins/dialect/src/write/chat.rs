//! Writer of the chat-completions dialect, for its strictest clients.
//!
//! Every chunk has id, object, created, model and choices. The role comes first and once, for all choices in order. Id,
//! type and name of a tool call come once. The chunk with the finish reason is written at the end, because it contains
//! usage and the Penstock objects if there is no usage chunk. No chunk of an answer has a member `error`, and the only
//! member of a delta that the dialect does not define is `reasoning_content`.

mod buffered;
mod common_members;

pub use buffered::{write_buffered, write_completion};

use super::ResponseIdentity;
use super::logprobs::complete_chat_logprobs;
use crate::event::{AnswerEvent, EscapedText};
use crate::write::EventBuffer;
pub(crate) use common_members::{finish_reason_name, write_integer, write_penstock_objects, write_usage};
use penstock_core::{ApiError, ChoiceSelection, FinishReason, ThinkingDisplay, TokenUsage};
use penstock_http_wire::error;

/// Writer of one streamed answer in the chat dialect.
#[derive(Debug)]
pub struct ChatStreamWriter {
    /// Start of each chunk: `data: {"id":…,"choices":[`.
    chunk_head: Vec<u8>,
    /// Bytes of a chunk before the text of the first choice: nearly every event begins with them.
    text_prefix: Vec<u8>,
    include_usage: bool,
    /// Index of the choice that the writer writes, if the other choices come from separate requests.
    only_choice: Option<u32>,
    /// Finish reason of each choice, which is written at the end.
    finish_reasons: Vec<Option<FinishReason>>,
    /// Tool calls that have no arguments so far, as (choice, call).
    calls_without_arguments: Vec<(u32, u32)>,
    has_started: bool,
    /// True if the client asks to leave out the reasoning.
    hides_reasoning: bool,
}

impl ChatStreamWriter {
    /// Creates a writer for all `n` choices, or for one of several choices that are requested separately. The writer
    /// of one choice writes neither roles nor an end, because the writer of all choices writes them.
    #[must_use]
    pub fn new(identity: &ResponseIdentity, n: u32, include_usage: bool, choices: ChoiceSelection) -> Self {
        let (only_choice, has_started) = match choices {
            ChoiceSelection::All => (None, false),
            ChoiceSelection::One(index) => (Some(index), true),
        };
        let mut chunk_head = b"data: {".to_vec();
        common_members::write_identity(&mut chunk_head, identity, "chat.completion.chunk");
        chunk_head.extend_from_slice(b",\"choices\":[");
        let index = only_choice.unwrap_or_default().to_string();
        let text_prefix =
            [&chunk_head, &b"{\"index\":"[..], index.as_bytes(), b",\"delta\":{\"content\":\""].concat();
        Self {
            chunk_head,
            text_prefix,
            include_usage,
            only_choice,
            finish_reasons: vec![None; n.max(1) as usize],
            calls_without_arguments: Vec::new(),
            has_started,
            hides_reasoning: false,
        }
    }

    /// Leaves out the reasoning if `is_hidden` is true.
    #[must_use]
    pub(crate) fn with_hidden_reasoning(mut self, is_hidden: bool) -> Self {
        self.hides_reasoning = is_hidden;
        self
    }

    fn write_choice_start(&self, choice: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunk_head);
        out.extend_from_slice(b"{\"index\":");
        write_integer((choice + self.only_choice.unwrap_or_default()).into(), out);
        out.extend_from_slice(b",\"delta\":{");
    }

    /// Writes the roles of all choices, before any other content.
    fn write_roles(&mut self, out: &mut Vec<u8>) {
        if self.has_started {
            return;
        }
        self.has_started = true;
        for choice in (0_u32..).take(self.finish_reasons.len()) {
            self.write_choice_start(choice, out);
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
            out.extend_from_slice(CHUNK_END);
        }
    }

    fn write_text(
        &self,
        choice: u32,
        key: &[u8],
        text: &EscapedText,
        logprobs: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        self.write_choice_start(choice, out);
        out.extend_from_slice(key);
        out.extend_from_slice(text.escaped());
        out.extend_from_slice(b"\"}");
        if let Some(logprobs) = logprobs {
            out.extend_from_slice(b",\"logprobs\":");
            out.extend_from_slice(&complete_chat_logprobs(logprobs));
        }
        out.extend_from_slice(CHUNK_END);
    }

    fn write_tool_call(&self, choice: u32, tool: u32, call: &[&[u8]], out: &mut Vec<u8>) {
        self.write_choice_start(choice, out);
        out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
        write_integer(tool.into(), out);
        call.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(b"\"}}]}");
        out.extend_from_slice(CHUNK_END);
    }
}

/// End of a chunk whose choice continues.
const CHUNK_END: &[u8] = b",\"finish_reason\":null}]}\n\n";

impl super::DialectWriter for ChatStreamWriter {
    fn write(&mut self, event: &AnswerEvent, out: &mut EventBuffer) {
        let is_hidden = self.hides_reasoning && matches!(event, AnswerEvent::Reasoning { .. });
        if event.is_content() && !is_hidden {
            self.write_roles(out);
        }
        match event {
            AnswerEvent::Text { choice: 0, text, logprobs: None } => {
                out.reserve(self.text_prefix.len() + text.escaped().len() + 32);
                out.extend_from_slice(&self.text_prefix);
                out.extend_from_slice(text.escaped());
                out.extend_from_slice(b"\"},\"finish_reason\":null}]}\n\n");
            }
            AnswerEvent::Text { choice, text, logprobs } => {
                self.write_text(*choice, b"\"content\":\"", text, logprobs.as_deref(), out);
            }
            AnswerEvent::Reasoning { choice, text, .. } if !is_hidden && !text.is_empty() => {
                self.write_text(*choice, b"\"reasoning_content\":\"", text, None, out);
            }
            AnswerEvent::Refusal { choice, text } => {
                self.write_text(*choice, b"\"refusal\":\"", text, None, out)
            }
            AnswerEvent::ToolCallStart { choice, tool, id, name } => {
                self.calls_without_arguments.push((*choice, *tool));
                self.write_tool_call(
                    *choice,
                    *tool,
                    &[
                        b",\"id\":\"",
                        id.escaped(),
                        b"\",\"type\":\"function\",\"function\":{\"name\":\"",
                        name.escaped(),
                        b"\",\"arguments\":\"",
                    ],
                    out,
                );
            }
            AnswerEvent::ToolCallArguments { choice, tool, fragment } => {
                if !self.calls_without_arguments.is_empty() && !fragment.is_blank() {
                    self.calls_without_arguments.retain(|call| *call != (*choice, *tool));
                }
                let call = [&b",\"function\":{\"arguments\":\""[..], fragment.escaped()];
                self.write_tool_call(*choice, *tool, &call, out);
            }
            AnswerEvent::Finish { choice, reason, .. } => {
                super::DialectWriter::record_separate_choice_finish(self, *choice, *reason);
            }
            AnswerEvent::Reasoning { .. }
            | AnswerEvent::Start
            | AnswerEvent::MessageStart { .. }
            | AnswerEvent::Usage(_)
            | AnswerEvent::InterimUsage(_)
            | AnswerEvent::Energy(_)
            | AnswerEvent::SealedReasoning { .. }
            | AnswerEvent::Ping
            | AnswerEvent::EmptyFinish
            | AnswerEvent::End => {}
        }
    }

    fn write_start(&mut self, out: &mut EventBuffer) {
        self.write_roles(out);
    }

    fn record_separate_choice_finish(&mut self, choice: u32, finish: FinishReason) {
        if let Some(known) = self.finish_reasons.get_mut(choice as usize) {
            *known = Some(finish);
        }
    }

    fn reasoning_display(&self) -> ThinkingDisplay {
        if self.hides_reasoning { ThinkingDisplay::Off } else { ThinkingDisplay::Shown }
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut EventBuffer) {
        self.write_roles(out);
        for (choice, tool) in std::mem::take(&mut self.calls_without_arguments) {
            // Clients parse the arguments of a finished call, and an empty text is not JSON.
            if self.finish_reasons.get(choice as usize) == Some(&Some(FinishReason::ToolCalls)) {
                self.write_tool_call(choice, tool, &[b",\"function\":{\"arguments\":\"", b"{}"], out);
            }
        }
        if self.only_choice.is_some() {
            return;
        }
        let last = self.finish_reasons.len().saturating_sub(1);
        for (at, (choice, finish)) in (0_u32..).zip(&self.finish_reasons).enumerate() {
            self.write_choice_start(choice, out);
            out.extend_from_slice(b"},\"logprobs\":null,\"finish_reason\":\"");
            out.extend_from_slice(finish_reason_name(finish.unwrap_or(FinishReason::Stop)));
            out.extend_from_slice(b"\"}]");
            if at == last && !self.include_usage {
                // Clients without `include_usage` may read usage here; other clients ignore it.
                out.extend_from_slice(b",\"usage\":");
                write_usage(out, usage);
                common_members::write_penstock_objects(out, objects);
            }
            out.extend_from_slice(b"}\n\n");
        }
        if self.include_usage {
            out.extend_from_slice(&self.chunk_head);
            out.extend_from_slice(b"],\"usage\":");
            write_usage(out, usage);
            common_members::write_penstock_objects(out, objects);
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

const DONE_EVENT: &[u8] = b"data: [DONE]\n\n";
