//! Membership of this process in a fleet: several gateways that share a database.
//!
//! Each member increments its beat in the store every second. Two timeouts decide on the state of another member; each
//! is measured with the monotonic clock of the observing member:
//! - after `fleet.claim` without a beat it is no longer in [`FleetMember::live_members`]: others take over
//!   its batches, whose rows carry fences of their own;
//! - after `fleet.lease` without a beat it is evicted: its credits return to their pools, and nothing that it still
//!   commits is accepted. A member that cannot reach the database therefore serves from its leases until then.
//!
//! After the end of a process, the next one that uses its folder continues its membership. So its leases and its
//! ledger chain are available at once.

mod clock_check;
mod join;
mod report;
mod startup_heartbeat;

use crate::config::settings::FleetSettings;
pub use clock_check::MemberClockMonitor;
use join::IdentityFile;
use parking_lot::Mutex;
use penstock_storage::fleet::{
    BudgetDraw, BudgetPoolId, BudgetRequest, Fleet, FleetError, HeartbeatReport, Incarnation, LeaseTerm,
    ObservedFleet, PeerIncarnation, PeerWatch, PoolAmount, PoolRequest, SharedFleet,
};
use penstock_storage::ledger::RowFence;
use penstock_storage::{RowScan, StoreError, Transaction};
pub use report::{KeyUsageReport, MemberReport};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Membership of this process in its fleet.
#[derive(Debug)]
pub struct FleetMember(Option<SharedMember>);

/// Membership in a fleet of several gateways.
#[derive(Debug)]
struct SharedMember {
    fleet: SharedFleet,
    /// Zero point of the times in `observed` and `term`.
    start: Instant,
    /// Number that identifies this member in the fleet.
    id: u32,
    name: String,
    settings: FleetSettings,
    /// Folder of the ledger's journal. The processes that use the storage folder one after the other share this
    /// journal.
    journal: std::path::PathBuf,
    incarnation: Mutex<Incarnation>,
    /// Numbers of the live members in ascending order.
    live: Mutex<Arc<[u32]>>,
    observed: Mutex<ObservedPeers>,
    term: Mutex<LeaseTerm>,
    evicted: AtomicBool,
    /// True once the background tasks send the heartbeats.
    has_reported: AtomicBool,
    evictions: AtomicU64,
    /// Duration of the last beat in microseconds.
    beat_micros: AtomicU64,
}

/// Heartbeats of the other members, as this member has read them.
#[derive(Debug)]
struct ObservedPeers {
    claims: PeerWatch,
    leases: PeerWatch,
}

/// Figures of this gateway's membership in the fleet, for metrics, status pages and the detection of evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipStatus {
    /// Number of live members, this one included.
    pub members: usize,
    /// True if this member may spend its leases.
    pub may_spend_leases: bool,
    /// True if other members evicted this one.
    pub is_evicted: bool,
    /// Number of members that this one evicted.
    pub evictions: u64,
    /// Time that the last heartbeat took.
    pub beat_duration: Duration,
}

impl FleetMember {
    /// Creates the membership of a gateway without a fleet, which does not share its store.
    #[must_use]
    pub fn without_fleet() -> Arc<Self> {
        Arc::new(Self(None))
    }

    /// Joins the fleet of a store, or continues the membership of the previous process of the folder `identity`. Waits
    /// while another member fills the pools. Blocks.
    ///
    /// # Errors
    /// Returns the error of the store, or that of the identity file as text.
    pub fn join(
        fleet: SharedFleet,
        settings: &FleetSettings,
        identity: &std::path::Path,
    ) -> Result<Arc<Self>, String> {
        let start = Instant::now();
        let name = settings.name.clone().unwrap_or_else(join::process_name);
        let mut file = IdentityFile::open(identity)?;
        let mut incarnation = join::join(&fleet, &mut file, &name)?;
        join::fill_or_await_pools(&fleet, &mut incarnation, settings.claim)?;
        let mut term = LeaseTerm::new(settings.lease);
        term.renew(Duration::ZERO);
        let member = SharedMember {
            fleet,
            start,
            id: incarnation.id,
            name,
            settings: settings.clone(),
            journal: identity.with_extension("journal"),
            incarnation: Mutex::new(incarnation),
            live: Mutex::new(Arc::from([incarnation.id])),
            observed: Mutex::new(ObservedPeers {
                claims: PeerWatch::new(settings.claim),
                leases: PeerWatch::new(settings.lease),
            }),
            term: Mutex::new(term),
            evicted: AtomicBool::new(false),
            has_reported: AtomicBool::new(false),
            evictions: AtomicU64::new(0),
            beat_micros: AtomicU64::new(0),
        };
        let member = Arc::new(Self(Some(member)));
        member
            .refresh_members(Instant::now())
            .map_err(|error| format!("The fleet cannot be joined: {error}."))?;
        Ok(member)
    }

    /// Returns true if other gateways may use the same store.
    #[must_use]
    pub const fn has_fleet(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the number of this member; 0 without a fleet.
    #[must_use]
    pub fn member_number(&self) -> u32 {
        self.0.as_ref().map_or(0, |member| member.id)
    }

    /// Returns the settings of the fleet; `None` without a fleet.
    #[must_use]
    pub fn settings(&self) -> Option<&FleetSettings> {
        self.0.as_ref().map(|member| &member.settings)
    }

    /// Returns the folder of the ledger's journal; `None` without a fleet.
    #[must_use]
    pub fn ledger_journal_folder(&self) -> Option<&std::path::Path> {
        self.0.as_ref().map(|member| member.journal.as_path())
    }

    /// Returns the condition that every commit of a member has to include: a row that exists until the member is
    /// evicted. Returns `None` without a fleet.
    #[must_use]
    pub fn commit_fence(&self) -> Option<RowFence> {
        let member = self.0.as_ref()?;
        let (table, key) = SharedFleet::liveness_row(member.id);
        Some(RowFence { table, key, value: Some(member.name.clone().into_bytes()) })
    }

    /// Returns the live members in ascending order, including this one; `[0]` without a fleet. A member that is not in
    /// the list may still write until it is evicted. So a process that takes over its work has to protect its commits
    /// with a fence of its own.
    #[must_use]
    pub fn live_members(&self) -> Arc<[u32]> {
        self.0.as_ref().map_or_else(|| Arc::from([0]), |member| member.live.lock().clone())
    }

    /// Returns true if this member does the work that only one member of a fleet does, such as the sweep of expired
    /// files; always true without a fleet.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0.as_ref().is_none_or(|member| member.live.lock().first() == Some(&member.id))
    }

    /// Returns true if this member may spend its leases at `now`; always true without a fleet.
    #[must_use]
    pub fn may_spend_leases(&self, now: Instant) -> bool {
        let Some(member) = &self.0 else { return true };
        !member.evicted.load(Ordering::Acquire) && member.term.lock().is_valid(member.elapsed(now))
    }

    /// Returns the figures of the membership; `None` without a fleet.
    #[must_use]
    pub fn status(&self, now: Instant) -> Option<MembershipStatus> {
        let member = self.0.as_ref()?;
        Some(MembershipStatus {
            members: member.live.lock().len(),
            may_spend_leases: self.may_spend_leases(now),
            is_evicted: member.evicted.load(Ordering::Acquire),
            evictions: member.evictions.load(Ordering::Relaxed),
            beat_duration: Duration::from_micros(member.beat_micros.load(Ordering::Relaxed)),
        })
    }

    /// Increments the beat, replaces the report to the other members, and returns amounts to their pools, all in one
    /// transaction. `sent` is the time just before this call. Does nothing without a fleet. Blocks.
    ///
    /// # Errors
    /// Returns the error of an eviction by other members, which is final, and the errors of the store.
    pub fn write_heartbeat(
        &self,
        report: &MemberReport,
        returned: Vec<PoolAmount>,
        sent: Instant,
    ) -> Result<(), FleetError> {
        let Some(member) = &self.0 else { return Ok(()) };
        member.has_reported.store(true, Ordering::Release);
        let with = SharedFleet::peer_report_operations(member.id, report.to_rows());
        let result = member.heartbeat(HeartbeatReport { spent: Vec::new(), returned, with });
        let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
        member.beat_micros.store(micros, Ordering::Relaxed);
        match &result {
            Ok(()) => member.term.lock().renew(member.elapsed(sent)),
            Err(FleetError::Evicted) => member.evicted.store(true, Ordering::Release),
            Err(FleetError::Store(_)) => member.observed.lock().reset(),
        }
        result
    }

    /// Reads the beats and reports of all members. The same call to the store also reads the pages of the scans in
    /// `further`. Returns nothing without a fleet. Blocks.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub fn read_heartbeats(&self, further: &[RowScan]) -> Result<ObservedFleet, StoreError> {
        let Some(member) = &self.0 else { return Ok(ObservedFleet::default()) };
        let observed = member.fleet.read_incarnations(further);
        if observed.is_err() {
            member.observed.lock().reset();
        }
        observed
    }

    /// Reads and records the heartbeats of the members at `now`, see [`FleetMember::read_heartbeats`] and
    /// [`FleetMember::record_heartbeats_and_evict`]. Blocks.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub fn refresh_members(&self, now: Instant) -> Result<Vec<(u32, MemberReport)>, StoreError> {
        self.record_heartbeats_and_evict(self.read_heartbeats(&[])?, now)
    }

    /// Records the beats that were read at `now`, evicts the members that are dead, and returns the numbers and reports
    /// of the other live members. Returns nothing without a fleet. Blocks.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub fn record_heartbeats_and_evict(
        &self,
        observed: ObservedFleet,
        now: Instant,
    ) -> Result<Vec<(u32, MemberReport)>, StoreError> {
        let Some(member) = &self.0 else { return Ok(Vec::new()) };
        let (live, dead) = member.sort_peers(&observed.peers, member.elapsed(now));
        *member.live.lock() = live.clone();
        for peer in dead {
            #[cfg(feature = "inject")]
            fail::fail_point!("eviction_due", |_| std::process::abort());
            if member.fleet.evict(&peer).map_err(store_error)? {
                member.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        let is_other = |incarnation: u32| incarnation != member.id && live.contains(&incarnation);
        let others = observed.reports.into_iter().filter(|report| is_other(report.incarnation));
        let parsed = others.map(|stored| (stored.incarnation, MemberReport::from_rows(&stored.rows)));
        Ok(parsed.filter_map(|(id, report)| Some((id, report?))).collect())
    }

    /// Draws an amount from a pool for this member; returns 0 if the pool is empty. Without a fleet, grants the wanted
    /// amount. Blocks.
    ///
    /// # Errors
    /// Same as [`FleetMember::write_heartbeat`].
    pub fn draw_from_pool(&self, request: &PoolRequest) -> Result<i64, FleetError> {
        let Some(member) = &self.0 else { return Ok(request.wanted.max(0)) };
        member.record_eviction(member.fleet.draw_from_pool(member.incarnation(), request))
    }

    /// Draws an amount from a budget for this member. Without a fleet, grants the wanted amount. Blocks.
    ///
    /// # Errors
    /// Same as [`FleetMember::write_heartbeat`].
    pub fn draw_from_budget(&self, request: &BudgetRequest) -> Result<BudgetDraw, FleetError> {
        let Some(member) = &self.0 else {
            let (drawn, rest) = (request.wanted.max(0), request.limit);
            return Ok(BudgetDraw { drawn, unspent: request.limit, rest });
        };
        member.record_eviction(member.fleet.draw_from_budget(member.incarnation(), request))
    }

    /// Returns one value for each budget (its pool and its limit in micro-credits), in the same order: true if the
    /// leases of all members exceed the unspent part of the budget at `at` (Unix seconds). Blocks.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub fn are_budgets_overleased(
        &self,
        budgets: &[(BudgetPoolId, i64)],
        at: u64,
    ) -> Result<Vec<bool>, StoreError> {
        let Some(member) = &self.0 else { return Ok(vec![false; budgets.len()]) };
        member.fleet.are_overleased(budgets, at)
    }

    /// Returns the amounts that this member has leased. Blocks.
    ///
    /// # Errors
    /// Returns the errors of the store.
    pub fn leased_amounts(&self) -> Result<Vec<PoolAmount>, StoreError> {
        let Some(member) = &self.0 else { return Ok(Vec::new()) };
        member.fleet.pool_parts(member.incarnation()).map_err(store_error)
    }

    /// Ends the membership, so that the leases return to their pools at once. Blocks.
    pub fn leave_fleet(&self) {
        let Some(member) = &self.0 else { return };
        let Incarnation { id, beat } = *member.incarnation.lock();
        member.evicted.store(true, Ordering::Release);
        // If the call fails, the other members evict this member after `fleet.lease`.
        member.fleet.evict(&PeerIncarnation { id, beat, name: Some(member.name.clone()) }).ok();
    }
}

impl ObservedPeers {
    /// Removes all recorded beats, because the connection to the store was lost.
    fn reset(&mut self) {
        self.claims.reset();
        self.leases.reset();
    }
}

impl SharedMember {
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    fn incarnation(&self) -> Incarnation {
        *self.incarnation.lock()
    }

    /// Records that other members evicted this one, if the error of a draw reports it.
    fn record_eviction<T>(&self, drawn: Result<T, FleetError>) -> Result<T, FleetError> {
        if matches!(drawn, Err(FleetError::Evicted)) {
            self.evicted.store(true, Ordering::Release);
        }
        drawn
    }

    fn heartbeat(&self, report: HeartbeatReport) -> Result<(), FleetError> {
        let mut incarnation = self.incarnation.lock();
        *incarnation = self.fleet.heartbeat(*incarnation, &report)?;
        Ok(())
    }

    /// Returns the live members, and the dead members that have to be evicted.
    fn sort_peers(&self, peers: &[PeerIncarnation], now: Duration) -> (Arc<[u32]>, Vec<PeerIncarnation>) {
        let mut observed = self.observed.lock();
        let silent = observed.claims.observe_and_find_dead(self.id, peers, now);
        let dead = observed.leases.observe_and_find_dead(self.id, peers, now);
        let is_silent = |peer: &PeerIncarnation| silent.iter().any(|silent| silent.id == peer.id);
        let live = peers.iter().filter(|peer| peer.name.is_some() && !is_silent(peer));
        let mut live: Vec<u32> = live.map(|peer| peer.id).collect();
        // A member that was evicted meanwhile is not added.
        if !self.evicted.load(Ordering::Acquire) && !live.contains(&self.id) {
            live.push(self.id);
        }
        live.sort_unstable();
        (live.into(), dead)
    }
}

/// Returns the operations that give the amounts of a grant or a correction to their pools.
#[must_use]
pub fn pool_credit_operations(changes: &[PoolAmount]) -> Transaction {
    changes.iter().fold(Transaction::new(), |batch, change| {
        batch.append_operations(SharedFleet::credit_pool_operations(change))
    })
}

fn store_error(error: FleetError) -> StoreError {
    match error {
        FleetError::Store(error) => error,
        // The eviction of this member is reported by heartbeats and draws only, so no other call returns this error.
        FleetError::Evicted => StoreError::Guard { step: 0 },
    }
}

#[cfg(test)]
mod tests;
