//! Operations that are sent to the ledger's writer thread.

use super::balance::Purse;
use penstock_ledger::EntryKind;
use penstock_storage::ledger::RowWrite;
use std::sync::{Arc, mpsc};

/// Terms that charges refer to.
#[derive(Debug)]
pub struct TermsText {
    /// ID: the first sixteen hexadecimal digits of the text's SHA-256.
    pub id: Arc<str>,
    /// JSON object.
    pub text: Arc<str>,
}

/// Error of a grant or a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The store rejects writes at the moment.
    Failing,
    /// The ID was used, or the entry was corrected, by the entry of this number.
    Already(u64),
    /// Invalid amount.
    Impossible,
    /// The store failed meanwhile, so the outcome is unknown. A retry with the same ID is safe.
    Unknown,
}

/// Write operation.
pub(super) enum Op {
    /// Action of a request.
    Act(Deed),
    /// Ends of several requests and their rows: one commit, or none.
    Lines(Lines),
    /// Adjustment by an operator.
    Order(Box<Order>),
}

/// Ledger action with its account and time.
pub(super) struct Deed {
    pub(super) at: u64,
    pub(super) account: Arc<str>,
    pub(super) act: EntryKind,
    pub(super) terms: Option<Arc<TermsText>>,
    /// Amount in 1e-8 EUR that is no longer exposed once the action is written.
    pub(super) exposed: i64,
}

/// Ends of batch lines, and the rows that are written with them.
pub(super) struct Lines {
    pub(super) ends: Vec<Deed>,
    pub(super) rows: Vec<RowWrite>,
}

/// Grant or correction, and the channel for its result.
pub(super) struct Order {
    pub(super) purse: Arc<Purse>,
    pub(super) at: u64,
    pub(super) act: EntryKind,
    /// Names that must be unused.
    pub(super) names: Vec<String>,
    pub(super) answer: mpsc::Sender<Result<u64, Refused>>,
}

impl Op {
    /// Approximate size on the disk and in memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Act(deed) => deed.bytes(),
            Self::Lines(lines) => {
                let rows: usize = lines.rows.iter().map(RowWrite::bytes).sum();
                lines.ends.iter().map(Deed::bytes).sum::<u64>() + rows as u64
            }
            Self::Order(_) => 1_024,
        }
    }
}

impl Deed {
    const fn bytes(&self) -> u64 {
        match self.act {
            EntryKind::Settle { .. } => 800,
            _ => 320,
        }
    }
}
