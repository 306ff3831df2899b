//! The group that the writer is making, and whether what comes next has room
//! in it: an op's bytes and rows are bounded before any of it is entered.

use super::op::{Deed, Op, Order};
use penstock_ledger::{EntryKind, MAX_LINE_BYTES};
use penstock_storage::ledger::{
    BalanceRecord, EntryBlock, MAX_BLOCK_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_ROWS, MAX_EXTRA_ROW_BYTES,
    RowWrite,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sheets of a group that end early; those after them are as long as they may be.
pub(super) const SHORT: usize = 100;
/// Bytes of an entry beside its names.
pub(super) const PLAIN: usize = 1_024;

/// The group in the making.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) sheets: Vec<EntryBlock>,
    pub(super) bytes: usize,
    pub(super) balances: BTreeMap<String, BalanceRecord>,
    pub(super) names: Vec<(String, u64)>,
    pub(super) orders: Vec<(Order, u64)>,
    /// Orders of what one of these orders already, with its number.
    pub(super) repeated: Vec<(Order, u64)>,
    pub(super) rows: Vec<RowWrite>,
    /// How many of them each op has, in order.
    pub(super) row_ops: Vec<usize>,
    pub(super) row_bytes: usize,
    pub(super) weight: u64,
    pub(super) exposed: i64,
}

impl Draft {
    /// Whether all of an op fits; it is never cut in two.
    pub(super) fn has_room(&self, op: &Op) -> bool {
        let (bytes, rows, row_bytes) = room(op);
        let own = self.sheets.len() + self.balances.len() + self.names.len() + self.rows.len();
        // A sheet ends a line's room before its end, and a last one is begun.
        let sheets = SHORT + bytes / (MAX_BLOCK_BYTES - MAX_LINE_BYTES) + 2;
        self.bytes + bytes <= MAX_COMMIT_BYTES
            && own + rows + sheets <= MAX_COMMIT_ROWS
            && self.row_bytes + row_bytes <= MAX_EXTRA_ROW_BYTES
    }
}

/// What an op takes at most: bytes of entries, rows but for sheets, bytes of further rows.
fn room(op: &Op) -> (usize, usize, usize) {
    match op {
        Op::Act(deed) => (most(deed) + deed.terms.as_ref().map_or(0, |terms| line(terms.text.len())), 2, 0),
        Op::Order(order) => (MAX_LINE_BYTES, 1 + order.names.len(), 0),
        Op::Lines(lines) => {
            let accounts: HashSet<&str> = lines.ends.iter().map(|deed| &*deed.account).collect();
            let terms = lines.ends.iter().filter_map(|deed| deed.terms.as_ref());
            let terms: HashMap<&str, usize> =
                terms.map(|terms| (&*terms.id, line(terms.text.len()))).collect();
            let bytes = lines.ends.iter().map(most).sum::<usize>() + terms.values().sum::<usize>();
            let row_bytes = lines.rows.iter().map(RowWrite::bytes).sum();
            (bytes, lines.rows.len() + accounts.len() + terms.len(), row_bytes)
        }
    }
}

/// Bytes of an act at most, the terms that may go before it aside.
fn most(deed: &Deed) -> usize {
    let names = match &deed.act {
        EntryKind::Settle { request, key, sale, .. } => {
            request.len() + key.len() + sale.model.len() + sale.provider.len() + sale.terms.len()
        }
        EntryKind::Reserve { request, key, .. } | EntryKind::Void { request, key, .. } => {
            request.len() + key.len()
        }
        EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => MAX_LINE_BYTES,
    };
    line(deed.account.len() + names)
}

/// Bytes of an entry with names of this length at most: a letter takes six.
const fn line(names: usize) -> usize {
    let bytes = PLAIN + 6 * names;
    if bytes < MAX_LINE_BYTES { bytes } else { MAX_LINE_BYTES }
}
