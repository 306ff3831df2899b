//! Writer of an output item of a response: writes its events, and the complete item.

use super::call::CallState;
use super::frame::{EVENT_END, EventSequence};
use super::item_text::ItemText;
use super::part::MessagePart;
use crate::event::{EscapedText, MessagePhase};
use crate::partial_json::JsonState;
use crate::write::EventBuffer;
use penstock_core::{ReasoningDisplay, ResponsesDetails};
use std::io::Write as _;

/// Content of an item.
#[derive(Debug)]
pub(super) enum ItemBody {
    /// Message with its parts. Only the last part may be open.
    Message(Vec<MessagePart>),
    /// Reasoning: its text as the body of a JSON string.
    Reasoning {
        /// Text of the reasoning.
        text: ItemText,
        /// Member in which the client reads the text.
        display: ReasoningDisplay,
        /// Text in `encrypted_content`, which is made when the item is closed; `None` if the request does not ask for
        /// it.
        sealed: Option<ItemText>,
    },
    /// Tool call.
    Call(CallState),
}

impl ItemBody {
    /// Returns reasoning without text.
    pub(super) fn new_reasoning(details: &ResponsesDetails) -> Self {
        let sealed = details.seals_reasoning.then(ItemText::default);
        Self::Reasoning { text: ItemText::default(), display: details.reasoning, sealed }
    }
}

/// Status of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemStatus {
    Open,
    Completed,
    Incomplete,
}

impl ItemStatus {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Open => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Output item of a response while its content arrives.
#[derive(Debug)]
pub(super) struct OutputItem {
    /// Id of the output item, with the prefix of its type.
    id: String,
    /// Index of the item in the output of the response.
    index: usize,
    pub(super) status: ItemStatus,
    pub(super) body: ItemBody,
    /// Phase of a message.
    phase: Option<MessagePhase>,
    /// Bytes of memory of the closed parts of a message.
    pub(super) closed_part_bytes: usize,
}

impl OutputItem {
    /// Creates an open item; `id` is the unique part of the response's id.
    pub(super) fn new(id: &str, index: usize, body: ItemBody) -> Self {
        let prefix = match &body {
            ItemBody::Message(_) => "msg",
            ItemBody::Reasoning { .. } => "rs",
            ItemBody::Call(CallState { custom_input_reader: Some(_), .. }) => "ctc",
            ItemBody::Call(_) => "fc",
        };
        let id = format!("{prefix}_{id}_{index}");
        Self { id, index, status: ItemStatus::Open, body, phase: None, closed_part_bytes: 0 }
    }

    /// Sets the phase of a message.
    pub(super) fn with_phase(self, phase: Option<MessagePhase>) -> Self {
        Self { phase, ..self }
    }

    /// Returns true if this item is closed when another item starts. A call whose arguments are incomplete remains
    /// open.
    pub(super) fn may_close(&self) -> bool {
        match &self.body {
            ItemBody::Message(_) | ItemBody::Reasoning { .. } => true,
            ItemBody::Call(call) => call.is_complete(),
        }
    }

    /// Writes the event `response.output_item.added`, and for reasoning also the event that opens its part.
    pub(super) fn write_added(&self, events: &mut EventSequence, out: &mut EventBuffer) {
        self.write_item_event("response.output_item.added", events, out);
        if let ItemBody::Reasoning { display, .. } = &self.body {
            match display {
                ReasoningDisplay::Content => self.start(events, "response.content_part.added", out),
                ReasoningDisplay::Summary => {
                    self.start(events, "response.reasoning_summary_part.added", out);
                }
            }
            self.write_reasoning_part(&ItemText::default(), out);
        }
    }

    fn write_item_event(&self, kind: &str, events: &mut EventSequence, out: &mut EventBuffer) {
        events.write_event_start(kind, out);
        let _ = write!(out, r#","output_index":{},"item":"#, self.index);
        self.write_item(out);
        out.extend_from_slice(EVENT_END);
    }

    /// Writes the start of an event about the output item.
    fn start(&self, events: &mut EventSequence, kind: &str, out: &mut EventBuffer) {
        events.write_event_start(kind, out);
        out.extend_from_slice(br#","item_id":""#);
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(br#"","output_index":"#);
        out.extend_from_slice(itoa::Buffer::new().format(self.index).as_bytes());
    }

    /// Appends text to a message, and writes the delta event. The text is added to the last part if that has the same
    /// kind (text or refusal); otherwise a new part is opened.
    pub(super) fn push_message_text(
        &mut self,
        text: &EscapedText,
        logprobs: Option<&[u8]>,
        is_refusal: bool,
        events: &mut EventSequence,
        out: &mut EventBuffer,
    ) {
        let other_kind = |part: &MessagePart| part.is_refusal != is_refusal;
        if let ItemBody::Message(parts) = &self.body
            && parts.last().is_none_or(other_kind)
        {
            self.close_part(events, out);
            self.open_part(is_refusal, events, out);
        }
        let kind = if is_refusal { "response.refusal.delta" } else { "response.output_text.delta" };
        self.start(events, kind, out);
        let ItemBody::Message(parts) = &mut self.body else { return };
        let at = parts.len().saturating_sub(1);
        let Some(part) = parts.last_mut() else { return };
        let _ = write!(out, r#","content_index":{at},"delta":""#);
        out.extend_from_slice(text.escaped());
        out.push(b'"');
        part.text.growing().extend_from_slice(text.escaped());
        if !is_refusal {
            out.extend_from_slice(br#","logprobs":["#);
            part.push_logprobs(logprobs, out);
            out.push(b']');
        }
        out.extend_from_slice(EVENT_END);
    }

    /// Opens a new part of a message, and writes its start event.
    pub(super) fn open_part(&mut self, is_refusal: bool, events: &mut EventSequence, out: &mut EventBuffer) {
        let ItemBody::Message(parts) = &mut self.body else { return };
        let at = parts.len();
        self.closed_part_bytes += parts.last().map_or(0, MessagePart::buffered_bytes);
        parts.push(MessagePart { is_refusal, ..MessagePart::default() });
        self.start(events, "response.content_part.added", out);
        let _ = write!(out, r#","content_index":{at},"part":"#);
        MessagePart { is_refusal, ..MessagePart::default() }.write(out);
        out.extend_from_slice(EVENT_END);
    }

    /// Writes the events that close the last part of a message.
    fn close_part(&mut self, events: &mut EventSequence, out: &mut EventBuffer) {
        self.share_text();
        let ItemBody::Message(parts) = &self.body else { return };
        let Some(part) = parts.last() else { return };
        let at = parts.len() - 1;
        let (kind, key) = if part.is_refusal {
            ("response.refusal.done", "refusal")
        } else {
            ("response.output_text.done", "text")
        };
        self.start(events, kind, out);
        let _ = write!(out, r#","content_index":{at},"{key}":""#);
        part.text.write(out);
        out.push(b'"');
        if !part.is_refusal {
            out.extend_from_slice(br#","logprobs":["#);
            part.logprobs.write(out);
            out.push(b']');
        }
        out.extend_from_slice(EVENT_END);
        self.start(events, "response.content_part.done", out);
        let _ = write!(out, r#","content_index":{at},"part":"#);
        part.write(out);
        out.extend_from_slice(EVENT_END);
    }

    /// Appends a fragment of reasoning to the item, and writes its delta event.
    pub(super) fn push_reasoning(
        &mut self,
        text: &EscapedText,
        events: &mut EventSequence,
        out: &mut EventBuffer,
    ) {
        let ItemBody::Reasoning { text: all, display, .. } = &mut self.body else { return };
        all.growing().extend_from_slice(text.escaped());
        let (kind, position) = match display {
            ReasoningDisplay::Content => ("response.reasoning_text.delta", "content_index"),
            ReasoningDisplay::Summary => ("response.reasoning_summary_text.delta", "summary_index"),
        };
        self.start(events, kind, out);
        let _ = write!(out, r#","{position}":0,"delta":""#);
        out.extend_from_slice(text.escaped());
        out.push(b'"');
        out.extend_from_slice(EVENT_END);
    }

    /// Appends a fragment of arguments to a tool call, and writes its delta event.
    pub(super) fn push_arguments(
        &mut self,
        fragment: &EscapedText,
        events: &mut EventSequence,
        out: &mut EventBuffer,
    ) {
        let ItemBody::Call(call) = &mut self.body else { return };
        let start = call.text.len();
        match &mut call.custom_input_reader {
            Some(input) => input.push(&fragment.decoded(), call.text.growing()),
            None => {
                call.arguments_parser.push(&fragment.decoded());
                call.text.growing().extend_from_slice(fragment.escaped());
            }
        }
        self.write_call_delta(start, events, out);
    }

    /// Writes a delta with the text of a call from the position `from` on.
    fn write_call_delta(&self, from: usize, events: &mut EventSequence, out: &mut EventBuffer) {
        let ItemBody::Call(call) = &self.body else { return };
        let text = call.text.get(from..).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let kind = match call.custom_input_reader {
            Some(_) => "response.custom_tool_call_input.delta",
            None => "response.function_call_arguments.delta",
        };
        self.start(events, kind, out);
        out.extend_from_slice(br#","delta":""#);
        out.extend_from_slice(text);
        out.push(b'"');
        out.extend_from_slice(EVENT_END);
    }

    /// Closes the item with a status, and writes its last events. If `fills_arguments` is true, a call without
    /// arguments gets an empty object, because clients parse the arguments.
    pub(super) fn close(
        &mut self,
        status: ItemStatus,
        fills_arguments: bool,
        events: &mut EventSequence,
        out: &mut EventBuffer,
    ) {
        let call_start = self.finish_call(fills_arguments);
        self.write_call_delta(call_start, events, out);
        if matches!(self.body, ItemBody::Message(_)) {
            self.close_part(events, out);
        }
        self.share_text();
        match &self.body {
            ItemBody::Message(_) => {}
            ItemBody::Reasoning { text, display, .. } => {
                let (done, position, part_done) = match display {
                    ReasoningDisplay::Content => {
                        ("response.reasoning_text.done", "content_index", "response.content_part.done")
                    }
                    ReasoningDisplay::Summary => (
                        "response.reasoning_summary_text.done",
                        "summary_index",
                        "response.reasoning_summary_part.done",
                    ),
                };
                self.start(events, done, out);
                let _ = write!(out, r#","{position}":0,"text":""#);
                text.write(out);
                out.push(b'"');
                out.extend_from_slice(EVENT_END);
                self.start(events, part_done, out);
                self.write_reasoning_part(text, out);
            }
            ItemBody::Call(call) => self.write_call_done(call, events, out),
        }
        self.status = status;
        self.write_item_event("response.output_item.done", events, out);
    }

    /// Writes the event with the complete arguments of a call.
    fn write_call_done(&self, call: &CallState, events: &mut EventSequence, out: &mut EventBuffer) {
        match call.custom_input_reader {
            Some(_) => {
                self.start(events, "response.custom_tool_call_input.done", out);
                out.extend_from_slice(br#","input":""#);
            }
            None => {
                self.start(events, "response.function_call_arguments.done", out);
                out.extend_from_slice(br#","name":""#);
                out.extend_from_slice(&call.name);
                out.extend_from_slice(br#"","arguments":""#);
            }
        }
        call.text.write(out);
        out.push(b'"');
        out.extend_from_slice(EVENT_END);
    }

    /// Ends the arguments of a call; returns the position of the first byte that no event contains yet.
    fn finish_call(&mut self, fills_arguments: bool) -> usize {
        let ItemBody::Call(call) = &mut self.body else { return 0 };
        let start = call.text.len();
        match &mut call.custom_input_reader {
            Some(input) => input.finish(call.text.growing()),
            None if call.arguments_parser.state() == JsonState::Empty && fills_arguments => {
                call.text.growing().extend_from_slice(b"{}")
            }
            None => {}
        }
        start
    }

    fn write_reasoning_part(&self, text: &ItemText, out: &mut EventBuffer) {
        let ItemBody::Reasoning { display, .. } = &self.body else { return };
        let (position, kind) = match display {
            ReasoningDisplay::Content => ("content_index", "reasoning_text"),
            ReasoningDisplay::Summary => ("summary_index", "summary_text"),
        };
        let _ = write!(out, r#","{position}":0,"part":{{"type":"{kind}","text":""#);
        text.write(out);
        out.extend_from_slice(b"\"}");
        out.extend_from_slice(EVENT_END);
    }

    /// Writes the item with its current content. An open item is written without content.
    pub(super) fn write_item(&self, out: &mut EventBuffer) {
        let is_open = self.status == ItemStatus::Open;
        out.extend_from_slice(br#"{"id":""#);
        out.extend_from_slice(self.id.as_bytes());
        match &self.body {
            ItemBody::Message(parts) => {
                let _ = write!(out, r#"","type":"message","status":"{}","#, self.status.name());
                if let Some(phase) = self.phase {
                    let _ = write!(out, r#""phase":"{}","#, phase.name());
                }
                out.extend_from_slice(br#""role":"assistant","content":["#);
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    part.write(out);
                }
                out.extend_from_slice(b"]}");
            }
            ItemBody::Reasoning { text, display, sealed } => {
                out.extend_from_slice(br#"","type":"reasoning","summary":["#);
                if !is_open && *display == ReasoningDisplay::Summary {
                    write_text_part("summary_text", text, out);
                }
                out.push(b']');
                if *display == ReasoningDisplay::Content {
                    out.extend_from_slice(br#","content":["#);
                    if !is_open {
                        write_text_part("reasoning_text", text, out);
                    }
                    out.push(b']');
                }
                if let Some(sealed) = sealed.as_ref().filter(|_| !is_open) {
                    out.extend_from_slice(br#","encrypted_content":""#);
                    sealed.write(out);
                    out.push(b'"');
                }
                let _ = write!(out, r#","status":"{}"}}"#, self.status.name());
            }
            ItemBody::Call(call) => call.write_members(self.status, out),
        }
    }
}

fn write_text_part(kind: &str, text: &ItemText, out: &mut EventBuffer) {
    let _ = write!(out, r#"{{"type":"{kind}","text":""#);
    text.write(out);
    out.extend_from_slice(b"\"}");
}
