//! Block of a streamed message, as the sequencer records it.

use super::block_texts::{BlockTexts, may_have_surrogate};
use super::delta_members::{DeltaKind, DeltaMembers, make_delta_event};
use super::{malformed_error, without_lone_surrogates};
use crate::document_patches::with_block_index;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Bytes of memory that a stored delta occupies in addition to its content.
const DELTA_BYTES: usize = size_of::<WaitingDelta>();

/// Kind of a block, by the content that may follow its start event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequencedKind {
    Text,
    Thinking,
    /// Block that is complete in its start event.
    Complete,
    /// Tool call, or block of another type.
    Other,
}

impl SequencedKind {
    fn from_block(opened: &[u8]) -> Self {
        let name = json_cursor::member_value(opened, "type").and_then(json_cursor::parse_string);
        match &*name.unwrap_or_default() {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::Complete,
            name if name.ends_with("_tool_result") => Self::Complete,
            _ => Self::Other,
        }
    }

    /// Returns the kind of the deltas with the text of the block; `None` for blocks other than text and thinking.
    const fn text_delta(self) -> Option<DeltaKind> {
        match self {
            Self::Text => Some(DeltaKind::Text),
            Self::Thinking => Some(DeltaKind::Thinking),
            Self::Complete | Self::Other => None,
        }
    }
}

/// State of a block for the readers of the events.
pub(super) enum BlockState {
    /// Block that is open.
    Open,
    /// Block that is opened when those before it have ended.
    Waiting(WaitingBlock),
    /// Block that was ended before the provider ended it. More text of a text or thinking block opens another block.
    Interrupted,
    /// Block that the provider has ended, or that cannot go on.
    Ended,
}

/// Block of a streamed message.
pub(super) struct SequencedBlock {
    /// Index that the provider gave the block. It need not be unique: some engines give every block index 0.
    pub(super) index: usize,
    kind: SequencedKind,
    pub(super) state: BlockState,
    /// True if a text or thinking block has text.
    has_text: bool,
    pub(super) texts: BlockTexts,
}

impl SequencedBlock {
    /// Creates a block that is not open yet from the data of its start event and its `content_block`. Returns the data
    /// too, without lone surrogates.
    pub(super) fn new(index: usize, data: &Bytes, opened: &[u8]) -> Result<(Self, Bytes), UpstreamError> {
        let kind = SequencedKind::from_block(opened);
        let text = kind.text_delta().zip(match kind {
            SequencedKind::Text => json_cursor::member_value(opened, "text"),
            SequencedKind::Thinking => json_cursor::member_value(opened, "thinking"),
            SequencedKind::Complete | SequencedKind::Other => None,
        });
        let mut texts = BlockTexts::default();
        let start = if may_have_surrogate(opened) { texts.repair_start(data, text)? } else { data.clone() };
        let has_text = text.is_some_and(|(_, text)| text.len() > 2);
        Ok((Self { index, kind, state: BlockState::Ended, has_text, texts }, start))
    }

    /// Returns true if the block may end at the start of the next block: if it is complete, or if it has text, because
    /// further text can be sent in another block.
    pub(super) fn may_be_interrupted(&self) -> bool {
        self.has_text || self.kind == SequencedKind::Complete
    }

    /// Sets the state after the end of the block. `by_provider` is false if only the sequencer ended it.
    pub(super) fn end(&mut self, by_provider: bool) {
        self.state = if by_provider { BlockState::Ended } else { BlockState::Interrupted };
    }

    /// Records that the block has the text of a delta. Returns true if the block is open and the delta, whose object is
    /// `json`, needs no repair.
    pub(super) fn record_delta(&mut self, json: &[u8], delta: &DeltaMembers<'_>) -> bool {
        self.has_text |= self.continues_with(delta);
        matches!(self.state, BlockState::Open) && self.texts.is_unchanged(json, delta)
    }

    /// Adds a delta with the event `data` to the block, which has the new index `index`, without lone surrogates:
    /// appends its events if the block is open, and stores it if the block waits. Returns the number of stored bytes.
    pub(super) fn push_delta(
        &mut self,
        index: usize,
        data: &Bytes,
        delta: &DeltaMembers<'_>,
        events: &mut Vec<Bytes>,
    ) -> Result<usize, UpstreamError> {
        let mut bytes = 0;
        if let Some((kind, end)) = self.texts.end_other_text(Some(delta.kind)) {
            bytes += self.push_text(index, kind, end.escaped(), events);
        }
        if let Some(text) = self.texts.repair(data, delta)? {
            return Ok(bytes + self.push_text(index, delta.kind, text.escaped(), events));
        }
        match &mut self.state {
            BlockState::Waiting(waiting) => bytes += waiting.push_delta(data, delta)?,
            _ => {
                let data = self.renumber(data, index);
                let has_own_repair = delta.kind.is_string() && delta.kind != DeltaKind::Signature;
                events.push(if has_own_repair { data } else { without_lone_surrogates(data) });
            }
        }
        Ok(bytes)
    }

    /// Adds text, the body of a JSON string, to the block, like [`Self::push_delta`].
    fn push_text(&mut self, index: usize, kind: DeltaKind, escaped: &[u8], events: &mut Vec<Bytes>) -> usize {
        if escaped.is_empty() {
            return 0;
        }
        if let BlockState::Waiting(waiting) = &mut self.state {
            return waiting.push_text(kind, escaped);
        }
        events.extend(make_delta_event(index, kind, escaped).map(Bytes::from));
        0
    }

    /// Appends the end of the text of the open block, if it ends with half of a surrogate pair.
    pub(super) fn finish_text(&mut self, index: usize, events: &mut Vec<Bytes>) {
        if let Some((kind, end)) = self.texts.end_other_text(None) {
            self.push_text(index, kind, end.escaped(), events);
        }
    }

    /// Returns true if the delta adds text to this block of text or thinking.
    pub(super) fn continues_with(&self, delta: &DeltaMembers<'_>) -> bool {
        self.kind.text_delta() == Some(delta.kind) && !delta.is_empty()
    }

    /// Returns a start event for the rest of a block that was interrupted.
    pub(super) fn make_start_event(&self) -> Bytes {
        let block = match self.kind {
            SequencedKind::Thinking => r#"{"type":"thinking","thinking":"","signature":""}"#,
            _ => r#"{"type":"text","text":""}"#,
        };
        let index = self.index;
        Bytes::from(format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#))
    }

    /// Returns the data of an event about the block with its index replaced by `index`.
    pub(super) fn renumber(&self, data: &Bytes, index: usize) -> Bytes {
        if index == self.index { data.clone() } else { Bytes::from(with_block_index(data, index)) }
    }
}

/// Stored events of a block that waits.
pub(super) struct WaitingBlock {
    pub(super) start: Bytes,
    deltas: Vec<WaitingDelta>,
    pub(super) is_stopped: bool,
}

enum WaitingDelta {
    /// Text of consecutive deltas, as the body of a JSON string.
    Text(DeltaKind, Vec<u8>),
    /// Data of the event of any other delta.
    Event(Bytes),
}

impl WaitingBlock {
    /// Stores the start event of a block.
    pub(super) fn new(start: &[u8]) -> Self {
        // A copy, because the data may be a small slice of a large buffer.
        Self { start: Bytes::copy_from_slice(start), deltas: Vec::new(), is_stopped: false }
    }

    /// Returns the number of stored bytes.
    pub(super) fn stored_bytes(&self) -> usize {
        let length = |delta: &WaitingDelta| match delta {
            WaitingDelta::Text(_, text) => text.len(),
            WaitingDelta::Event(data) => data.len(),
        };
        self.start.len() + self.deltas.iter().map(|delta| length(delta) + DELTA_BYTES).sum::<usize>()
    }

    /// Stores a delta, whose event is `data`; returns the number of bytes that it occupies.
    pub(super) fn push_delta(
        &mut self,
        data: &[u8],
        delta: &DeltaMembers<'_>,
    ) -> Result<usize, UpstreamError> {
        let content = delta.content.filter(|content| !json_cursor::is_null(content));
        match (delta.kind, content) {
            (DeltaKind::Text | DeltaKind::Thinking | DeltaKind::InputJson, Some(content)) => {
                let text = json_cursor::string_body(content).ok_or_else(malformed_error)?;
                Ok(self.push_text(delta.kind, text))
            }
            (DeltaKind::Text | DeltaKind::Thinking | DeltaKind::InputJson, None) => Ok(0),
            _ => {
                let data = without_lone_surrogates(Bytes::copy_from_slice(data));
                let bytes = data.len() + DELTA_BYTES;
                self.deltas.push(WaitingDelta::Event(data));
                Ok(bytes)
            }
        }
    }

    /// Stores text, the body of a JSON string; returns the number of bytes that it occupies.
    pub(super) fn push_text(&mut self, kind: DeltaKind, escaped: &[u8]) -> usize {
        if let Some(WaitingDelta::Text(last, text)) = self.deltas.last_mut()
            && *last == kind
        {
            text.extend_from_slice(escaped);
            return escaped.len();
        }
        self.deltas.push(WaitingDelta::Text(kind, escaped.to_vec()));
        escaped.len() + DELTA_BYTES
    }

    /// Returns the data of the stored deltas, for the block `index`.
    pub(super) fn delta_events(&self, index: usize) -> impl Iterator<Item = Bytes> {
        self.deltas.iter().filter_map(move |delta| match delta {
            WaitingDelta::Text(kind, text) => make_delta_event(index, *kind, text).map(Bytes::from),
            WaitingDelta::Event(data) => Some(Bytes::from(with_block_index(data, index))),
        })
    }
}
