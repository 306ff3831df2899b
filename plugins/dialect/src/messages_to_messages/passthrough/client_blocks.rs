//! Comparison of the content blocks that the client receives with those that the shadow translator writes.

/// Record of the content blocks of the client.
#[derive(Debug, Default)]
pub(super) struct ClientBlocks {
    /// Number of start events that the client has.
    sent: usize,
    /// Number of start events among the held events.
    held: usize,
    differs: bool,
}

impl ClientBlocks {
    /// Records the start event of a block, which is held.
    pub(super) fn record_start(&mut self) {
        self.held += 1;
    }

    /// Records that the held events were sent to the client. `written` is the number of blocks that the shadow
    /// translator has started. The numbers differ after blocks that the shadow translator does not write, joins with
    /// others, divides or delays.
    pub(super) fn record_flush(&mut self, written: usize) {
        self.sent += std::mem::take(&mut self.held);
        self.differs |= self.sent != written;
    }

    /// Returns true if no block has started.
    pub(super) const fn is_empty(&self) -> bool {
        self.sent + self.held == 0
    }

    /// Returns true if the client and the shadow translator have had different blocks, so that the shadow translator
    /// cannot continue the answer.
    pub(super) const fn differ_from_shadow(&self) -> bool {
        self.differs
    }
}
