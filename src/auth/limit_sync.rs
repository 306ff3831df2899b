//! Sharing of the usage of limits between the members of a fleet, once a second.
//!
//! A member reports the keys and accounts that were used within the last [`REPORTED_FOR`], with the totals of their
//! usage. These totals count from the time at which the key was last left out of a report. Each member subtracts the
//! usage that the other members report from its own token buckets, also for keys that it does not serve at the
//! moment: their clients may connect to it next.

use super::key_cache::KeyCache;
use super::limited_owner::LimitSubject;
use crate::fleet::{KeyUsageReport, MemberReport};
use penstock_limits::{PeerUsage, UsageTotals, receives_remainder, turn_position};
use penstock_storage::StoreError;
use penstock_storage::spend::{SpendOwner, SpendStore};
use std::collections::HashMap;
use std::time::Duration;

/// Time after its last use for which a key is reported. It is longer than an empty bucket takes to refill.
const REPORTED_FOR: Duration = Duration::from_secs(120);
/// Time after its last demand during which a member may receive the remainder of divided limits.
const RECENT_DEMAND: Duration = Duration::from_secs(5);

/// Key or account that this member reports.
struct ReportedOwner {
    owner: LimitSubject,
    /// Totals of this member when the key or account was last left out of the report; zero if it never was. A report
    /// contains only the usage since then.
    base: UsageTotals,
    last: UsageTotals,
    /// Time of the steady clock at which the number of requests last changed.
    used_at: Duration,
    /// Number of wanted requests, admitted and refused, at the last exchange of usage. `demanded_at` is the calendar
    /// time of the last exchange at which the number had grown; `None` if it has never grown.
    wanted_requests: u64,
    demanded_at: Option<Duration>,
}

/// Last report of a peer.
struct PeerTotals {
    /// Number of the process that sent the report ([`MemberReport::process_number`]).
    start: u64,
    /// Time of the report by the peer's clock, Unix seconds.
    at: u64,
    keys: HashMap<String, PeerKey>,
}

/// Last report of a peer about one key or account.
#[derive(Default)]
struct PeerKey {
    totals: UsageTotals,
    demand: PeerDemand,
    /// Calendar time at which a report with demand was last applied; `None` before the first.
    demanded_at: Option<Duration>,
}

/// Demand at a peer between its last two reports.
#[derive(Clone, Copy, Default)]
struct PeerDemand {
    requests: u64,
    tokens: u64,
    refused_requests: u64,
}

/// Usage of all peers of one key or account.
#[derive(Default)]
struct PeerSum {
    usage: PeerUsage,
    /// Number of peers that reported the key or account.
    reporters: u32,
    /// Peers with recent demand.
    demanding: Vec<u32>,
}

/// State of the exchange of limit usage between the members of a fleet.
#[derive(Default)]
pub struct LimitSync {
    reported: HashMap<String, ReportedOwner>,
    /// Totals of each key or account when it was last left out of the report.
    bases: HashMap<String, UsageTotals>,
    /// Last report of each peer.
    peers: HashMap<u32, PeerTotals>,
    /// True after the members have shared their limits for the first time. The totals of a peer that appears later
    /// count in full, because that peer has no earlier usage.
    has_begun: bool,
}

impl LimitSync {
    /// Returns the usage of all keys and accounts with limits that were used recently; `now` is a time of the steady
    /// clock.
    pub fn collect_usage(&mut self, cache: &KeyCache, now: Duration) -> Vec<KeyUsageReport> {
        for principal in cache.take_active_principals() {
            let account = LimitSubject::Account(principal.account.clone());
            for owner in [LimitSubject::Key(principal), account] {
                let name = owner.qualified_id();
                if self.reported.contains_key(&name) || !owner.limiter().is_limited() {
                    continue;
                }
                let base = self.bases.remove(&name).unwrap_or_default();
                let wanted_requests = owner.limiter().usage_totals().wanted_requests;
                let reported = ReportedOwner {
                    owner,
                    base,
                    last: base,
                    used_at: now,
                    wanted_requests,
                    demanded_at: None,
                };
                self.reported.insert(name, reported);
            }
        }
        let bases = &mut self.bases;
        self.reported.retain(|name, reported| {
            let totals = reported.owner.limiter().usage_totals();
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

    /// Applies the reports of the peers to the limits of this member, which has the number `own` in a fleet of
    /// `members`; `now` is a time of the calendar clock.
    pub fn apply_reports(
        &mut self,
        cache: &KeyCache,
        (own, members): (u32, usize),
        reports: &[(u32, MemberReport)],
        now: Duration,
    ) {
        let mut sums = self.sum_reports(reports, now);
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let peers: Vec<u32> = reports.iter().map(|(peer, _)| *peer).collect();
        let complete = |name: &str, sum: &PeerSum, receives_rest: bool| PeerUsage {
            members,
            silent_peers: members.saturating_sub(1).saturating_sub(sum.reporters),
            may_use_remainder: receives_rest,
            position: turn_position(name, own, &peers, now),
            ..sum.usage
        };
        for (name, reported) in &mut self.reported {
            let sum = sums.remove(name.as_str()).unwrap_or_default();
            let receives_rest =
                reported.has_recent_demand(now) && receives_remainder(name, own, &sum.demanding, now);
            reported.owner.limiter().apply_peer_usage(&complete(name, &sum, receives_rest), now);
        }
        for (name, sum) in sums {
            if let Some(owner) =
                LimitSubject::find_by_qualified_id(cache, name).filter(|owner| owner.limiter().is_limited())
            {
                let usage = PeerUsage { is_silent: true, ..complete(name, &sum, false) };
                owner.limiter().apply_peer_usage(&usage, now);
            }
        }
    }

    /// Returns the usage of all peers since the last exchange, by key or account.
    fn sum_reports<'r>(
        &mut self,
        reports: &'r [(u32, MemberReport)],
        now: Duration,
    ) -> HashMap<&'r str, PeerSum> {
        let mut sums: HashMap<&str, PeerSum> = HashMap::new();
        self.peers.retain(|id, _| reports.iter().any(|(peer, _)| peer == id));
        for (peer, report) in reports {
            let fresh = || PeerTotals { start: report.process_number, at: 0, keys: HashMap::new() };
            let is_known = self.peers.get(peer).is_some_and(|last| last.start == report.process_number);
            let last = self.peers.entry(*peer).or_insert_with(fresh);
            if last.start != report.process_number {
                *last = fresh();
            }
            // A report that was applied before is no evidence of new demand.
            let is_new = std::mem::replace(&mut last.at, report.at) != report.at;
            for key in &report.keys {
                // If a peer leases budgets, its leases already include the amounts that its requests reserve.
                let reserved = if report.leases_budgets { 0 } else { key.totals.reserved };
                let totals = UsageTotals { reserved, ..key.totals };
                let is_first = !last.keys.contains_key(&key.owner);
                let known = last.keys.entry(key.owner.clone()).or_default();
                // When limits are shared for the first time, the totals of each peer are only the starting point: its
                // usage before this member joined is not counted.
                if is_first && !is_known && !self.has_begun {
                    known.totals = totals;
                }
                let sum = sums.entry(&key.owner).or_default();
                sum.reporters = sum.reporters.saturating_add(1);
                known.add_report(&mut sum.usage, totals, is_new, now);
                if is_recent(known.demanded_at, now) {
                    sum.demanding.push(*peer);
                }
            }
        }
        self.has_begun = true;
        sums
    }

    /// Reads the spending of all members from the store, for the reported keys and accounts that have budgets, and
    /// counts it in their budgets. Blocks.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn refresh_spends(&self, spends: &SpendStore, now: Duration) -> Result<(), StoreError> {
        let owners: Vec<&LimitSubject> = self.reported.values().map(|reported| &reported.owner).collect();
        let owners: Vec<&LimitSubject> =
            owners.into_iter().filter(|owner| owner.limiter().has_budget()).collect();
        let names: Vec<SpendOwner> = owners.iter().map(|owner| owner.spend_owner()).collect();
        for (owner, spent) in owners.into_iter().zip(spends.get_many(&names)?) {
            if let Some(spent) = spent {
                owner.limiter().replace_written_spend(spent, now);
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
            reserved_tokens: last.reserved_tokens,
            allowed: last.allowed,
        };
        KeyUsageReport { owner: name.to_owned(), totals }
    }

    /// Returns true if this member recently admitted or refused requests of the key or account.
    fn has_recent_demand(&mut self, now: Duration) -> bool {
        let wanted = self.owner.limiter().usage_totals().wanted_requests;
        if std::mem::replace(&mut self.wanted_requests, wanted) != wanted {
            self.demanded_at = Some(now);
        }
        is_recent(self.demanded_at, now)
    }
}

fn is_recent(demanded_at: Option<Duration>, now: Duration) -> bool {
    demanded_at.is_some_and(|demanded_at| now.saturating_sub(demanded_at) < RECENT_DEMAND)
}

impl PeerKey {
    /// Adds the usage of a peer since its last report to a sum. If the totals are lower than those of the last report,
    /// the peer has started again from zero.
    fn add_report(&mut self, sum: &mut PeerUsage, totals: UsageTotals, is_new: bool, now: Duration) {
        let before = std::mem::replace(&mut self.totals, totals);
        let is_continued =
            before.requests <= totals.requests && before.wanted_requests <= totals.wanted_requests;
        let before = if is_continued { before } else { UsageTotals::default() };
        let requests = totals.requests.saturating_sub(before.requests);
        if is_new {
            let wanted_requests = totals.wanted_requests.saturating_sub(before.wanted_requests);
            self.demand = PeerDemand {
                requests: wanted_requests,
                tokens: totals.wanted_tokens.saturating_sub(before.wanted_tokens),
                refused_requests: wanted_requests.saturating_sub(requests),
            };
            if wanted_requests > 0 {
                self.demanded_at = Some(now);
            }
        }
        sum.requests = sum.requests.saturating_add(requests);
        sum.tokens = sum.tokens.saturating_add(totals.tokens.wrapping_sub(before.tokens));
        sum.in_flight = sum.in_flight.saturating_add(totals.in_flight);
        sum.reserved = sum.reserved.saturating_add(totals.reserved);
        sum.reserved_tokens = sum.reserved_tokens.saturating_add(totals.reserved_tokens);
        let (allowed, other) = (&mut sum.allowed, &totals.allowed);
        allowed.requests = allowed.requests.saturating_add(other.requests);
        allowed.tokens = allowed.tokens.saturating_add(other.tokens);
        allowed.in_flight = allowed.in_flight.saturating_add(other.in_flight);
        self.demand.add_to(sum);
    }
}

impl PeerDemand {
    fn add_to(self, sum: &mut PeerUsage) {
        sum.wanted_requests = sum.wanted_requests.saturating_add(self.requests);
        sum.wanted_tokens = sum.wanted_tokens.saturating_add(self.tokens);
        sum.refused_requests = sum.refused_requests.saturating_add(self.refused_requests);
    }
}
