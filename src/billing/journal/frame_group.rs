//! Group of the journal: frames of actions that are appended and synced together.

use super::super::write_op::SaleTerms;
use penstock_storage::ledger::journal::push_frame;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Encoded journal frames that are appended together, and the terms that their actions refer to.
#[derive(Default)]
pub(super) struct FrameGroup {
    pub(super) frames: Vec<u8>,
    /// Terms by id.
    pub(super) terms: BTreeMap<Arc<str>, Arc<SaleTerms>>,
    /// Number of the last action.
    pub(super) last: u64,
}

impl FrameGroup {
    /// Adds the record of an action with its number and its terms.
    pub(super) fn add(&mut self, number: u64, record: &[u8], terms: Option<&Arc<SaleTerms>>) {
        push_frame(number, record, &mut self.frames);
        self.last = number;
        if let Some(terms) = terms {
            self.terms.entry(terms.id.clone()).or_insert_with(|| terms.clone());
        }
    }
}
