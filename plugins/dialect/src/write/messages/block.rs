//! Writer of one content block.

use crate::arguments::{Arguments, State};
use crate::event::Text;
use crate::messages_chat::ids::{FNV_START, fnv1a_more};
use std::io::Write as _;

/// Kind of a block's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reasoning, whose text is hidden if `omitted`.
    Thinking {
        /// True if only the signature is shown.
        omitted: bool,
    },
    /// Text of the answer.
    Text,
    /// Tool call with this number.
    Tool(u32),
}

/// Content block, open or buffered.
pub(super) struct Block {
    pub kind: Kind,
    /// Texts that arrived before the block was opened.
    pub kept: Vec<Text>,
    pub arguments: Arguments,
    pub signature: Option<Text>,
    tool: Option<(Text, Text)>,
    /// Hash of the reasoning, for a signature if the provider gives none.
    hash: u64,
    index: u32,
    /// Bytes of a delta before its text.
    lead: Vec<u8>,
}

impl Block {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            kept: Vec::new(),
            arguments: Arguments::new(),
            signature: None,
            tool: None,
            hash: FNV_START,
            index: 0,
            lead: Vec::new(),
        }
    }

    pub(super) fn tool(number: u32, id: Text, name: Text) -> Self {
        Self { tool: Some((id, name)), ..Self::new(Kind::Tool(number)) }
    }

    /// Returns true if the next block must not open yet: the tool arguments are incomplete.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.kind, Kind::Tool(_)) && self.arguments.state() != State::Whole
    }

    /// Returns true if text of this kind belongs to this block.
    pub(super) fn takes(&self, kind: Kind) -> bool {
        self.kind == kind && self.signature.is_none()
    }

    /// Buffers a text, if the client may see any of it; returns the bytes buffered.
    pub(super) fn keep(&mut self, text: &Text) -> usize {
        if !self.takes_in(text) {
            return 0;
        }
        self.kept.push(text.clone());
        text.escaped().len()
    }

    /// Records a text of this block; returns true if the client sees it. Arguments are parsed here.
    fn takes_in(&mut self, text: &Text) -> bool {
        match self.kind {
            Kind::Text => true,
            Kind::Thinking { omitted } => {
                self.hash = fnv1a_more(self.hash, text.escaped());
                !omitted
            }
            Kind::Tool(_) => matches!(self.arguments.push(&text.decoded()), State::Open | State::Whole),
        }
    }

    pub(super) fn open(&mut self, index: u32, out: &mut Vec<u8>) {
        self.index = index;
        head("content_block_start", index, out);
        let delta = match (self.kind, &self.tool) {
            (Kind::Thinking { .. }, _) => {
                out.extend_from_slice(
                    br#""content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                );
                r#""delta":{"type":"thinking_delta","thinking":""#
            }
            (Kind::Tool(_), Some((id, name))) => {
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
        head("content_block_delta", index, &mut self.lead);
        self.lead.extend_from_slice(delta.as_bytes());
    }

    /// Writes a text, if the client may see any of it.
    pub(super) fn delta(&mut self, text: &Text, out: &mut Vec<u8>) {
        if self.takes_in(text) {
            self.say(text, out);
        }
    }

    /// Writes a text without checking it.
    pub(super) fn say(&self, text: &Text, out: &mut Vec<u8>) {
        if !text.is_empty() {
            out.extend_from_slice(&self.lead);
            out.extend_from_slice(text.escaped());
            out.extend_from_slice(b"\"}}\n\n");
        }
    }

    /// Returns true if the block cannot end successfully, after an answer that was truncated (`cut`) or not.
    pub(super) fn is_spoilt(&self, cut: bool) -> bool {
        match self.kind {
            Kind::Tool(_) if cut => self.arguments.state() == State::Invalid,
            Kind::Tool(_) => !self.arguments.end(),
            Kind::Text | Kind::Thinking { .. } => false,
        }
    }

    pub(super) fn close(self, out: &mut Vec<u8>) {
        if matches!(self.kind, Kind::Thinking { .. }) {
            head("content_block_delta", self.index, out);
            out.extend_from_slice(br#""delta":{"type":"signature_delta","signature":""#);
            out.extend_from_slice(signature(self.signature.as_ref(), self.hash).escaped());
            out.extend_from_slice(b"\"}}\n\n");
        }
        out.extend_from_slice(
            b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
        );
        let _ = write!(out, "{}", self.index);
        out.extend_from_slice(b"}\n\n");
    }
}

/// Returns the provider's signature, or a generated one: client libraries drop reasoning without a signature when they
/// send it back. It proves nothing and is never checked.
pub(crate) fn signature(given: Option<&Text>, hash: u64) -> Text {
    given
        .filter(|given| !given.is_empty())
        .cloned()
        .unwrap_or_else(|| Text::new(&format!("penstock-{hash:016x}")))
}

/// Writes the start of an event about a block.
fn head(kind: &str, index: u32, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "event: {kind}\ndata: {{\"type\":\"{kind}\",\"index\":{index},");
}
