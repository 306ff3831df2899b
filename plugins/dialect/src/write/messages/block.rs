//! Writer of one content block.

use crate::event::EscapedText;
use crate::messages_to_chat::ids::{FNV_OFFSET_BASIS, fnv1a_update};
use crate::partial_json::{JsonState, PartialJson};
use std::io::Write as _;

/// Kind of a content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Reasoning, whose text is hidden if `omitted`.
    Thinking {
        /// True if only the signature is shown.
        omitted: bool,
    },
    /// Text of the answer.
    Text,
    /// Call of a tool, with its number in the answer.
    Tool(u32),
}

/// Writer of one content block, which is open, or buffered until it can be opened.
pub(super) struct BlockWriter {
    pub kind: BlockKind,
    /// Texts that arrived before the block was opened.
    pub buffered_texts: Vec<EscapedText>,
    pub arguments: PartialJson,
    pub signature: Option<EscapedText>,
    tool: Option<(EscapedText, EscapedText)>,
    /// Hash of the reasoning, for the signature that is generated if the provider sends none.
    reasoning_hash: u64,
    index: u32,
    /// Bytes of a delta event that precede the text of the delta.
    delta_prefix: Vec<u8>,
}

impl BlockWriter {
    /// Creates an empty block of this kind.
    pub(super) fn new(kind: BlockKind) -> Self {
        Self {
            kind,
            buffered_texts: Vec::new(),
            arguments: PartialJson::new(),
            signature: None,
            tool: None,
            reasoning_hash: FNV_OFFSET_BASIS,
            index: 0,
            delta_prefix: Vec::new(),
        }
    }

    /// Creates a `tool_use` block; `number` is the number of the call in the answer.
    pub(super) fn new_tool_block(number: u32, id: &EscapedText, name: &EscapedText) -> Self {
        // Copies, because the block may be buffered, and the texts share the memory of whole events.
        let tool = Some((id.to_owned_copy(), name.to_owned_copy()));
        Self { tool, ..Self::new(BlockKind::Tool(number)) }
    }

    /// Returns the number of bytes of the call's id and name, and of the signature.
    pub(super) fn head_bytes(&self) -> usize {
        let length = |text: &EscapedText| text.escaped().len();
        self.tool.as_ref().map_or(0, |(id, name)| length(id) + length(name))
            + self.signature.as_ref().map_or(0, length)
    }

    /// Returns true if the arguments of this tool call are incomplete, so that the next block must not be opened yet.
    pub(super) fn has_incomplete_arguments(&self) -> bool {
        matches!(self.kind, BlockKind::Tool(_)) && self.arguments.state() != JsonState::Complete
    }

    /// Returns true if text of this kind belongs to this block.
    pub(super) fn accepts_kind(&self, kind: BlockKind) -> bool {
        self.kind == kind && self.signature.is_none()
    }

    /// Buffers a text, unless the client must not see it; returns the number of bytes of memory that it occupies.
    pub(super) fn buffer_text(&mut self, text: &EscapedText) -> usize {
        if !self.record_text(text) {
            return 0;
        }
        self.buffered_texts.push(text.to_owned_copy());
        text_memory_bytes(text)
    }

    /// Records a text of the block. Returns true if the client gets the text, and false for omitted reasoning and for
    /// tool arguments that are neither a JSON object nor the start of one.
    fn record_text(&mut self, text: &EscapedText) -> bool {
        match self.kind {
            BlockKind::Text => true,
            BlockKind::Thinking { omitted } => {
                self.reasoning_hash = fnv1a_update(self.reasoning_hash, text.escaped());
                !omitted
            }
            BlockKind::Tool(_) => {
                matches!(self.arguments.push(&text.decoded()), JsonState::Incomplete | JsonState::Complete)
            }
        }
    }

    /// Opens the block: writes its `content_block_start` event.
    pub(super) fn write_start(&mut self, index: u32, out: &mut Vec<u8>) {
        self.index = index;
        write_event_head("content_block_start", index, out);
        let delta = match (self.kind, &self.tool) {
            (BlockKind::Thinking { .. }, _) => {
                out.extend_from_slice(
                    br#""content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                );
                r#""delta":{"type":"thinking_delta","thinking":""#
            }
            (BlockKind::Tool(_), Some((id, name))) => {
                out.extend_from_slice(br#""content_block":{"type":"tool_use","id":""#);
                out.extend_from_slice(id.escaped());
                out.extend_from_slice(br#"","name":""#);
                out.extend_from_slice(name.escaped());
                out.extend_from_slice(br#"","input":{}}}"#);
                r#""delta":{"type":"input_json_delta","partial_json":""#
            }
            _ => {
                out.extend_from_slice(br#""content_block":{"type":"text","text":""}}"#);
                r#""delta":{"type":"text_delta","text":""#
            }
        };
        out.extend_from_slice(b"\n\n");
        write_event_head("content_block_delta", index, &mut self.delta_prefix);
        self.delta_prefix.extend_from_slice(delta.as_bytes());
    }

    /// Records a text, and writes it if the client may see it.
    pub(super) fn push_text(&mut self, text: &EscapedText, out: &mut Vec<u8>) {
        if self.record_text(text) {
            self.write_delta_event(text, out);
        }
    }

    /// Writes a delta event with this text, without recording the text.
    pub(super) fn write_delta_event(&self, text: &EscapedText, out: &mut Vec<u8>) {
        if !text.is_empty() {
            out.extend_from_slice(&self.delta_prefix);
            out.extend_from_slice(text.escaped());
            out.extend_from_slice(b"\"}}\n\n");
        }
    }

    /// Returns true if the answer cannot end successfully with the arguments of this block. `cut` is true if the answer
    /// was truncated.
    pub(super) fn has_invalid_arguments(&self, cut: bool) -> bool {
        match self.kind {
            BlockKind::Tool(_) if cut => self.arguments.state() == JsonState::Invalid,
            BlockKind::Tool(_) => !self.arguments.is_valid_end(),
            BlockKind::Text | BlockKind::Thinking { .. } => false,
        }
    }

    /// Writes the `content_block_stop` event, for reasoning after a delta with the signature.
    pub(super) fn write_end(self, out: &mut Vec<u8>) {
        if matches!(self.kind, BlockKind::Thinking { .. }) {
            write_event_head("content_block_delta", self.index, out);
            out.extend_from_slice(br#""delta":{"type":"signature_delta","signature":""#);
            out.extend_from_slice(
                signature_or_default(self.signature.as_ref(), self.reasoning_hash).escaped(),
            );
            out.extend_from_slice(b"\"}}\n\n");
        }
        out.extend_from_slice(
            b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
        );
        let _ = write!(out, "{}", self.index);
        out.extend_from_slice(b"}\n\n");
    }
}

/// Returns the number of bytes of memory of a buffered text.
pub(super) fn text_memory_bytes(text: &EscapedText) -> usize {
    size_of::<EscapedText>() + text.escaped().len()
}

/// Returns the provider's signature, or one generated from `hash`, because client libraries do not send back reasoning
/// without a signature. The generated signature proves nothing and is never checked.
pub(crate) fn signature_or_default(signature: Option<&EscapedText>, hash: u64) -> EscapedText {
    signature
        .filter(|signature| !signature.is_empty())
        .cloned()
        .unwrap_or_else(|| EscapedText::new(&format!("penstock-{hash:016x}")))
}

/// Writes the start of an event about a block.
fn write_event_head(kind: &str, index: u32, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "event: {kind}\ndata: {{\"type\":\"{kind}\",\"index\":{index},");
}
