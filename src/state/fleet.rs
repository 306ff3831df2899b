//! Regular work of a fleet member: heartbeats, sharing of limits and leases with the other members, and the changes of
//! keys and accounts that other members made.

use super::AppState;
use crate::auth::change_feed::{ChangeFeed, ChangedRecord};
use crate::auth::limit_sync::LimitSync;
use crate::fleet::{MemberClockMonitor, MemberReport};
use crate::storage::stores::OpenStorage;
use crate::telemetry::fleet_metrics::FleetStatus;
use parking_lot::Mutex;
use penstock_storage::audit::AuditPage;
use penstock_storage::batches::BatchStore;
use penstock_storage::fleet::{FleetError, ObservedFleet};
use penstock_storage::{RowPage, StoreError, StoreHealth};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::Level;

/// Minimum time since the last read of changes for an additional read between two heartbeats. Each heartbeat reads
/// the changes anyway.
const MIN_FEED_AGE: Duration = Duration::from_millis(300);

/// State of this gateway's regular synchronization with its fleet.
pub struct FleetSync {
    feed: Mutex<ChangeFeed>,
    exchange: Mutex<LimitSync>,
    /// Random number that identifies this start of the process.
    start: u64,
    /// Time at which the changes of keys and accounts were last read.
    fed_at: Mutex<Instant>,
    /// Other members whose configuration differs.
    differing: Mutex<BTreeMap<u32, ConfigDifference>>,
    clocks: Mutex<MemberClockMonitor>,
    /// True while heartbeats fail, so that the failure is logged once.
    is_failing: AtomicBool,
    /// True once the audit log no longer has an entry that was read earlier, for example after the restore of an old
    /// backup.
    is_reverted: AtomicBool,
    /// Number of evictions after which the reservations of dead members were voided; `None` before the first time.
    voided_evictions: Mutex<Option<u64>>,
    /// True while the reservations of dead members cannot be voided, so that the failure is logged once.
    is_void_failing: AtomicBool,
}

/// Difference between another member's configuration and this one's.
#[derive(Debug, PartialEq, Eq)]
struct ConfigDifference {
    /// Version of the other member's configuration.
    config: String,
    /// Names of the sections that differ, separated by commas; empty if that member does not report its sections.
    sections: String,
    /// Names of the settings that differ; `None` if they are not known.
    settings: Option<String>,
}

/// Maximum number of settings that one log line names.
const MAX_NAMED_SETTINGS: usize = 12;

/// Returns the names of settings for a log line; `None` without one.
fn list_settings(names: &[&str]) -> Option<String> {
    let (shown, more) = names.split_at(names.len().min(MAX_NAMED_SETTINGS));
    let shown = Some(shown.join(", ")).filter(|shown| !shown.is_empty())?;
    Some(if more.is_empty() { shown } else { format!("{shown}, and {} more", more.len()) })
}

impl FleetSync {
    /// Creates the state of a fleet member; `None` without a fleet. The keys have to be loaded after this call.
    ///
    /// # Errors
    /// Returns a sentence for the operator.
    pub(super) fn new(stores: &OpenStorage) -> Result<Option<Self>, String> {
        if !stores.fleet.has_fleet() {
            return Ok(None);
        }
        let read_at = Instant::now();
        let feed = ChangeFeed::from_last_entry(stores)
            .map_err(|error| format!("The store cannot be read: {error}."))?;
        Ok(Some(Self {
            feed: Mutex::new(feed),
            exchange: Mutex::default(),
            start: rand::random(),
            fed_at: Mutex::new(read_at),
            differing: Mutex::default(),
            clocks: Mutex::default(),
            is_failing: AtomicBool::new(false),
            is_reverted: AtomicBool::new(false),
            voided_evictions: Mutex::new(None),
            is_void_failing: AtomicBool::new(false),
        }))
    }
}

impl AppState {
    /// Applies changes of keys and accounts that other members made, unless a heartbeat has just read them. Blocks.
    pub fn apply_peer_changes(&self) {
        let Some(work) = self.fleet_work.as_ref().filter(|_| !self.is_store_handed_over()) else { return };
        let mut feed = work.feed.lock();
        if work.fed_at.lock().elapsed() < MIN_FEED_AGE {
            return;
        }
        let (read_at, steady) = (Instant::now(), self.clock.steady_now());
        let notify = |change: ChangedRecord<'_>| self.notify_changed(change);
        match feed.apply_new_changes(&self.key_cache, &self.key_write_lock, notify) {
            Ok(_) => self.note_changes_read(work, read_at, steady),
            Err(error) => work.note_feed_error(&error),
        }
    }

    fn notify_changed(&self, change: ChangedRecord<'_>) {
        match change {
            ChangedRecord::Key(id) => self.notify_key_changed(id),
            ChangedRecord::Account(id) => self.notify_account_changed(id),
        }
    }

    fn note_changes_read(&self, work: &FleetSync, read_at: Instant, steady: Duration) {
        *work.fed_at.lock() = read_at;
        self.key_cache.extend_validity(steady);
    }

    /// Reads what other members wrote, in one call of the store, and applies the changes of keys. Returns the
    /// heartbeats and reports of the members, and one page each of unfinished batches and unfinished slices. Blocks.
    fn read_fleet(&self, work: &FleetSync) -> Result<(ObservedFleet, Vec<RowPage>), StoreError> {
        let mut feed = work.feed.lock();
        let (read_at, steady) = (Instant::now(), self.clock.steady_now());
        let [batches, slices] = BatchStore::unfinished_scans();
        let further = [feed.next_row_scan(), batches, slices];
        let mut observed = self.stores.fleet.read_heartbeats(&further)?;
        let mut pages = std::mem::take(&mut observed.further_pages).into_iter();
        let (changes, unfinished) = (pages.next().unwrap_or_default(), pages.collect());
        let notify = |change: ChangedRecord<'_>| self.notify_changed(change);
        // A damaged entry must not stop the heartbeats. Operators notice it by the growing age of the feed.
        let applied = AuditPage::from_rows(&changes)
            .and_then(|page| feed.apply_changes_from(page, &self.key_cache, &self.key_write_lock, notify));
        match applied {
            Ok(_) => self.note_changes_read(work, read_at, steady),
            Err(error) => work.note_feed_error(&error),
        }
        Ok((observed, unfinished))
    }

    /// Runs one heartbeat; called once a second. Writes the spending, then reads and applies the heartbeats and
    /// reports of the other members and the changes of keys. Then writes its own heartbeat and report, voids the
    /// reservations of evicted members, and adjusts the leases. Does nothing without a fleet or after a handover.
    /// Blocks.
    pub fn run_heartbeat_round(&self) {
        let Some(work) = self.fleet_work.as_ref().filter(|_| !self.is_store_handed_over()) else { return };
        let has_written_spends = self.flush_spends();
        match self.sync_limits_with_peers(work) {
            Ok(()) => {
                if work.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::event!(name: "fleet_recovered", Level::INFO, {});
                }
            }
            Err(error) => {
                if !work.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(name: "fleet_unreachable", why = %error);
                }
                return;
            }
        }
        self.ledger.mark_late_draws_uncertain(&self.key_cache);
        self.ledger.adjust_leases(has_written_spends);
    }

    fn sync_limits_with_peers(&self, work: &FleetSync) -> Result<(), FleetError> {
        let member = &self.stores.fleet;
        let now = self.clock.calendar_now();
        let (observed, unfinished) = self.read_fleet(work)?;
        let reports = member.record_heartbeats_and_evict(observed, Instant::now())?;
        let are_known = reports.len() + 1 == member.live_members().len();
        // Slices of a batch are useful only if there are other members to process them.
        let do_others_run_slices =
            are_known && !reports.is_empty() && reports.iter().all(|(_, report)| report.runs_slices);
        self.batches.set_peers_run_slices(do_others_run_slices);
        // The batches of a dead member may now be claimed by live members.
        self.batches.wake_search_if_unclaimed(&unfinished);
        let mut exchange = work.exchange.lock();
        // The reports are applied before the own report is built, because the own report contains the limits that
        // result from them.
        let members = (member.member_number(), member.live_members().len());
        exchange.apply_reports(&self.key_cache, members, &reports, now);
        let shared = &self.config_snapshot().settings.shared;
        let report = MemberReport {
            process_number: work.start,
            at: self.clock.unix_seconds(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_version: shared.all.0.to_string(),
            sections: shared.sections.clone(),
            settings: shared.settings.clone(),
            wanted_pools: self
                .ledger
                .leases()
                .map(|leases| leases.pools_wanted_from_peers())
                .unwrap_or_default(),
            leases_budgets: true,
            runs_slices: true,
            keys: exchange.collect_usage(&self.key_cache, self.clock.steady_now()),
        };
        let returned = self.ledger.leases().map(|leases| leases.mark_returns_sent()).unwrap_or_default();
        let beaten = member.write_heartbeat(&report, returned, Instant::now());
        if matches!(beaten, Err(FleetError::Store(StoreError::Guard { .. }))) {
            self.ledger.cancel_refused_returns();
        }
        beaten?;
        if let Some(leases) = self.ledger.leases() {
            leases.on_returns_accepted();
            let wanted = |(member, report): &(u32, MemberReport)| {
                let member = *member;
                report.wanted_pools.clone().into_iter().map(move |pool| (member, pool))
            };
            leases.set_pools_wanted_by_peers(reports.iter().flat_map(wanted));
        }
        exchange.refresh_spends(&self.stores.spends, now)?;
        drop(exchange);
        work.note_configurations(&report, &reports);
        work.note_clocks(report.at, &reports);
        self.void_abandoned(work);
        Ok(())
    }

    /// Voids the reservations that dead members left open in their chains: after evictions, also if the heartbeat failed
    /// after them, and once after the start, because a process may end between an eviction and the voids. Tries again
    /// with the next heartbeat after a failure.
    fn void_abandoned(&self, work: &FleetSync) {
        let evictions = self.stores.fleet.status(Instant::now()).map_or(0, |figures| figures.evictions);
        let mut voided_evictions = work.voided_evictions.lock();
        if *voided_evictions == Some(evictions) {
            return;
        }
        let has_evicted = evictions > voided_evictions.unwrap_or(0);
        #[cfg(feature = "inject")]
        fail::fail_point!("gateway_evicted", has_evicted, |_| std::process::abort());
        match self.ledger.void_abandoned_reservations() {
            Ok(voided) => {
                if has_evicted || voided > 0 {
                    tracing::warn!(name: "fleet_member_evicted", %voided);
                }
                *voided_evictions = Some(evictions);
                work.is_void_failing.store(false, Ordering::Relaxed);
            }
            Err(why) => {
                if !work.is_void_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(name: "reserves_not_voided", why);
                }
            }
        }
    }

    /// Returns the status of the fleet; `None` without a fleet.
    pub fn fleet_status(&self) -> Option<FleetStatus> {
        let (work, now) = (self.fleet_work.as_ref()?, Instant::now());
        let figures = self.stores.fleet.status(now)?;
        let journal = self.ledger.journal_snapshot();
        Some(FleetStatus {
            members: figures.members,
            may_spend_leases: figures.may_spend_leases,
            evictions: figures.evictions,
            blocking_draws: self.ledger.leases().map_or(0, |leases| leases.total_request_draws()),
            differing: work.differing.lock().len(),
            beat_duration: figures.beat_duration,
            feed_age: now.saturating_duration_since(*work.fed_at.lock()),
            journal_bytes: journal.map_or(0, |journal| journal.bytes),
            journal_failing: journal.is_some_and(|journal| journal.is_failing),
            journal_replayed: journal.map_or(0, |journal| journal.replayed),
        })
    }

    /// Returns the failure after which this process cannot continue and has to be restarted; `None` without such a
    /// failure.
    pub fn forced_restart_reason(&self) -> Option<&'static str> {
        let is_fed = self.fleet_work.as_ref().is_none_or(|work| !work.is_reverted.load(Ordering::Acquire));
        if self.stores.store.health() == StoreHealth::Reverted || !is_fed {
            return Some("the database lacks commits that it had acknowledged");
        }
        // Members of a fleet do not take the store over from each other, so a failed store means that the database no
        // longer accepts this process.
        if self.stores.fleet.has_fleet() && self.stores.store.health() == StoreHealth::Failed {
            return Some("the database does not know this process any more");
        }
        let figures = self.stores.fleet.status(Instant::now());
        let is_evicted = figures.is_some_and(|figures| figures.is_evicted);
        is_evicted.then_some("the other gateways of the fleet took this one for dead")
    }
}

impl FleetSync {
    fn note_feed_error(&self, error: &StoreError) {
        if *error == StoreError::Reverted {
            self.is_reverted.store(true, Ordering::Release);
        }
    }

    /// Logs each member whose clock has begun to differ too much. Budgets and dates depend on the clocks.
    fn note_clocks(&self, own: u64, reports: &[(u32, MemberReport)]) {
        let times = reports.iter().map(|(member, report)| (*member, report.at));
        for (member, seconds) in self.clocks.lock().find_newly_differing(own, times) {
            tracing::warn!(name: "fleet_clock_differs", %member, seconds = seconds.to_string());
        }
    }

    /// Records the members whose configuration differs, and logs each change.
    fn note_configurations(&self, own: &MemberReport, reports: &[(u32, MemberReport)]) {
        let others = reports.iter().filter(|(_, report)| report.config_version != own.config_version);
        let differing: BTreeMap<u32, ConfigDifference> = others
            .map(|(id, report)| {
                let sections = own.differing_sections(report).join(", ");
                let settings = list_settings(&own.differing_settings(report));
                (*id, ConfigDifference { config: report.config_version.clone(), sections, settings })
            })
            .collect();
        let mut known = self.differing.lock();
        if *known == differing {
            return;
        }
        for (member, difference) in &differing {
            let member = member.to_string();
            tracing::warn!(
                name: "fleet_config_differs",
                member = &*member,
                sections = &*difference.sections,
                settings = difference.settings.as_deref(),
                config = &*difference.config,
                own = &*own.config_version,
            );
        }
        *known = differing;
    }
}
