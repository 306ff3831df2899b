//! Results of an offer by client: repeated failing requests of one client must not eject the offer for all other
//! clients.
//!
//! While the offer is known to serve other clients, only one failure of an account in the window counts. The offer is
//! known to serve others if, within the last [`MAX_SUCCESS_AGE`], it answered another account successfully, or
//! another key if all failures come from one key. An offer with a single client has no such evidence, so its outage
//! is detected as fast as without this rule. With several clients, an outage is detected when a second account fails,
//! or when the last success of another client is older than [`MAX_SUCCESS_AGE`]. Failures that no request can cause,
//! such as a failed connection, have no client and always count.

use super::window::SLICE_COUNT;
use std::time::Duration;

/// Maximum age of a success of another client that shows that the offer works.
pub(super) const MAX_SUCCESS_AGE: Duration = Duration::from_secs(10);

/// Number of accounts whose failures are recorded separately in a slice of the window. Failures of further accounts
/// are never excluded.
const MAX_ACCOUNTS: usize = 2;

/// Client of an attempt, identified by hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerClient {
    /// Hash of the API key.
    pub key: u64,
    /// Hash of the key's account.
    pub account: u64,
}

/// Clients whose requests failed in a series of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FailedClients {
    #[default]
    Unknown,
    /// All failures come from this account: from this key of it, or from several of its keys if `key` is `None`.
    Single { account: u64, key: Option<u64> },
    /// The failures come from several accounts, or one of the failed requests has no client.
    Multiple,
}

impl FailedClients {
    /// Returns the clients of one failure; a failure without a client counts as failures of several clients.
    pub(super) const fn from_client(client: Option<BreakerClient>) -> Self {
        match client {
            Some(BreakerClient { key, account }) => Self::Single { account, key: Some(key) },
            None => Self::Multiple,
        }
    }

    /// Returns the clients of two series of failures combined.
    pub(super) fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, one) | (one, Self::Unknown) => one,
            (Self::Single { account, key }, Self::Single { account: same, key: other })
                if account == same =>
            {
                Self::Single { account, key: key.filter(|_| key == other) }
            }
            _ => Self::Multiple,
        }
    }
}

/// Hashes of the last two different clients that the offer answered successfully, with the times of their last answers.
#[derive(Clone, Copy, Debug, Default)]
struct RecentClients([Option<(u64, Duration)>; 2]);

impl RecentClients {
    fn record(&mut self, now: Duration, client: u64) {
        let [last, before] = &mut self.0;
        if last.is_some_and(|(known, _)| known != client) {
            *before = *last;
        }
        *last = Some((client, now));
    }

    /// Returns the time of the last success of a client other than `client`.
    fn last_other(&self, client: u64) -> Option<Duration> {
        self.0.iter().flatten().filter(|(known, _)| *known != client).map(|(_, at)| *at).max()
    }
}

/// Failures of one account in one slice of the window.
#[derive(Clone, Copy, Debug)]
struct AccountFailures {
    culprit: FailedClients,
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct FailureSlice {
    number: u64,
    accounts: [Option<AccountFailures>; MAX_ACCOUNTS],
}

/// Recent results of an offer by client. The size is bounded, and the failure counts are allocated only at the first
/// failure.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientHistory {
    good_keys: RecentClients,
    good_accounts: RecentClients,
    failures: Option<Box<[FailureSlice; SLICE_COUNT as usize]>>,
}

impl ClientHistory {
    /// Records that the offer answered a client at `now`.
    pub(super) fn record_success(&mut self, now: Duration, client: BreakerClient) {
        self.good_keys.record(now, client.key);
        self.good_accounts.record(now, client.account);
    }

    /// Counts a failure in the slice of the window with this number.
    pub(super) fn record_failure(&mut self, slice: u64, client: BreakerClient) {
        let slices = self.failures.get_or_insert_default();
        let Some(current) = slices.get_mut(usize::try_from(slice % SLICE_COUNT).unwrap_or(0)) else { return };
        if current.number < slice {
            *current = FailureSlice { number: slice, ..FailureSlice::default() };
        }
        let one = FailedClients::from_client(Some(client));
        for account in &mut current.accounts {
            match account {
                Some(known) if known.culprit.merge(one) != FailedClients::Multiple => {
                    known.culprit = known.culprit.merge(one);
                    known.count = known.count.saturating_add(1);
                    return;
                }
                Some(_) => {}
                None => {
                    *account = Some(AccountFailures { culprit: one, count: 1 });
                    return;
                }
            }
        }
    }

    /// Returns the number of failures in the window that do not count. If the offer serves other clients, these are
    /// all but one of the failures of the account with the most failures.
    pub(super) fn excluded_failure_count(&self, now: Duration, slice: u64) -> u32 {
        let Some(slices) = &self.failures else { return 0 };
        let young = || slices.iter().filter(move |one| slice.saturating_sub(one.number) < SLICE_COUNT);
        let all = || young().flat_map(|one| one.accounts.iter().flatten());
        let sum = |of: &AccountFailures| {
            let same = all().filter(|one| one.culprit.merge(of.culprit) != FailedClients::Multiple);
            same.fold(AccountFailures { culprit: FailedClients::Unknown, count: 0 }, |sum, one| {
                AccountFailures {
                    culprit: sum.culprit.merge(one.culprit),
                    count: sum.count.saturating_add(one.count),
                }
            })
        };
        let most = all().map(sum).max_by_key(|failures| failures.count);
        most.filter(|most| self.has_served_others(now, most.culprit))
            .map_or(0, |most| most.count.saturating_sub(1))
    }

    /// Returns true if the offer recently answered a client other than the single one in `than`.
    pub(super) fn has_served_others(&self, now: Duration, than: FailedClients) -> bool {
        let FailedClients::Single { account, key } = than else { return false };
        let accounts = self.good_accounts.last_other(account);
        let keys = key.and_then(|key| self.good_keys.last_other(key));
        accounts.max(keys).is_some_and(|at| now.saturating_sub(at) <= MAX_SUCCESS_AGE)
    }

    /// Removes the recorded failures of all clients; the recorded successes remain.
    pub(super) fn clear_failures(&mut self) {
        self.failures = None;
    }
}
