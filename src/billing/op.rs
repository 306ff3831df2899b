//! What the one thread that writes the ledger is handed.

use super::balance::Purse;
use penstock_ledger::EntryKind;
use penstock_storage::ledger::RowWrite;
use std::sync::{Arc, mpsc};

/// The terms that charges refer to.
#[derive(Debug)]
pub struct TermsText {
    /// Sixteen hexadecimal digits of the text's SHA-256.
    pub id: Arc<str>,
    /// A JSON object.
    pub text: Arc<str>,
}

/// Why a grant or a correction is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The store takes nothing now.
    Failing,
    /// Its id was used before, or its entry corrected before: the number of that entry.
    Already(u64),
    /// An amount that cannot be.
    Impossible,
    /// The store failed meanwhile: whether it was made is not known. Asking again with the same id is safe.
    Unknown,
}

/// Something to be written.
pub(super) enum Op {
    /// An act of a request.
    Act(Deed),
    /// The ends of several requests and the rows that belong to them: one commit, or none.
    Lines(Lines),
    /// An order of the operator.
    Order(Box<Order>),
}

/// An act, whose and when.
pub(super) struct Deed {
    pub(super) at: u64,
    pub(super) account: Arc<str>,
    pub(super) act: EntryKind,
    pub(super) terms: Option<Arc<TermsText>>,
    /// What it owes, 1e-8 EUR: no more exposed once it is written.
    pub(super) exposed: i64,
}

/// Lines of batches that have ended, and what else is written with them.
pub(super) struct Lines {
    pub(super) ends: Vec<Deed>,
    pub(super) rows: Vec<RowWrite>,
}

/// A grant or a correction, and who waits for it.
pub(super) struct Order {
    pub(super) purse: Arc<Purse>,
    pub(super) at: u64,
    pub(super) act: EntryKind,
    /// None of these may have been used.
    pub(super) names: Vec<String>,
    pub(super) answer: mpsc::Sender<Result<u64, Refused>>,
}

impl Op {
    /// What it takes on the disk and here, about.
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
