//! Writer of the messages dialect.
//!
//! Only one block is open at a time, and indices have no gaps, even if the provider interleaves blocks: text of a block
//! that cannot be opened yet is buffered. After a block with tool arguments, the next block is opened when the JSON is
//! complete, or at the end of the answer. No text for the client is lost: all of it is written in its block.

mod block;
mod buffered;
mod empty;
mod options;

#[cfg(test)]
mod tests;

pub(crate) use block::signature_or_default;
pub(crate) use buffered::translate_buffered;
pub use empty::write_empty_message;
pub use options::WriterOptions;
pub(crate) use options::{stop_reason, write_stop_members, write_usage};

use crate::event::{AnswerEvent, EscapedText};
use crate::write::EventBuffer;
use block::{BlockKind, BlockWriter};
use bytes::Bytes;
use penstock_core::{ApiError, Dialect, FinishReason, ReportedUsage, ThinkingDisplay, TokenUsage};
use std::collections::VecDeque;

/// Maximum bytes of memory of texts for blocks that are not open yet. An answer with more ends as invalid output.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// Writer of one streamed answer in the messages dialect.
pub struct MessagesStreamWriter {
    options: WriterOptions,
    started: bool,
    /// Usage that the provider has reported so far, for the opening event.
    reported_usage: Option<ReportedUsage>,
    /// Index of the next block.
    next_index: u32,
    current_block: Option<BlockWriter>,
    pending_blocks: VecDeque<BlockWriter>,
    /// Number of blocks that were removed from the buffer so far.
    popped_blocks: usize,
    /// Buffered calls, each with the number of blocks buffered before it.
    pending_calls: Vec<(u32, usize)>,
    pending_bytes: usize,
    finish_reason: Option<(FinishReason, Option<EscapedText>)>,
    has_tool_call: bool,
    /// True if text follows complete tool arguments, or if too much text is buffered. The answer then ends with an
    /// error.
    is_invalid: bool,
}

impl MessagesStreamWriter {
    /// Creates a writer at the start of an answer.
    #[must_use]
    pub fn new(options: WriterOptions) -> Self {
        Self {
            options,
            started: false,
            reported_usage: None,
            next_index: 0,
            current_block: None,
            pending_blocks: VecDeque::new(),
            popped_blocks: 0,
            pending_calls: Vec::new(),
            pending_bytes: 0,
            finish_reason: None,
            has_tool_call: false,
            is_invalid: false,
        }
    }

    fn write_message_start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.options.write_message_start(self.reported_usage.as_ref(), out);
        }
    }

    /// Returns the block to which text or reasoning is added (the open one, or the last buffered one), and true if it
    /// is buffered.
    fn block_for(&mut self, kind: BlockKind, out: &mut Vec<u8>) -> (&mut BlockWriter, bool) {
        let waits = !self.pending_blocks.is_empty()
            || self
                .current_block
                .as_ref()
                .is_some_and(|open| open.kind != kind && open.has_incomplete_arguments());
        if waits {
            if self.pending_blocks.back().is_none_or(|last| !last.accepts_kind(kind)) {
                self.pending_blocks.push_back(BlockWriter::new(kind));
            }
        } else if self.current_block.as_ref().is_none_or(|open| !open.accepts_kind(kind)) {
            self.close_block(out);
            self.open_block(BlockWriter::new(kind), out);
        }
        let block = if waits { self.pending_blocks.back_mut() } else { None };
        match block {
            Some(block) => (block, true),
            None => (self.current_block.get_or_insert_with(|| BlockWriter::new(kind)), false),
        }
    }

    fn write_text(&mut self, kind: BlockKind, text: &EscapedText, out: &mut Vec<u8>) {
        self.write_message_start(out);
        if text.is_empty() && kind == BlockKind::Text {
            // An empty text is dropped, because it would end the previous block.
            return;
        }
        let (block, waits) = self.block_for(kind, out);
        if waits {
            self.pending_bytes += block.buffer_text(text);
            self.is_invalid |= self.pending_bytes > MAX_PENDING_BYTES;
        } else {
            block.push_text(text, out);
        }
    }

    fn write_reasoning(&mut self, text: &EscapedText, signature: Option<&EscapedText>, out: &mut Vec<u8>) {
        if self.options.thinking == ThinkingDisplay::Off {
            return self.write_message_start(out);
        }
        let omitted = self.options.thinking == ThinkingDisplay::Omitted;
        let kind = BlockKind::Thinking { omitted };
        if !text.is_empty() || signature.is_some() {
            self.write_text(kind, text, out);
        }
        if let Some(signature) = signature {
            // A signature ends its thinking block; later thinking belongs to a new block.
            let (block, waits) = self.block_for(kind, out);
            block.signature = Some(signature.to_owned_copy());
            if waits {
                self.pending_bytes += signature.escaped().len();
            }
        }
    }

    fn start_tool_call(&mut self, tool: u32, id: &EscapedText, name: &EscapedText, out: &mut Vec<u8>) {
        self.write_message_start(out);
        self.has_tool_call = true;
        let block = BlockWriter::new_tool_block(tool, id, name);
        if self.pending_blocks.is_empty()
            && self.current_block.as_ref().is_none_or(|open| !open.has_incomplete_arguments())
        {
            self.close_block(out);
            self.open_block(block, out);
        } else {
            self.pending_calls.push((tool, self.popped_blocks + self.pending_blocks.len()));
            self.pending_bytes += block.head_bytes();
            self.pending_blocks.push_back(block);
        }
    }

    /// Returns the block of a buffered call; `None` if the call is not or no longer buffered. Only calls are searched,
    /// because there may be many buffered blocks of text.
    fn pending_call(&mut self, tool: u32) -> Option<&mut BlockWriter> {
        let (_, before) = self.pending_calls.iter().find(|(call, _)| *call == tool)?;
        self.pending_blocks.get_mut(before.checked_sub(self.popped_blocks)?)
    }

    fn pop_pending(&mut self) -> Option<BlockWriter> {
        let block = self.pending_blocks.pop_front()?;
        self.pending_bytes = self.pending_bytes.saturating_sub(block.head_bytes());
        self.popped_blocks += 1;
        Some(block)
    }

    fn write_arguments(&mut self, tool: u32, fragment: &EscapedText, out: &mut Vec<u8>) {
        let kind = BlockKind::Tool(tool);
        if let Some(open) = self.current_block.as_mut().filter(|open| open.kind == kind) {
            open.push_text(fragment, out);
            if !self.pending_blocks.is_empty() && !open.has_incomplete_arguments() {
                self.open_pending(out);
            }
        } else if let Some(block) = self.pending_call(tool) {
            self.pending_bytes += block.buffer_text(fragment);
            self.is_invalid |= self.pending_bytes > MAX_PENDING_BYTES;
        } else {
            // The block of the call was closed, because its JSON was complete. Only white space may follow.
            self.is_invalid |= !fragment.decoded().trim().is_empty();
        }
    }

    /// Opens buffered blocks as far as possible.
    fn open_pending(&mut self, out: &mut Vec<u8>) {
        while self.current_block.as_ref().is_none_or(|open| !open.has_incomplete_arguments()) {
            let Some(block) = self.pop_pending() else { return };
            self.close_block(out);
            self.open_block(block, out);
        }
    }

    fn open_block(&mut self, mut block: BlockWriter, out: &mut Vec<u8>) {
        block.write_start(self.next_index, out);
        self.next_index += 1;
        let texts = std::mem::take(&mut block.buffered_texts);
        for text in &texts {
            self.pending_bytes = self.pending_bytes.saturating_sub(block::text_memory_bytes(text));
            block.write_delta_event(text, out);
        }
        self.current_block = Some(block);
    }

    fn close_block(&mut self, out: &mut Vec<u8>) {
        if let Some(block) = self.current_block.take() {
            block.write_end(out);
        }
    }

    /// Closes all blocks, including the buffered ones.
    fn close_blocks(&mut self, out: &mut Vec<u8>) {
        self.write_message_start(out);
        loop {
            self.close_block(out);
            match self.pop_pending() {
                Some(block) => self.open_block(block, out),
                None => break,
            }
        }
        if self.next_index == 0 {
            write_empty_block(out);
        }
    }
}

/// Returns the last event of an answer with invalid tool arguments. `objects` has the cost, because the delivered
/// output is charged.
pub(crate) fn invalid_output_event(id: &str, objects: &[u8]) -> Bytes {
    let refusal = super::invalid_arguments_error();
    let envelope =
        penstock_http_wire::error::error_envelope(Dialect::Messages, &refusal, &format!("req_{id}"));
    penstock_http_wire::sse::encode_named_event("error", &super::append_members(envelope, objects))
}

/// Writes an empty text block, because some clients read the first block of a message without checking that it exists.
pub(crate) fn write_empty_block(out: &mut Vec<u8>) {
    let mut block = BlockWriter::new(BlockKind::Text);
    block.write_start(0, out);
    block.write_end(out);
}

impl super::DialectWriter for MessagesStreamWriter {
    fn write(&mut self, event: &AnswerEvent, out: &mut EventBuffer) {
        if event.choice().is_some_and(|choice| choice > 0) {
            return;
        }
        match event {
            AnswerEvent::Reasoning { text, signature, .. } => {
                self.write_reasoning(text, signature.as_ref(), out)
            }
            AnswerEvent::Text { text, .. } | AnswerEvent::Refusal { text, .. } => {
                self.write_text(BlockKind::Text, text, out)
            }
            AnswerEvent::ToolCallStart { tool, id, name, .. } => self.start_tool_call(*tool, id, name, out),
            AnswerEvent::ToolCallArguments { tool, fragment, .. } => {
                self.write_arguments(*tool, fragment, out)
            }
            // Content blocks stay open at the finish reason, because more content may follow.
            AnswerEvent::Finish { reason, stop_sequence, .. } => {
                self.finish_reason = Some((*reason, stop_sequence.clone()))
            }
            AnswerEvent::Usage(stated) | AnswerEvent::InterimUsage(stated) => {
                self.reported_usage = Some(*stated);
            }
            AnswerEvent::Ping if self.started => out.extend_from_slice(options::PING_EVENT),
            AnswerEvent::Start
            | AnswerEvent::MessageStart { .. }
            | AnswerEvent::Energy(_)
            | AnswerEvent::SealedReasoning { .. }
            | AnswerEvent::Ping
            | AnswerEvent::EmptyFinish
            | AnswerEvent::End => {}
        }
    }

    fn reasoning_display(&self) -> ThinkingDisplay {
        self.options.thinking
    }

    fn started_blocks(&self) -> usize {
        self.next_index as usize
    }

    fn has_invalid_output(&self) -> bool {
        let reason = self.finish_reason.as_ref().map(|(reason, _)| *reason);
        let cut = matches!(
            reason,
            Some(FinishReason::Length | FinishReason::ContextWindow | FinishReason::ContentFilter)
        );
        self.is_invalid
            || self
                .current_block
                .iter()
                .chain(&self.pending_blocks)
                .any(|block| block.has_invalid_arguments(cut))
    }

    fn undelivered_bytes(&self) -> usize {
        // `pending_bytes` counts escaped text, the output of the model is counted unescaped.
        self.pending_blocks.iter().flat_map(|block| &block.buffered_texts).map(EscapedText::decoded_len).sum()
    }

    fn buffered_bytes(&self) -> usize {
        self.pending_bytes + self.pending_blocks.len() * size_of::<BlockWriter>()
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut EventBuffer) {
        let spoilt = super::DialectWriter::has_invalid_output(self);
        self.close_blocks(out);
        if spoilt {
            out.extend_from_slice(&invalid_output_event(&self.options.identity.id, objects));
            return;
        }
        let (reason, stop) = self.finish_reason.take().unwrap_or((FinishReason::Stop, None));
        out.extend_from_slice(
            br#"event: message_delta
data: {"type":"message_delta","delta":{"#,
        );
        options::write_stop_members(reason, stop.as_ref(), self.has_tool_call, out);
        out.extend_from_slice(br#"},"usage":"#);
        options::write_usage(usage, out);
        if !objects.is_empty() {
            out.push(b',');
            out.extend_from_slice(objects);
        }
        out.extend_from_slice(b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut EventBuffer) {
        let envelope = penstock_http_wire::error::error_envelope(Dialect::Messages, refusal, request_id);
        let envelope = super::append_members(envelope, objects);
        out.extend_from_slice(&penstock_http_wire::sse::encode_named_event("error", &envelope));
    }
}
