//! Cache of all API keys and accounts in memory, so that no request waits for the disk. A changed key or account is
//! used by the next request; a revocation also ends open streams.

pub use super::principal::{CachedAccount, Principal};

use super::principal::KeyState;
use crate::auth::account_json::DEFAULT_ACCOUNT_ID;
use crate::auth::limited_owner::LimitSubject;
use crate::auth::usage_limiter::{UnwrittenSpending, UsageLimiter};
use crate::fleet::FleetMember;
use crate::storage::stores::OpenStorage;
use crate::telemetry::throttle::ThrottledLog;
use crate::time::clock::ProcessClock;
use parking_lot::{Mutex, RwLock};
use penstock_auth::{ApiKey, KeyDigester};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::{KeyLimits, KeyRecord, KeyStore};
use penstock_storage::spend::{SpendAddition, SpendOwner, SpendRecord, SpendStore};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of rows read from the store at once.
const PAGE_ROWS: usize = 1_000;
/// Minimum number of seconds between two writes of the last use of a key.
const LAST_USE_INTERVAL: u64 = 60;
/// Minimum interval between two log lines about spends that could not be written.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

type FastMap<K, V> = HashMap<K, V, ahash::RandomState>;
type FastSet<T> = HashSet<T, ahash::RandomState>;
/// Public id as a map key.
type PublicKeyId = [u8; 16];

/// Cache of all keys and accounts.
pub struct KeyCache {
    principals: RwLock<FastMap<PublicKeyId, Arc<Principal>>>,
    accounts: RwLock<FastMap<Box<str>, Arc<CachedAccount>>>,
    /// Keys whose spend has to be written.
    budgeted_principals: Mutex<Vec<Arc<Principal>>>,
    /// Keys that were used since limits were last shared in a fleet.
    active_principals: Mutex<Vec<Arc<Principal>>>,
    /// Time of the steady clock in milliseconds until which the cached keys may be trusted. After it, another gateway
    /// may have revoked a key without notice.
    valid_until: AtomicU64,
    /// Time for which the cached keys may be trusted after the changes by other gateways were read; `None` without a
    /// limit.
    stale: Option<Duration>,
    digester: KeyDigester,
    clock: ProcessClock,
}

/// Spends of keys and accounts that have to be written, with the state to restore if the write fails.
pub struct SpendDelta {
    due: Vec<Arc<Principal>>,
    rows: Vec<SpendAddition>,
    /// Limiter of each row, with the spending that was taken from it.
    taken: Vec<(LimitSubject, UnwrittenSpending)>,
}

impl KeyCache {
    /// Loads every account and key of the store, with their spends. Creates the default account, and the accounts that
    /// only keys of earlier versions name.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn load(stores: &OpenStorage, clock: ProcessClock) -> Result<Self, String> {
        let to_text = |error: penstock_storage::StoreError| error.to_string();
        let mut spends: HashMap<SpendOwner, SpendRecord, ahash::RandomState> = HashMap::default();
        let keep = |spender, spend| {
            spends.insert(spender, spend);
        };
        stores.spends.for_each(keep).map_err(to_text)?;
        let ring = Self {
            principals: RwLock::default(),
            accounts: RwLock::default(),
            budgeted_principals: Mutex::default(),
            active_principals: Mutex::default(),
            valid_until: AtomicU64::new(u64::MAX),
            stale: stores.fleet.settings().and_then(|settings| settings.stale),
            digester: KeyDigester::new(&stores.pepper.0),
            clock,
        };
        // The keys that are loaded now may be trusted, even if the database becomes unreachable before the first read
        // of changes.
        ring.extend_validity(clock.steady_now());
        let mut after: Option<String> = None;
        loop {
            let page = stores.accounts.list(after.as_deref(), PAGE_ROWS).map_err(to_text)?;
            let mut accounts = ring.accounts.write();
            for record in &page.accounts {
                let spent = spends.get(&SpendOwner::Account(record.id.clone()));
                accounts
                    .insert(record.id.as_str().into(), Arc::new(CachedAccount::from_record(record, spent)));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let written: FastSet<Box<str>> = ring.accounts.read().keys().cloned().collect();
        let mut after: Option<String> = None;
        loop {
            let page = stores.keys.list(None, after.as_deref(), PAGE_ROWS).map_err(to_text)?;
            for record in &page.keys {
                ring.insert_key(record, spends.get(&SpendOwner::Key(record.id.clone())));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ring.account_or_insert(DEFAULT_ACCOUNT_ID);
        ring.persist_implicit_accounts(stores, &written);
        Ok(ring)
    }

    /// Writes the accounts that are in the cache but not in the store: the default account, and accounts that only keys
    /// of earlier versions name. `written` has the accounts of the store. If the store cannot be written now, the start
    /// continues, and the next start tries again.
    fn persist_implicit_accounts(&self, stores: &OpenStorage, written: &FastSet<Box<str>>) {
        let now = self.clock.unix_seconds();
        for id in self.accounts.read().keys().filter(|id| !written.contains(*id)) {
            let account = AccountRecord {
                id: id.to_string(),
                name: id.to_string(),
                created: now,
                state: AccountState::Active,
                limits: KeyLimits::default(),
            };
            let entry = ChangeDescription {
                at: now,
                who: "gateway".to_owned(),
                what: "account.create".to_owned(),
                target: account.id.clone(),
                change: crate::auth::account_json::account_to_json(&account),
            };
            if let Err(error) = stores.accounts.insert(&account, &entry) {
                tracing::error!(name: "account_not_written", account = id, why = %error);
            }
        }
    }

    /// Authenticates a request by its headers; returns the principal of its key. If the headers have several keys, the
    /// first valid one is used.
    ///
    /// # Errors
    /// Returns the same error for every invalid key, so that a client cannot learn why its key is invalid; another
    /// error if no key was sent, or if the cached keys may no longer be trusted.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        api_key: Option<&[u8]>,
    ) -> Result<Arc<Principal>, ApiError> {
        self.check_validity()?;
        let now = self.clock.unix_seconds();
        let mut offered = false;
        for text in penstock_auth::presented_keys(authorization, api_key) {
            offered = true;
            let Ok(key) = ApiKey::parse(text) else { continue };
            // An unknown id takes as long as an invalid secret, so that timing reveals nothing.
            let principal = self.find_principal(key.public_id()).unwrap_or_else(Principal::placeholder);
            let digest = self.digester.digest(&key);
            // The digest of an unknown id never matches.
            if principal.verify_secret(&digest, now) && principal.is_valid_at(now) {
                principal.key_state.last_used.store(now, Ordering::Relaxed);
                return Ok(principal);
            }
        }
        Err(if offered { ApiError::new(ErrorCode::InvalidKey) } else { missing_key() })
    }

    /// Records that the cache has all changes that other gateways had made by `read_at`, a time of the steady clock.
    pub fn extend_validity(&self, read_at: Duration) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let until = self.stale.map_or(u64::MAX, |stale| millis(read_at.saturating_add(stale)));
        self.valid_until.store(until, Ordering::Relaxed);
    }

    /// Returns true if the changes by other gateways were read recently enough to trust the cached keys.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let valid_until = self.valid_until.load(Ordering::Relaxed);
        valid_until == u64::MAX || self.clock.steady_now().as_millis() <= u128::from(valid_until)
    }

    fn check_validity(&self) -> Result<(), ApiError> {
        if self.is_current() {
            return Ok(());
        }
        let message = "The gateway cannot reach its database to check API keys; try again shortly.";
        Err(ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5))
    }

    /// Checks the key of a request that a page of the console sends without the secret of the key, and records the use
    /// of the key.
    ///
    /// # Errors
    /// Returns an error if the key is not valid, or if other gateways may have revoked it.
    pub fn authorize_without_secret(&self, principal: &Principal) -> Result<(), ApiError> {
        self.check_validity()?;
        let now = self.clock.unix_seconds();
        if !principal.is_valid_at(now) {
            return Err(ApiError::new(ErrorCode::InvalidKey));
        }
        principal.key_state.last_used.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the principal of the key with this public id; `None` if the cache does not have it.
    #[must_use]
    pub fn find_principal(&self, public_id: &str) -> Option<Arc<Principal>> {
        let id: PublicKeyId = public_id.as_bytes().try_into().ok()?;
        self.principals.read().get(&id).cloned()
    }

    /// Returns the account with this id; `None` if the cache does not have it.
    #[must_use]
    pub fn account(&self, id: &str) -> Option<Arc<CachedAccount>> {
        self.accounts.read().get(id).cloned()
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.principals.read().len()
    }

    /// Updates a key in the cache that was created, changed or revoked. A revocation ends its open streams.
    pub fn set_key(&self, record: &KeyRecord) {
        self.insert_key(record, None);
    }

    fn insert_key(&self, record: &KeyRecord, spent: Option<&SpendRecord>) {
        let Ok(id) = record.id.as_bytes().try_into() else { return };
        let account = self.account_or_insert(&record.account);
        let mut grants = self.principals.write();
        let known = grants.get(&id).map(|principal: &Arc<Principal>| principal.key_state.clone());
        let live = known.unwrap_or_else(|| {
            let used = record.last_used.unwrap_or(0);
            Arc::new(KeyState {
                limiter: UsageLimiter::new(&record.limits, spent),
                last_used: AtomicU64::new(used),
                last_written_use: AtomicU64::new(used),
                ..KeyState::default()
            })
        });
        live.limiter.replace_limits(&record.limits);
        if record.revoked.is_some() {
            live.revoked.store(true, Ordering::Release);
            live.ended.notify_waiters();
        }
        grants.insert(id, Arc::new(Principal::from_record(record, account, live)));
    }

    /// Returns the account of a key, and adds it to the cache if it is missing: keys of earlier versions may name an
    /// account that was never created.
    fn account_or_insert(&self, id: &str) -> Arc<CachedAccount> {
        if let Some(account) = self.account(id) {
            return account;
        }
        let fresh = || Arc::new(CachedAccount { id: id.into(), ..CachedAccount::default() });
        self.accounts.write().entry(id.into()).or_insert_with(fresh).clone()
    }

    /// Updates an account in the cache that was created, changed, suspended or reactivated. A suspension ends the open
    /// streams of its keys.
    pub fn set_account(&self, record: &AccountRecord) {
        let account = self.account_or_insert(&record.id);
        account.limiter.replace_limits(&record.limits);
        let suspended = record.state == AccountState::Suspended;
        account.suspended.store(suspended, Ordering::Release);
        if suspended {
            account.ended.notify_waiters();
        }
    }

    /// Ends the requests that wait in [`Principal::wait_until_interrupted`] at this moment.
    pub fn interrupt_requests(&self) {
        self.accounts.read().values().for_each(|account| account.ended.notify_waiters());
    }

    /// Marks the spends of a key and of its account, so that the next flush writes them.
    pub fn mark_spend_dirty(&self, principal: &Arc<Principal>) {
        let key = principal.key_state.spend_due.swap(true, Ordering::AcqRel);
        let account = principal.account.spend_due.swap(true, Ordering::AcqRel);
        if !key || !account {
            self.budgeted_principals.lock().push(principal.clone());
        }
    }

    /// Marks a key as used, so that the members of the fleet share the limits of the key and its account. Until they
    /// have shared their usage, this member gets an equal part of each limit.
    pub fn start_limit_sharing(&self, principal: &Arc<Principal>, member: &FleetMember) {
        let active = &principal.key_state.used_since_sync;
        if active.load(Ordering::Acquire) {
            return;
        }
        let members = u32::try_from(member.live_members().len()).unwrap_or(u32::MAX);
        let now = self.clock.calendar_now();
        // The limits are divided before the key is marked as used, because a request that sees the mark may reserve.
        principal.limiter().divide_limits(members, now);
        principal.account.limiter.divide_limits(members, now);
        if !active.swap(true, Ordering::AcqRel) {
            self.active_principals.lock().push(principal.clone());
        }
    }

    /// Removes and returns the keys that were used since the last call.
    pub(super) fn take_active_principals(&self) -> Vec<Arc<Principal>> {
        let active = std::mem::take(&mut *self.active_principals.lock());
        active
            .iter()
            .for_each(|principal| principal.key_state.used_since_sync.store(false, Ordering::Release));
        active
    }

    /// Writes the spends since the last flush; blocks. Returns false if something could not be written; the next flush
    /// then writes it.
    pub fn flush_spends(&self, spends: &SpendStore) -> bool {
        self.write_spends(self.take_spends(), spends)
    }

    /// Removes and returns the spends since the last call. They have to be passed to [`KeyCache::write_spends`].
    #[must_use]
    pub fn take_spends(&self) -> SpendDelta {
        let due = std::mem::take(&mut *self.budgeted_principals.lock());
        let now = self.clock.calendar_now();
        let mut owners: FastMap<SpendOwner, LimitSubject> = HashMap::default();
        for principal in &due {
            // The mark is cleared before the spending is read, so that a later charge sets it again.
            principal.key_state.spend_due.store(false, Ordering::Release);
            principal.account.spend_due.store(false, Ordering::Release);
            let account = LimitSubject::Account(principal.account.clone());
            for owner in [LimitSubject::Key(principal.clone()), account] {
                owners.insert(owner.spend_owner(), owner);
            }
        }
        let (mut rows, mut taken) = (Vec::with_capacity(owners.len()), Vec::with_capacity(owners.len()));
        for (row_owner, owner) in owners {
            let spent = owner.limiter().take_unwritten_spending(now);
            let (spend, from_parts) = (spent.spent, spent.leased.covered);
            rows.push(SpendAddition { owner: row_owner, spend, from_parts });
            taken.push((owner, spent));
        }
        rows.retain(|row| row.spend.day > 0 || row.spend.month > 0 || row.from_parts != (0, 0));
        SpendDelta { due, rows, taken }
    }

    /// Writes the spends in `spent`, and the spends that earlier calls could not write; blocks. Returns false if
    /// something could not be written; the next call then writes it.
    pub fn write_spends(&self, spent: SpendDelta, spends: &SpendStore) -> bool {
        let added = if spent.rows.is_empty() { Ok(()) } else { spends.add(&spent.rows) };
        if added.is_err() {
            spent.taken.iter().for_each(|(owner, taken)| owner.limiter().restore_unwritten_spending(taken));
            spent.due.iter().for_each(|principal| self.mark_spend_dirty(principal));
        }
        let Err(error) = added.and_then(|()| spends.flush()) else { return true };
        // An outage of the store fails one write per second, so the log is throttled.
        static FAILURES: ThrottledLog = ThrottledLog::with_interval(LOG_INTERVAL);
        let why = error.to_string();
        FAILURES.log(Instant::now(), |times| tracing::error!(name: "spending_not_written", why, times));
        false
    }

    /// Writes the last use of each key whose last use is at least a minute later than the written one; blocks.
    pub fn flush_last_uses(&self, keys: &KeyStore) {
        let due: Vec<Arc<Principal>> = {
            let grants = self.principals.read();
            let stale = |principal: &&Arc<Principal>| {
                let live = &principal.key_state;
                live.last_used.load(Ordering::Relaxed)
                    >= live.last_written_use.load(Ordering::Relaxed) + LAST_USE_INTERVAL
            };
            grants.values().filter(stale).cloned().collect()
        };
        for principal in due {
            let used = principal.key_state.last_used.load(Ordering::Relaxed);
            if keys.update_last_use(&principal.public_id, used).is_ok() {
                principal.key_state.last_written_use.store(used, Ordering::Relaxed);
            }
        }
    }
}

fn missing_key() -> ApiError {
    ApiError::with_message(
        ErrorCode::InvalidKey,
        "No API key was sent; send it as Authorization: Bearer, or as x-api-key.",
    )
}

#[cfg(test)]
mod tests;
