//! Sharing of the use of limits between the members of a fleet, once a second.
//!
//! A member reports the keys and accounts that were used within the last [`REPORTED_FOR`], with their totals since they
//! were last left out of a report. Each member subtracts the usage that the others report from its own buckets. It does
//! so also for keys that it does not serve at the moment, since their clients may connect to it next.

use super::key_cache::KeyCache;
use super::limited_owner::LimitedOwner;
use crate::fleet::{KeyUsageReport, MemberReport};
use penstock_limits::{PeerUsage, UsageTotals};
use penstock_storage::StoreError;
use penstock_storage::spend::{SpendOwner, SpendStore};
use std::collections::HashMap;
use std::time::Duration;

/// Time after its last use for which a key is reported. It is longer than an empty bucket takes to refill.
const REPORTED_FOR: Duration = Duration::from_secs(120);

/// Key or account that this member reports.
struct ReportedOwner {
    owner: LimitedOwner,
    /// Totals at the time from which this report counts.
    base: UsageTotals,
    last: UsageTotals,
    /// Time of the steady clock at which the number of requests last changed.
    used_at: Duration,
}

/// Last report of a peer.
struct PeerTotals {
    start: u64,
    keys: HashMap<String, UsageTotals>,
}

/// State of the exchange of limit usage between the members of a fleet.
#[derive(Default)]
pub struct LimitSharing {
    reported: HashMap<String, ReportedOwner>,
    /// Totals of keys when they were left out of the report.
    bases: HashMap<String, UsageTotals>,
    /// Last report of each peer.
    peers: HashMap<u32, PeerTotals>,
    /// True after the members have shared their limits for the first time. A peer that appears later has no earlier
    /// totals.
    has_begun: bool,
}

impl LimitSharing {
    /// Returns the use of all limits that were used recently; `now` is a time of the steady clock.
    pub fn collect_usage(&mut self, cache: &KeyCache, now: Duration) -> Vec<KeyUsageReport> {
        for principal in cache.take_active() {
            let account = LimitedOwner::Account(principal.account.clone());
            for owner in [LimitedOwner::Key(principal), account] {
                let name = owner.name();
                if self.reported.contains_key(&name) || !owner.usage().is_limited() {
                    continue;
                }
                let base = self.bases.remove(&name).unwrap_or_default();
                let reported = ReportedOwner { owner, base, last: base, used_at: now };
                self.reported.insert(name, reported);
            }
        }
        let bases = &mut self.bases;
        self.reported.retain(|name, reported| {
            let totals = reported.owner.usage().usage_totals();
            if totals.wanted_requests != reported.last.wanted_requests {
                reported.used_at = now;
            }
            reported.last = totals;
            let is_recent = totals.in_flight > 0 || now.saturating_sub(reported.used_at) < REPORTED_FOR;
            if !is_recent {
                bases.insert(name.clone(), totals);
            }
            is_recent
        });
        self.reported.iter().map(|(name, reported)| reported.to_report(name)).collect()
    }

    /// Applies the reports of the peers to the limits of this member; `now` is a calendar time.
    pub fn apply_reports(
        &mut self,
        cache: &KeyCache,
        members: usize,
        reports: &[(u32, MemberReport)],
        now: Duration,
    ) {
        // Usage of all peers by key, and the number of peers that reported the key.
        let mut sums: HashMap<&str, (PeerUsage, u32)> = HashMap::new();
        self.peers.retain(|id, _| reports.iter().any(|(peer, _)| peer == id));
        for (peer, report) in reports {
            let fresh = || PeerTotals { start: report.process_number, keys: HashMap::new() };
            let is_known = self.peers.get(peer).is_some_and(|last| last.start == report.process_number);
            let last = self.peers.entry(*peer).or_insert_with(fresh);
            if last.start != report.process_number {
                *last = fresh();
            }
            for key in &report.keys {
                // The parts of members that lease budgets include what their requests reserve.
                let reserved = if report.leases_budgets { 0 } else { key.totals.reserved };
                let totals = UsageTotals { reserved, ..key.totals };
                let before = last.keys.insert(key.owner.clone(), totals);
                // When limits are shared for the first time, the totals of each peer are only the starting point: its
                // usage before this member joined is not counted.
                let before = if is_known || self.has_begun { before } else { Some(totals) };
                let (sum, reporters) = sums.entry(&key.owner).or_default();
                *reporters = reporters.saturating_add(1);
                add_usage(sum, &totals, before);
            }
        }
        self.has_begun = true;
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let complete = |(peers, reporters): (PeerUsage, u32)| PeerUsage {
            members,
            silent: members.saturating_sub(1).saturating_sub(reporters),
            ..peers
        };
        for (name, reported) in &self.reported {
            let peers = sums.remove(name.as_str()).unwrap_or_default();
            reported.owner.usage().apply_peer_usage(&complete(peers), now);
        }
        for (name, peers) in sums {
            if let Some(owner) =
                LimitedOwner::find_by_name(cache, name).filter(|owner| owner.usage().is_limited())
            {
                owner.usage().apply_peer_usage(&complete(peers), now);
            }
        }
    }

    /// Replaces the spending of the reported keys and accounts with budgets by that of all members. Blocks.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn refresh_spends(&self, spends: &SpendStore, now: Duration) -> Result<(), StoreError> {
        let owners: Vec<&LimitedOwner> = self.reported.values().map(|reported| &reported.owner).collect();
        let owners: Vec<&LimitedOwner> =
            owners.into_iter().filter(|owner| owner.usage().has_budget()).collect();
        let names: Vec<SpendOwner> = owners.iter().map(|owner| owner.spend_owner()).collect();
        for (owner, spent) in owners.into_iter().zip(spends.get_many(&names)?) {
            if let Some(spent) = spent {
                owner.usage().replace_written_spend(spent, now);
            }
        }
        Ok(())
    }
}

impl ReportedOwner {
    fn to_report(&self, name: &str) -> KeyUsageReport {
        let (last, base) = (&self.last, &self.base);
        let totals = UsageTotals {
            requests: last.requests.saturating_sub(base.requests),
            tokens: last.tokens.wrapping_sub(base.tokens),
            wanted_requests: last.wanted_requests.saturating_sub(base.wanted_requests),
            wanted_tokens: last.wanted_tokens.saturating_sub(base.wanted_tokens),
            in_flight: last.in_flight,
            reserved: last.reserved,
            allowed: last.allowed,
        };
        KeyUsageReport { owner: name.to_owned(), totals }
    }
}

/// Adds the usage of a peer since its totals were `before`. If the totals are lower than `before`, the peer has started
/// again from zero.
fn add_usage(sum: &mut PeerUsage, totals: &UsageTotals, before: Option<UsageTotals>) {
    let before = before.filter(|before| {
        before.requests <= totals.requests && before.wanted_requests <= totals.wanted_requests
    });
    let before = before.unwrap_or_default();
    let since = |now: u64, then: u64| now.saturating_sub(then);
    sum.requests = sum.requests.saturating_add(since(totals.requests, before.requests));
    sum.tokens = sum.tokens.saturating_add(totals.tokens.wrapping_sub(before.tokens));
    sum.wanted_requests =
        sum.wanted_requests.saturating_add(since(totals.wanted_requests, before.wanted_requests));
    sum.wanted_tokens = sum.wanted_tokens.saturating_add(since(totals.wanted_tokens, before.wanted_tokens));
    sum.in_flight = sum.in_flight.saturating_add(totals.in_flight);
    sum.reserved = sum.reserved.saturating_add(totals.reserved);
    let (allowed, other) = (&mut sum.allowed, &totals.allowed);
    allowed.requests = allowed.requests.saturating_add(other.requests);
    allowed.tokens = allowed.tokens.saturating_add(other.tokens);
    allowed.in_flight = allowed.in_flight.saturating_add(other.in_flight);
}
