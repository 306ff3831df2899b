//! Sequence of the blocks of a streamed message.
//!
//! Clients and the decoder expect that one block is open at a time, that indices are consecutive from 0, and that each
//! block ends before the message does. Some providers number blocks in another way, open a block before the end of
//! another, or leave out the ends of blocks. If a block starts while text or thinking that has text is open, or a block
//! that is complete, the sequencer ends the open block first; further text of it is sent in another block, and a later
//! signature of it is dropped. If a block starts while any other block is open, it waits until the open one ends: the
//! events of waiting blocks are stored.
//!
//! The sequencer also drops deltas of types that clients do not know, joins the halves of a surrogate pair that is
//! split between two deltas, and replaces lone surrogates by U+FFFD.

use super::delta_members::{DeltaKind, DeltaMembers};
use super::sequenced_block::{BlockState, SequencedBlock, WaitingBlock};
use super::{EventMembers, malformed_error, without_lone_surrogates};
use crate::decode::MAX_TOOL_CALLS;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;
use penstock_json_scan::json;
use std::collections::VecDeque;

/// Maximum number of blocks of a message.
pub(super) const MAX_BLOCKS: usize = MAX_TOOL_CALLS * 8;
/// Maximum bytes of the stored events of waiting blocks. An answer with more has invalid output.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Sequencer of the blocks of one stream.
#[derive(Default)]
pub(super) struct BlockSequencer {
    /// Blocks in the order in which the provider started them.
    blocks: Vec<SequencedBlock>,
    /// Position of the open block.
    open: Option<usize>,
    /// Positions of the waiting blocks, in order.
    waiting: VecDeque<usize>,
    /// Number of blocks that were opened; the index of the open block is one less.
    opened: usize,
    /// Total bytes of the stored events.
    waiting_bytes: usize,
}

impl BlockSequencer {
    /// Returns the number of bytes of stored events.
    pub(super) const fn stored_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns the data of the events that replace an event, possibly none; `None` if the event is unchanged.
    ///
    /// # Errors
    /// Returns `Malformed` for an event about a block that has not started or has ended, for a first block with an
    /// index other than 0, and for an invalid delta; `ModelOutput` if too many bytes wait.
    pub(super) fn apply(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
    ) -> Result<Option<Vec<Bytes>>, UpstreamError> {
        match &*members.event_type {
            "content_block_start" => self.start_block(data, members),
            "content_block_delta" => self.add_delta(data, members),
            "content_block_stop" => self.stop_block(data, members),
            "message_stop" => Ok(self.end_message(data)),
            "message_delta" if has_stop_reason(members) => Ok(self.end_message(data)),
            _ => Ok(repaired_event(data)),
        }
    }

    fn start_block(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
    ) -> Result<Option<Vec<Bytes>>, UpstreamError> {
        let index = members.index.filter(|index| *index == 0 || !self.blocks.is_empty());
        let (index, opened) = index.zip(members.content_block).ok_or_else(malformed_error)?;
        if self.blocks.len() > MAX_BLOCKS {
            return Err(malformed_error());
        }
        let mut events = Vec::new();
        if let Some(at) = self.find(index) {
            // The provider left out the end of the block that had the same index.
            self.end_block(at, None, &mut events);
        }
        let (block, start) = SequencedBlock::new(index, data, opened)?;
        self.blocks.push(block);
        self.open_or_store(self.blocks.len() - 1, &start, &mut events)?;
        let is_unchanged = matches!(&*events, [only] if only == data);
        Ok((!is_unchanged).then_some(events))
    }

    fn add_delta(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
    ) -> Result<Option<Vec<Bytes>>, UpstreamError> {
        let at = members.index.and_then(|index| self.find(index)).ok_or_else(malformed_error)?;
        let json = members.delta.unwrap_or_default();
        let delta = DeltaMembers::parse(json).ok_or_else(malformed_error)?;
        if delta.kind == DeltaKind::Unknown {
            return Ok(Some(Vec::new()));
        }
        if delta.kind.is_string() && delta.content.is_none() {
            return Err(malformed_error());
        }
        let mut events = Vec::new();
        let block = self.blocks.get(at).filter(|block| matches!(block.state, BlockState::Interrupted));
        if let Some(block) = block {
            if !block.continues_with(&delta) {
                let is_lost = delta.kind == DeltaKind::InputJson && !delta.is_empty();
                return if is_lost { Err(malformed_error()) } else { Ok(Some(events)) };
            }
            let start = block.make_start_event();
            self.open_or_store(at, &start, &mut events)?;
        }
        let open_index = self.opened.saturating_sub(1);
        let block = self.blocks.get_mut(at).ok_or_else(malformed_error)?;
        if block.record_delta(json, &delta) && events.is_empty() && block.index == open_index {
            return Ok(None);
        }
        let bytes = block.push_delta(open_index, data, &delta, &mut events)?;
        self.count_waiting(bytes)?;
        Ok(Some(events))
    }

    fn stop_block(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
    ) -> Result<Option<Vec<Bytes>>, UpstreamError> {
        let at = members.index.and_then(|index| self.find(index)).ok_or_else(malformed_error)?;
        let mut events = Vec::new();
        let keeps_index = self.open == Some(at) && members.index == self.opened.checked_sub(1);
        self.end_block(at, Some(data), &mut events);
        Ok((!keeps_index || events.len() != 1).then_some(events))
    }

    /// Ends all blocks. Returns the events for this, and the event with this data, which ends the message.
    fn end_message(&mut self, data: &Bytes) -> Option<Vec<Bytes>> {
        if self.open.is_none() {
            return repaired_event(data);
        }
        let mut events = Vec::new();
        while self.open.is_some() {
            self.close_open_block(None, &mut events);
            self.open_waiting(&mut events);
        }
        events.push(without_lone_surrogates(data.clone()));
        Some(events)
    }

    /// Ends the open block at the end of a stream that has no end of the message. Returns its index and the data of its
    /// stop event; `None` if no block is open. Waiting blocks are dropped.
    pub(super) fn end_stream(&mut self) -> Option<(usize, Bytes)> {
        let mut events = Vec::new();
        self.close_open_block(None, &mut events);
        Some((self.opened.checked_sub(1)?, events.pop()?))
    }

    /// Returns the position of the last block with this index from the provider that may still have events.
    fn find(&self, index: usize) -> Option<usize> {
        self.blocks
            .iter()
            .rposition(|block| block.index == index && !matches!(block.state, BlockState::Ended))
    }

    /// Opens a block with this start event. If another block must end first, stores the event instead.
    fn open_or_store(
        &mut self,
        position: usize,
        start: &Bytes,
        events: &mut Vec<Bytes>,
    ) -> Result<(), UpstreamError> {
        let open = self.open.and_then(|open| self.blocks.get(open));
        if self.waiting.is_empty() && open.is_some_and(SequencedBlock::may_be_interrupted) {
            self.close_open_block(None, events);
        }
        if self.open.is_none() {
            self.open_block(position, start, events);
            return Ok(());
        }
        let Some(block) = self.blocks.get_mut(position) else { return Ok(()) };
        let waiting = WaitingBlock::new(start);
        let bytes = waiting.stored_bytes();
        block.state = BlockState::Waiting(waiting);
        self.waiting.push_back(position);
        self.count_waiting(bytes)
    }

    fn count_waiting(&mut self, bytes: usize) -> Result<(), UpstreamError> {
        self.waiting_bytes += bytes;
        if self.waiting_bytes > MAX_WAITING_BYTES {
            return Err(UpstreamError::invalid_model_output());
        }
        Ok(())
    }

    fn open_block(&mut self, position: usize, start: &Bytes, events: &mut Vec<Bytes>) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        events.push(block.renumber(start, self.opened));
        block.state = BlockState::Open;
        self.open = Some(position);
        self.opened += 1;
    }

    /// Ends a block for which the provider sends no more events. `stop` is the data of its stop event, if there is one.
    fn end_block(&mut self, position: usize, stop: Option<&Bytes>, events: &mut Vec<Bytes>) {
        let Some(block) = self.blocks.get_mut(position) else { return };
        match &mut block.state {
            BlockState::Waiting(waiting) => waiting.is_stopped = true,
            BlockState::Open => {
                self.close_open_block(stop, events);
                if let Some(block) = self.blocks.get_mut(position) {
                    block.end(true);
                }
                self.open_waiting(events);
            }
            BlockState::Interrupted | BlockState::Ended => block.end(true),
        }
    }

    /// Ends the open block for the readers of the events. The provider may still have text for it.
    fn close_open_block(&mut self, stop: Option<&Bytes>, events: &mut Vec<Bytes>) {
        let Some(block) = self.open.take().and_then(|at| self.blocks.get_mut(at)) else { return };
        let index = self.opened.saturating_sub(1);
        block.finish_text(index, events);
        events.push(match stop {
            Some(data) => block.renumber(data, index),
            None => Bytes::from(format!(r#"{{"type":"content_block_stop","index":{index}}}"#)),
        });
        block.end(false);
    }

    /// Opens waiting blocks until one of them has not ended yet.
    fn open_waiting(&mut self, events: &mut Vec<Bytes>) {
        while self.open.is_none()
            && let Some(at) = self.waiting.pop_front()
        {
            let Some(block) = self.blocks.get_mut(at) else { continue };
            let BlockState::Waiting(waiting) = std::mem::replace(&mut block.state, BlockState::Ended) else {
                continue;
            };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(waiting.stored_bytes());
            self.open_block(at, &waiting.start, events);
            events.extend(waiting.delta_events(self.opened.saturating_sub(1)));
            if waiting.is_stopped {
                self.close_open_block(None, events);
                if let Some(block) = self.blocks.get_mut(at) {
                    block.end(true);
                }
            }
        }
    }
}

/// Returns the data of an event without lone surrogates; `None` if it has none.
fn repaired_event(data: &[u8]) -> Option<Vec<Bytes>> {
    json::repair_surrogates(data).map(|repaired| vec![Bytes::from(repaired)])
}

/// Returns true if a `message_delta` event has a reason for the end of the message.
fn has_stop_reason(members: &EventMembers<'_>) -> bool {
    let reason = members.delta.and_then(|delta| json_cursor::member_value(delta, "stop_reason"));
    reason.is_some_and(|reason| reason != b"\"\"")
}
