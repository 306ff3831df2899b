//! Writer of the messages dialect.
//!
//! Only one block is open at a time and indices have no gaps, even if the provider interleaves blocks: the text of a
//! block that cannot open yet is buffered. After a block of tool arguments the next block opens once the JSON is
//! complete, or at the end. No text is dropped; all of it is written in its block.

mod block;
mod manner;
mod nothing;
mod whole;

#[cfg(test)]
mod tests;

pub(crate) use block::signature;
pub use manner::Manner;
pub(crate) use manner::{stop_members, stop_reason, usage};
pub use nothing::nothing;
pub(crate) use whole::whole;

use crate::event::{Event, Text};
use block::{Block, Kind};
use bytes::Bytes;
use penstock_contract::{Code, Dialect, Finish, Refusal, Stated, Thinking, Usage};
use std::collections::VecDeque;

/// Maximum buffered bytes of blocks that are not open yet.
const MAX_WAITING: usize = 16 << 20;

/// Writer of one streamed answer.
pub struct Writer {
    manner: Manner,
    started: bool,
    /// Usage for the opening event.
    stated: Option<Stated>,
    /// Index of the next block.
    next: u32,
    open: Option<Block>,
    waiting: VecDeque<Block>,
    /// Number of blocks removed from the buffer.
    waited: usize,
    /// Buffered calls, each with the number of blocks buffered before it.
    calls: Vec<(u32, usize)>,
    waiting_bytes: usize,
    finish: Option<(Finish, Option<Text>)>,
    called: bool,
    /// True if the arguments of a tool call are no JSON, so that the answer ends with an error.
    broken: bool,
}

impl Writer {
    /// Creates a writer at the start of an answer.
    #[must_use]
    pub fn new(manner: Manner) -> Self {
        Self {
            manner,
            started: false,
            stated: None,
            next: 0,
            open: None,
            waiting: VecDeque::new(),
            waited: 0,
            calls: Vec::new(),
            waiting_bytes: 0,
            finish: None,
            called: false,
            broken: false,
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.manner.message_start(self.stated.as_ref(), out);
        }
    }

    /// Returns the current block for text or reasoning, the open one or the last buffered one, and true if it is
    /// buffered.
    fn running(&mut self, kind: Kind, out: &mut Vec<u8>) -> (&mut Block, bool) {
        let waits = !self.waiting.is_empty()
            || self.open.as_ref().is_some_and(|open| open.kind != kind && open.is_unfinished());
        if waits {
            if self.waiting.back().is_none_or(|last| !last.takes(kind)) {
                self.waiting.push_back(Block::new(kind));
            }
        } else if self.open.as_ref().is_none_or(|open| !open.takes(kind)) {
            self.close_block(out);
            self.open_block(Block::new(kind), out);
        }
        let block = if waits { self.waiting.back_mut() } else { None };
        match block {
            Some(block) => (block, true),
            None => (self.open.get_or_insert_with(|| Block::new(kind)), false),
        }
    }

    fn add(&mut self, kind: Kind, text: &Text, out: &mut Vec<u8>) {
        self.start(out);
        if text.is_empty() && kind == Kind::Text {
            // Empty text would end the previous block.
            return;
        }
        let (block, waits) = self.running(kind, out);
        if waits {
            self.waiting_bytes += block.keep(text);
            self.broken |= self.waiting_bytes > MAX_WAITING;
        } else {
            block.delta(text, out);
        }
    }

    fn reasoning(&mut self, text: &Text, signature: Option<&Text>, out: &mut Vec<u8>) {
        if self.manner.thinking == Thinking::Off {
            return self.start(out);
        }
        let omitted = self.manner.thinking == Thinking::Omitted;
        let kind = Kind::Thinking { omitted };
        if !text.is_empty() || signature.is_some() {
            self.add(kind, text, out);
        }
        if let Some(signature) = signature {
            // A signature ends its thinking block; later thinking belongs to a new block.
            self.running(kind, out).0.signature = Some(signature.clone());
        }
    }

    fn tool(&mut self, tool: u32, id: &Text, name: &Text, out: &mut Vec<u8>) {
        self.start(out);
        self.called = true;
        let name = match self.manner.names.restore(&name.decoded()) {
            restored if restored == name.decoded() => name.clone(),
            restored => Text::new(restored),
        };
        let block = Block::tool(tool, id.clone(), name);
        if self.waiting.is_empty() && self.open.as_ref().is_none_or(|open| !open.is_unfinished()) {
            self.close_block(out);
            self.open_block(block, out);
        } else {
            self.calls.push((tool, self.waited + self.waiting.len()));
            self.waiting.push_back(block);
        }
    }

    /// Returns the block of a buffered call. There may be few calls among many blocks of text.
    fn waiting_call(&mut self, tool: u32) -> Option<&mut Block> {
        let (_, before) = self.calls.iter().find(|(call, _)| *call == tool)?;
        self.waiting.get_mut(before.checked_sub(self.waited)?)
    }

    fn pop_waiting(&mut self) -> Option<Block> {
        let block = self.waiting.pop_front()?;
        self.waited += 1;
        Some(block)
    }

    fn arguments(&mut self, tool: u32, fragment: &Text, out: &mut Vec<u8>) {
        let kind = Kind::Tool(tool);
        if let Some(open) = self.open.as_mut().filter(|open| open.kind == kind) {
            open.delta(fragment, out);
            if !self.waiting.is_empty() && !open.is_unfinished() {
                self.advance(out);
            }
        } else if let Some(block) = self.waiting_call(tool) {
            self.waiting_bytes += block.keep(fragment);
            self.broken |= self.waiting_bytes > MAX_WAITING;
        } else {
            // The block of this call is closed, so its JSON was complete: only white space may follow.
            self.broken |= !fragment.decoded().trim().is_empty();
        }
    }

    /// Opens buffered blocks as far as possible.
    fn advance(&mut self, out: &mut Vec<u8>) {
        while self.open.as_ref().is_none_or(|open| !open.is_unfinished()) {
            let Some(block) = self.pop_waiting() else { return };
            self.close_block(out);
            self.open_block(block, out);
        }
    }

    fn open_block(&mut self, mut block: Block, out: &mut Vec<u8>) {
        block.open(self.next, out);
        self.next += 1;
        let kept = std::mem::take(&mut block.kept);
        for text in &kept {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(text.escaped().len());
            block.say(text, out);
        }
        self.open = Some(block);
    }

    fn close_block(&mut self, out: &mut Vec<u8>) {
        if let Some(block) = self.open.take() {
            block.close(out);
        }
    }

    /// Closes all blocks, including the buffered ones.
    fn close_blocks(&mut self, out: &mut Vec<u8>) {
        self.start(out);
        loop {
            self.close_block(out);
            match self.pop_waiting() {
                Some(block) => self.open_block(block, out),
                None => break,
            }
        }
        if self.next == 0 {
            empty_block(out);
        }
    }
}

/// Returns the last event of an answer with invalid tool calls: the model is at fault and not the provider. `objects`
/// contain the cost, since the delivered output is charged.
pub(crate) fn unusable(id: &str, objects: &[u8]) -> Bytes {
    let refusal = Refusal::because(
        Code::Unavailable,
        "The model called a tool with arguments that are no JSON object.",
    );
    let envelope = penstock_wire::error::envelope(Dialect::Messages, &refusal, &format!("req_{id}"));
    let mut event = penstock_wire::sse::named_event("error", &envelope).to_vec();
    // The envelope is an object, and an empty line follows it.
    if let Some(end) = memchr::memrchr(b'}', &event).filter(|_| !objects.is_empty()) {
        event.splice(end..end, std::iter::once(b',').chain(objects.iter().copied()));
    }
    Bytes::from(event)
}

/// Writes an empty text block: a message without blocks breaks clients that read the first one.
pub(crate) fn empty_block(out: &mut Vec<u8>) {
    let mut block = Block::new(Kind::Text);
    block.open(0, out);
    block.close(out);
}

impl super::Writer for Writer {
    fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        if event.choice().is_some_and(|choice| choice > 0) {
            return;
        }
        match event {
            Event::Reasoning { text, signature, .. } => self.reasoning(text, signature.as_ref(), out),
            Event::Text { text, .. } | Event::Refusal { text, .. } => self.add(Kind::Text, text, out),
            Event::ToolStart { tool, id, name, .. } => self.tool(*tool, id, name, out),
            Event::ToolArguments { tool, fragment, .. } => self.arguments(*tool, fragment, out),
            // Blocks remain open, since more content may follow.
            Event::Finish { reason, stop_sequence, .. } => {
                self.finish = Some((*reason, stop_sequence.clone()))
            }
            Event::Usage(stated) => self.stated = Some(*stated),
            Event::Ping if self.started => out.extend_from_slice(manner::PING),
            Event::Start | Event::Energy(_) | Event::Ping | Event::End => {}
        }
    }

    fn shows_reasoning(&self) -> bool {
        self.manner.thinking == Thinking::Shown
    }

    fn is_spoilt(&self) -> bool {
        let reason = self.finish.as_ref().map(|(reason, _)| *reason);
        let cut = matches!(reason, Some(Finish::Length | Finish::Window | Finish::ContentFilter));
        self.broken || self.open.iter().chain(&self.waiting).any(|block| block.is_spoilt(cut))
    }

    fn kept(&self) -> usize {
        self.waiting_bytes + self.waiting.len() * size_of::<Block>()
    }

    fn close(&mut self, usage: &Usage, objects: &[u8], out: &mut Vec<u8>) {
        let spoilt = super::Writer::is_spoilt(self);
        self.close_blocks(out);
        if spoilt {
            out.extend_from_slice(&unusable(&self.manner.face.id, objects));
            return;
        }
        let (reason, stop) = self.finish.take().unwrap_or((Finish::Stop, None));
        out.extend_from_slice(
            br#"event: message_delta
data: {"type":"message_delta","delta":{"#,
        );
        manner::stop_members(reason, stop.as_ref(), self.called, out);
        out.extend_from_slice(br#"},"usage":"#);
        manner::usage(usage, out);
        if !objects.is_empty() {
            out.push(b',');
            out.extend_from_slice(objects);
        }
        out.extend_from_slice(b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    fn fail(&mut self, refusal: &Refusal, request_id: &str, out: &mut Vec<u8>) {
        let envelope = penstock_wire::error::envelope(Dialect::Messages, refusal, request_id);
        out.extend_from_slice(&penstock_wire::sse::named_event("error", &envelope));
    }
}
