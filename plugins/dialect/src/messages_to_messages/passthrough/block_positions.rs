//! Renumbering of content blocks. Clients and the shadow translator expect consecutive indices, which some providers do
//! not send.

use super::super::repair;
use crate::decode::messages::{EventMembers, valid_block_index};
use bytes::Bytes;

/// Content blocks of the provider's stream; the position in the list is the new index of the block.
#[derive(Default)]
pub(super) struct BlockPositions(Vec<BlockPosition>);

struct BlockPosition {
    /// Index that the provider gave the block.
    index: usize,
    is_open: bool,
}

impl BlockPositions {
    /// Returns the data of a block event with the position of the block as its index; `None` if the event has that
    /// index already, is invalid, or is not about a block.
    pub(super) fn renumber(&mut self, data: &Bytes, seen: &EventMembers<'_>) -> Option<Bytes> {
        let index = seen.index?;
        let at = match &*seen.event_type {
            "content_block_start" => {
                valid_block_index(seen, self.0.len(), self.0.iter().any(|block| block.is_open))?;
                self.0.push(BlockPosition { index, is_open: true });
                self.0.len() - 1
            }
            "content_block_delta" => self.find_open(index)?,
            "content_block_stop" => {
                let at = self.find_open(index)?;
                self.0.get_mut(at)?.is_open = false;
                at
            }
            _ => return None,
        };
        (at != index).then(|| Bytes::from(repair::with_block_index(data, at)))
    }

    fn find_open(&self, index: usize) -> Option<usize> {
        self.0.iter().rposition(|block| block.is_open && block.index == index)
    }
}
