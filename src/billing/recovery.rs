//! Start of the ledger: it loads the balances, and voids the reservations that a crash left open or continues those
//! that a process hands over. If the last entry of its chain does not match the tip, or is later than the clock by more
//! than `ledger.ahead`, nothing is written to the chain.

use super::abandoned::void_other_chain_reservations;
use super::balance::AccountBalance;
use super::journal::replay::{OpenedJournal, record_replay, retain_valid_actions};
use super::journal::start::{LedgerThreads, open_member_journal, start_threads};
use super::write_op::{LedgerAction, WriteOp};
use super::write_queue::WriteQueue;
use super::writer::WriterStart;
use super::{Leases, Ledger, handover};
use crate::config::settings::{self, LogLevel};
use crate::fleet::FleetMember;
use crate::telemetry::log;
use crate::time::clock::ProcessClock;
use crate::time::format::format_rfc3339;
use parking_lot::{Mutex, RwLock};
use penstock_core::entry_number::{number_before_chain, sequence_in_chain};
use penstock_ledger::{EntryKind, HashChain, OpenReserves, RequestFootprint, split_lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::{BalanceRecord, FoundReplica, LedgerStore, LedgerTip, ReplicaRepair};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::time::Duration;
use tracing::Level;

/// Balances by account.
type BalanceMap = HashMap<Box<str>, Arc<AccountBalance>, ahash::RandomState>;

/// Minimum value of `ledger.ahead` for which any date is accepted.
const ANY_DATE_LEAD: Duration = Duration::from_secs(366 * 86_400);

impl Ledger {
    /// Opens the ledger of a store, voids the reservations that a crash left open, and starts the writer.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the ledger cannot be used.
    pub fn open(
        store: Arc<LedgerStore>,
        settings: &settings::LedgerSettings,
        clock: ProcessClock,
    ) -> Result<Arc<Self>, String> {
        Self::open_with(store, settings, clock, false, None).map(|(ledger, _)| ledger)
    }

    /// Opens the ledger of a store for reading: voids no reservation and starts no writer, so nothing is written. The
    /// reservations that a crash left open hold nothing of the balances, as after their void. A grant or a correction
    /// would wait for the writer until its timeout.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the ledger cannot be used.
    pub fn open_for_reading(store: Arc<LedgerStore>, clock: ProcessClock) -> Result<Self, String> {
        let balances = store.balances().map_err(|error| format!("The ledger cannot be used: {error}."))?;
        let queue = Arc::new(WriteQueue::new(Duration::ZERO, 0));
        Ok(Self::with_queue(
            store,
            balances_in_memory(&balances),
            queue,
            clock,
            None,
            LedgerThreads::default(),
        ))
    }

    fn with_queue(
        store: Arc<LedgerStore>,
        balances: BalanceMap,
        queue: Arc<WriteQueue>,
        clock: ProcessClock,
        leases: Option<Leases>,
        threads: LedgerThreads,
    ) -> Self {
        Self {
            store,
            balances: RwLock::new(balances),
            queue,
            clock,
            exposure_limit: AtomicI64::new(0),
            backlog_limit: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            refused_last: AtomicBool::new(false),
            leases,
            journal: RwLock::new(threads.journal),
            replayed_charges: Mutex::default(),
            threads: Mutex::new(threads.handles),
        }
    }

    /// Opens the ledger like [`Ledger::open`], but for a member of a fleet, whose balances in memory are its leases.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::open`].
    pub fn open_for_member(
        store: Arc<LedgerStore>,
        settings: &settings::LedgerSettings,
        clock: ProcessClock,
        member: &Arc<FleetMember>,
    ) -> Result<Arc<Self>, String> {
        let leases = Leases::from_member(member, clock);
        Self::open_with(store, settings, clock, false, leases).map(|(ledger, _)| ledger)
    }

    /// Opens the ledger of a store that another process has just closed, and continues its open reservations.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::open`].
    pub fn open_after_handover(
        store: Arc<LedgerStore>,
        settings: &settings::LedgerSettings,
        clock: ProcessClock,
        member: &Arc<FleetMember>,
    ) -> Result<(Arc<Self>, handover::InheritedHolds), String> {
        let (ledger, open) =
            Self::open_with(store, settings, clock, true, Leases::from_member(member, clock))?;
        let holds = ledger.inherit_holds(&open);
        Ok((ledger, holds))
    }

    fn open_with(
        store: Arc<LedgerStore>,
        settings: &settings::LedgerSettings,
        clock: ProcessClock,
        taken_over: bool,
        leases: Option<Leases>,
    ) -> Result<(Arc<Self>, OpenReserves), String> {
        let to_message = |error: StoreError| format!("The ledger cannot be used: {error}.");
        // In a fleet another gateway may have written the chain until now, so gaps in the replica are expected.
        let chains = store.chains().map_err(to_message)?.len();
        let level = if store.claim().is_some() || chains > 1 { LogLevel::Info } else { LogLevel::Error };
        for ReplicaRepair { found, what } in store.take_replica_repairs() {
            match found {
                FoundReplica::Incomplete => tracing::info!(name: "ledger_replica_completed", what),
                FoundReplica::Different => log::event_at!(level, name: "ledger_replica_repaired", what),
            }
        }
        let tip = store.tip().map_err(to_message)?;
        check_last_date(tip, settings.max_clock_lead, clock.unix_seconds())?;
        let tip = complete_rollups(&store, tip)?;
        if !taken_over {
            void_other_chain_reservations(&store, clock)?;
        }
        let balances = store.balances().map_err(to_message)?;
        let balances_now = match &leases {
            None => balances_in_memory(&balances),
            Some(leases) => balances_in_memory(&leases.restore_previous_leases().map_err(to_message)?),
        };
        let open = open_reservations(&store).map_err(to_message)?;
        let queue =
            Arc::new(WriteQueue::new(settings.window, tip.map_or(0, |tip| sequence_in_chain(tip.seq))));
        let mut left_open = open.clone();
        let mut journal = open_member_journal(&store, leases.as_ref())?;
        let replayed = take_replayed_actions(journal.as_mut(), &mut left_open, tip);
        if !taken_over {
            push_voids(&queue, &left_open, clock);
        }
        let charges = journal.as_ref().map(|opened| record_replay(&opened.state, &replayed));
        let start = WriterStart { tip, balances, open, journaled: None };
        let threads = start_threads(&store, &queue, start, journal, replayed)?;
        let theirs = if taken_over { left_open } else { OpenReserves::default() };
        let ledger = Self::with_queue(store, balances_now, queue, clock, leases, threads);
        ledger.configure(settings);
        ledger.charge_replayed(charges.unwrap_or_default());
        Ok((Arc::new(ledger), theirs))
    }
}

/// Takes the actions of a journal that continue the chain; `open` is updated to the reservations that are open after
/// these actions.
pub(super) fn take_replayed_actions(
    journal: Option<&mut OpenedJournal>,
    open: &mut OpenReserves,
    tip: Option<LedgerTip>,
) -> Vec<LedgerAction> {
    let pending = journal.map(|opened| std::mem::take(&mut opened.pending)).unwrap_or_default();
    retain_valid_actions(pending, open, tip.map_or(0, |tip| tip.seq))
}

fn balances_in_memory(balances: &[(String, BalanceRecord)]) -> BalanceMap {
    let balances = balances.iter().map(|(account, balance)| {
        (account.as_str().into(), Arc::new(AccountBalance::new(account, balance.credits, balance.energy)))
    });
    balances.collect()
}

/// Queues a void for each open reservation, and logs their number.
pub(super) fn push_voids(queue: &WriteQueue, open: &OpenReserves, clock: ProcessClock) {
    for (request, hold) in open.iter() {
        let act = EntryKind::Void {
            request: request.clone(),
            key: hold.key.clone(),
            wallet: hold.wallet,
            held: hold.amount,
            why: "crash".into(),
            footprint: RequestFootprint::default(),
        };
        let (at, account) = (clock.unix_seconds(), hold.account.clone());
        queue.push(WriteOp::Action(LedgerAction {
            at,
            account,
            act,
            terms: None,
            exposed_eur: 0,
            number: 0,
        }));
    }
    if !open.is_empty() {
        let count = open.len().to_string();
        tracing::info!(name: "reserves_voided", count, why = "crash");
    }
}

/// Computes the usage rollups from the ledger if they are incomplete, for instance after a version without rollups. For
/// a member of a fleet they stay incomplete, because other members may write.
fn complete_rollups(store: &LedgerStore, tip: Option<LedgerTip>) -> Result<Option<LedgerTip>, String> {
    let to_message = |error: StoreError| format!("The ledger cannot be used: {error}.");
    if store.has_complete_rollups().map_err(to_message)? {
        return Ok(tip);
    }
    if store.claim().is_some() {
        tracing::event!(name: "usage_incomplete", Level::ERROR, {});
        return Ok(tip);
    }
    let done = super::rollups::rebuild::rebuild(store).map_err(|failed| failed.to_string())?;
    let (entries, rollups) = (done.entries.to_string(), done.rollups.to_string());
    tracing::info!(name: "usage_rebuilt", entries, rollups);
    store.tip().map_err(to_message)
}

/// Checks the date of the last entry. An entry never has an earlier date than the previous entry: after an entry with a
/// date in the future, all later entries would have future dates too, also on statements and invoices.
fn check_last_date(tip: Option<LedgerTip>, max_lead: Duration, now: u64) -> Result<(), String> {
    if max_lead >= ANY_DATE_LEAD {
        return Ok(());
    }
    let Some(tip) = tip.filter(|tip| tip.at > now.saturating_add(max_lead.as_secs())) else { return Ok(()) };
    Err(format!(
        "The ledger's last entry is of {}, and this machine's clock says {}: set the clock right and start again. If \
         the clock is right and was ahead then, allow it with ledger.ahead = \"366d\"; entries go on with that date until it \
         is reached.",
        format_rfc3339(tip.at),
        format_rfc3339(now)
    ))
}

/// Reads the open reservations of the chain that a store writes: those without an end on the disk.
pub(super) fn open_reservations(store: &LedgerStore) -> Result<OpenReserves, StoreError> {
    let mut open = OpenReserves::default();
    let Some(tip) = store.tip()? else { return Ok(open) };
    let damaged = |what: &str| StoreError::Corrupt { what: what.to_owned() };
    let mut last = HashChain::at_chain_start(store.chain());
    // At least the last block is read, to check that it ends at the tip.
    store.for_each_block(
        tip.first_open.min(tip.seq).max(number_before_chain(store.chain()) + 1) - 1,
        |block| {
            for line in split_lines(&block.text) {
                let (entry, chain) =
                    HashChain::parse_unverified(line).map_err(|_| damaged("an entry of the ledger"))?;
                open.apply_entry(&entry);
                last = chain;
            }
            Ok::<_, StoreError>(())
        },
    )?;
    if (last.seq, last.hash) != (tip.seq, tip.hash) {
        return Err(damaged("the last entry of the ledger is not the one it should be"));
    }
    Ok(open)
}
