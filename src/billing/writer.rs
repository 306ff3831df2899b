//! Writer thread of the ledger: operations become entries, entries become sheets, and a group of sheets is one
//! commit. A group that the store rejects is retried with the same bytes, except for rows that it never accepts
//! (`foreign`), until it is known to be committed: so nothing is written twice or out of order.

use super::group_builder::{Draft, PLAIN, SHORT};
use super::op::{Deed, Op, Order, Refused};
use super::replica_lag::Behind;
use super::side_rows;
use super::write_queue::{Kept, Piece, Queue};
use crate::telemetry::log;
use penstock_ledger::{
    CorrectedKind, EntryKind, HashChain, LedgerEntry, MAX_LINE_BYTES, Month, OpenReserves, Wallet,
};
use penstock_storage::ledger::{
    BalanceRecord, EntryBlock, LedgerCommit, LedgerStore, LedgerTip, MAX_BLOCK_BYTES, RowWrite,
    TARGET_BLOCK_BYTES,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of operations per read of the queue.
const MOST: usize = 4_096;
/// Pause before a retry.
const AGAIN: Duration = Duration::from_millis(250);
/// Number of retries at the end of the process.
const LAST_TRIES: u32 = 4;

/// Starts the thread.
pub(super) fn start(
    store: Arc<LedgerStore>,
    tip: Option<LedgerTip>,
    balances: Vec<(String, BalanceRecord)>,
    open: OpenReserves,
    queue: Arc<Queue>,
) -> Result<JoinHandle<()>, String> {
    let chain = tip.map_or_else(HashChain::default, |tip| HashChain { seq: tip.seq, hash: tip.hash });
    let writer = Writer {
        store,
        queue,
        chain,
        tip,
        at: tip.map_or(0, |tip| tip.at),
        month: (None, String::new()),
        balances: balances.into_iter().collect(),
        open,
        known: HashSet::new(),
        draft: Draft::default(),
        behind: Behind::default(),
    };
    std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || writer.run())
        .map_err(|error| format!("The ledger's thread cannot be started: {error}."))
}

struct Writer {
    store: Arc<LedgerStore>,
    queue: Arc<Queue>,
    chain: HashChain,
    /// Tip of the store.
    tip: Option<LedgerTip>,
    at: u64,
    /// Month of the last entry, and its name.
    month: (Option<Month>, String),
    balances: HashMap<String, BalanceRecord, ahash::RandomState>,
    open: OpenReserves,
    /// Terms that are in the ledger.
    known: HashSet<Arc<str>>,
    draft: Draft,
    behind: Behind,
}

impl Writer {
    fn run(mut self) {
        self.work();
        self.queue.over();
    }

    fn work(&mut self) {
        while let Some(Piece { ops, last, whole }) = self.queue.collect(MOST, self.store.replica_sync_due()) {
            if ops.is_empty() && self.draft.weight == 0 {
                // Nothing arrived for a while: the replica is synced now.
                self.queue.copied_now(self.store.sync_replica());
                continue;
            }
            for op in ops {
                if !self.draft.has_room(&op) && !self.commit() {
                    return;
                }
                self.draft.weight += op.bytes();
                self.take(op);
            }
            if whole {
                if !self.commit() {
                    return;
                }
                self.queue.reached(last);
            }
        }
    }

    fn take(&mut self, op: Op) {
        match op {
            Op::Act(deed) => self.deed(deed),
            Op::Lines(lines) => {
                lines.ends.into_iter().for_each(|deed| self.deed(deed));
                self.draft.row_bytes += lines.rows.iter().map(RowWrite::bytes).sum::<usize>();
                self.draft.row_ops.push(lines.rows.len());
                self.draft.rows.extend(lines.rows);
            }
            Op::Order(order) => self.order(*order),
        }
    }

    fn deed(&mut self, deed: Deed) {
        let Deed { at, account, act, terms, exposed } = deed;
        if let Some(terms) = terms.filter(|terms| !self.known.contains(&terms.id)) {
            self.terms(at, &terms.id, &terms.text);
        }
        self.draft.exposed = self.draft.exposed.saturating_add(exposed);
        let end = instead(&act);
        if self.enter(at, &account, act).is_none() {
            log::event(log::error(), "ledger_entry_lost", &[("account", &account)]);
            // The reservation still ends on the disk, so the next start does not void it.
            if let Some(end) = end {
                self.enter(at, &account, end);
            }
        }
    }

    /// Records terms before the first charge that refers to them.
    fn terms(&mut self, at: u64, id: &Arc<str>, text: &Arc<str>) {
        let name = format!("terms {id}");
        let there = self.store.entry_number(&name).is_ok_and(|number| number.is_some());
        if there {
            self.known.insert(id.clone());
            return;
        }
        if let Some(seq) = self.enter(at, "", EntryKind::Terms { id: id.clone(), terms: text.clone() }) {
            self.draft.names.push((name, seq));
            self.known.insert(id.clone());
        }
    }

    fn order(&mut self, order: Order) {
        let mut own = self.draft.names.iter().filter(|(known, _)| order.names.contains(known));
        // It counts as repeated once the first one is durable.
        if let Some(seq) = own.next().map(|(_, seq)| *seq) {
            self.draft.repeated.push((order, seq));
            return;
        }
        let used = order.names.iter().find_map(|name| self.store.entry_number(name).transpose());
        match used {
            Some(Ok(seq)) => {
                order.answer.send(Err(Refused::Already(seq))).ok();
            }
            Some(Err(_)) => {
                order.answer.send(Err(Refused::Failing)).ok();
            }
            None => match self.enter(order.at, &order.purse.name, order.act.clone()) {
                Some(seq) => {
                    self.draft.names.extend(order.names.iter().map(|name| (name.clone(), seq)));
                    self.draft.orders.push((order, seq));
                }
                None => {
                    order.answer.send(Err(Refused::Impossible)).ok();
                }
            },
        }
    }

    /// Appends an entry to the draft; `None` if it is invalid.
    fn enter(&mut self, at: u64, account: &str, act: EntryKind) -> Option<u64> {
        let entry =
            LedgerEntry { seq: self.chain.seq + 1, at: at.max(self.at), account: account.into(), kind: act };
        let before = self.balances.get(account).copied().unwrap_or_default();
        let after = changed(before, &entry.kind)?;
        if self.month.0 != Some(Month::of(entry.at)) {
            let month = Month::of(entry.at);
            self.month = (Some(month), month.to_string());
        }
        let month = &self.month.1;
        let long = if self.draft.sheets.len() < SHORT {
            TARGET_BLOCK_BYTES
        } else {
            MAX_BLOCK_BYTES - MAX_LINE_BYTES
        };
        let last = self.draft.sheets.last();
        let fits = last.is_some_and(|sheet| sheet.month == *month && sheet.text.len() < long);
        if !fits {
            self.draft.sheets.push(EntryBlock {
                month: month.clone(),
                last: entry.seq,
                text: Vec::with_capacity(TARGET_BLOCK_BYTES + PLAIN),
            });
        }
        let sheet = self.draft.sheets.last_mut()?;
        let length = sheet.text.len();
        if self.chain.append(&entry, &mut sheet.text).is_err() {
            if length == 0 {
                self.draft.sheets.pop();
            }
            return None;
        }
        sheet.last = entry.seq;
        self.draft.bytes += sheet.text.len() - length;
        self.at = entry.at;
        self.open.apply(&entry);
        if let Some(after) = after {
            // An existing account needs no copy of its name.
            match self.balances.get_mut(account) {
                Some(there) => *there = after,
                None => {
                    self.balances.insert(account.to_owned(), after);
                }
            }
            match self.draft.balances.get_mut(account) {
                Some(there) => *there = after,
                None => {
                    self.draft.balances.insert(account.to_owned(), after);
                }
            }
        }
        Some(entry.seq)
    }

    /// Commits the draft; returns false if that is impossible and the process ends.
    fn commit(&mut self) -> bool {
        let mut draft = std::mem::take(&mut self.draft);
        let after = LedgerTip {
            seq: self.chain.seq,
            hash: self.chain.hash,
            at: self.at,
            first_open: self.open.oldest_seq().unwrap_or(self.chain.seq + 1),
        };
        let mut copied = true;
        let moved = !draft.sheets.is_empty();
        if moved || !draft.rows.is_empty() {
            let mut group = LedgerCommit {
                previous_tip: self.tip,
                new_tip: if moved { after } else { self.tip.unwrap_or_default() },
                blocks: draft.sheets,
                balances: draft.balances.into_iter().collect(),
                names: draft.names,
                extra_rows: draft.rows,
            };
            let asked = &mut [&mut draft.orders, &mut draft.repeated];
            match self.append(&mut group, &mut draft.row_ops, asked) {
                Some(kept) => copied = kept,
                None => return false,
            }
            if moved {
                self.tip = Some(after);
            }
        }
        self.queue.kept(&Kept {
            bytes: draft.weight,
            exposed: draft.exposed,
            copied,
            open: self.open.len() as u64,
            entries: after.seq,
        });
        for (order, seq) in draft.orders {
            apply(&order);
            order.answer.send(Ok(seq)).ok();
        }
        for (order, seq) in draft.repeated {
            order.answer.send(Err(Refused::Already(seq))).ok();
        }
        true
    }

    /// Retries until the store has the group; returns whether the replica has it too.
    fn append(
        &mut self,
        group: &mut LedgerCommit,
        row_ops: &mut Vec<usize>,
        asked: &mut [&mut Vec<(Order, u64)>],
    ) -> Option<bool> {
        let mut tries = LAST_TRIES;
        let mut told = false;
        self.queue.at_work(true);
        loop {
            let why = match self.store.append(group) {
                Ok(appended) => {
                    self.queue.at_work(false);
                    self.behind.tell(appended.copied, &self.store);
                    return Some(appended.copied);
                }
                Err(why) if side_rows::is_final(&why) && !group.extra_rows.is_empty() => {
                    let rows = side_rows::shed(group, row_ops).to_string();
                    let what = [("rows", rows.as_str()), ("why", &why.to_string())];
                    log::event(log::error(), "ledger_rows_dropped", &what);
                    continue;
                }
                Err(why) => why.to_string(),
            };
            self.queue.failed();
            // Callers of adjustments get an error now; the adjustments stay in the group and count once
            // it is written.
            for (order, _) in asked.iter_mut().flat_map(|orders| orders.iter_mut()) {
                let (nobody, _) = std::sync::mpsc::channel();
                std::mem::replace(&mut order.answer, nobody).send(Err(Refused::Unknown)).ok();
            }
            if !told {
                log::event(log::error(), "ledger_not_written", &[("why", &why)]);
                told = true;
            }
            if !self.queue.pause(AGAIN) {
                tries -= 1;
                std::thread::sleep(AGAIN);
                if tries == 0 {
                    log::event(log::error(), "ledger_lost", &[("why", &why)]);
                    return None;
                }
            }
        }
    }
}

/// Returns the void that replaces a charge that cannot be recorded.
fn instead(act: &EntryKind) -> Option<EntryKind> {
    let EntryKind::Settle { request, key, wallet, held, drawn, .. } = act else { return None };
    let (request, key, why) = (request.clone(), key.clone(), "unwritable".into());
    Some(EntryKind::Void { request, key, wallet: *wallet, held: *held, why, drawn: *drawn })
}

/// Balance after an action; `Some(None)` if it is unchanged, `None` if the action is invalid.
fn changed(balance: BalanceRecord, act: &EntryKind) -> Option<Option<BalanceRecord>> {
    let (wallet, change) = match act {
        EntryKind::Grant { wallet, amount, .. } => (wallet, Some(*amount).filter(|amount| *amount > 0)?),
        EntryKind::Settle { wallet, amount, .. } => (wallet, amount.checked_neg()?),
        EntryKind::Correct { wallet, .. } => (wallet, corrected(act)?),
        EntryKind::Reserve { .. } | EntryKind::Void { .. } | EntryKind::Terms { .. } => return Some(None),
    };
    let BalanceRecord { credits, energy } = balance;
    Some(Some(match wallet {
        Wallet::Credits => BalanceRecord { credits: credits.checked_add(change)?, energy },
        Wallet::Energy => BalanceRecord { credits, energy: energy.checked_add(change)? },
    }))
}

/// Refund of a correction.
fn corrected(act: &EntryKind) -> Option<i64> {
    let EntryKind::Correct { what, was, instead, .. } = act else { return None };
    match what {
        CorrectedKind::Settle => was.checked_sub(*instead),
        CorrectedKind::Grant => instead.checked_sub(*was),
    }
}

/// Applies a committed adjustment to the balance in memory.
fn apply(order: &Order) {
    match &order.act {
        EntryKind::Grant { wallet, amount, .. } => order.purse.add(*wallet, *amount),
        act @ EntryKind::Correct { wallet, .. } => order.purse.add(*wallet, corrected(act).unwrap_or(0)),
        _ => {}
    }
}
