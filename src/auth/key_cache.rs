//! Cache of all API keys and accounts in memory, so that no request waits for the disk. A change applies from the next
//! request on; a revocation also ends open streams.

pub use super::principal::{Account, Grant};

use super::principal::Live;
use crate::auth::account_json::DEFAULT;
use crate::auth::key_limiter::Tally;
use crate::storage::stores::{Pepper, Vault};
use crate::telemetry::log;
use crate::time::clock::Clock;
use parking_lot::{Mutex, RwLock};
use penstock_auth::ApiKey;
use penstock_contract::{Code, Refusal};
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::audit::AuditedChange;
use penstock_storage::keys::{KeyLimits, KeyRecord, KeyStore};
use penstock_storage::spend::{SpendOwner, SpendRecord, SpendStore};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of rows read from the store at once.
const PAGE: usize = 1_000;
/// Age in seconds beyond which the last use of a key is written again.
const TOUCH: u64 = 60;

type Map<K, V> = HashMap<K, V, ahash::RandomState>;
/// Public id as a map key.
type Id = [u8; 16];

/// All keys and accounts.
pub struct Keyring {
    grants: RwLock<Map<Id, Arc<Grant>>>,
    accounts: RwLock<Map<Box<str>, Arc<Account>>>,
    /// Keys whose spend has to be written.
    spenders: Mutex<Vec<Arc<Grant>>>,
    pepper: Pepper,
    clock: Clock,
}

/// Spends of keys and accounts, to be written.
pub struct Spent {
    due: Vec<Arc<Grant>>,
    rows: Vec<(SpendOwner, SpendRecord)>,
}

impl Keyring {
    /// Loads every account and key of the store.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn load(vault: &Vault, clock: Clock) -> Result<Self, String> {
        let told = |error: penstock_storage::StoreError| error.to_string();
        let mut spends: HashMap<SpendOwner, SpendRecord, ahash::RandomState> = HashMap::default();
        let keep = |spender, spend| {
            spends.insert(spender, spend);
        };
        vault.spends.for_each(keep).map_err(told)?;
        let ring = Self {
            grants: RwLock::default(),
            accounts: RwLock::default(),
            spenders: Mutex::default(),
            pepper: vault.pepper,
            clock,
        };
        let mut after: Option<String> = None;
        loop {
            let page = vault.accounts.list(after.as_deref(), PAGE).map_err(told)?;
            let mut accounts = ring.accounts.write();
            for record in &page.accounts {
                let spent = spends.get(&SpendOwner::Account(record.id.clone()));
                accounts.insert(record.id.as_str().into(), Arc::new(Account::of(record, spent)));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let written: Vec<Box<str>> = ring.accounts.read().keys().cloned().collect();
        let mut after: Option<String> = None;
        loop {
            let page = vault.keys.list(None, after.as_deref(), PAGE).map_err(told)?;
            for record in &page.keys {
                ring.put(record, spends.get(&SpendOwner::Key(record.id.clone())));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ring.account_of(DEFAULT);
        ring.adopt(vault, &written);
        Ok(ring)
    }

    /// Writes accounts that only keys of earlier versions name. A store that cannot be written now does not prevent the
    /// start: the next start retries.
    fn adopt(&self, vault: &Vault, written: &[Box<str>]) {
        let now = self.clock.unix();
        for id in self.accounts.read().keys().filter(|id| !written.contains(id)) {
            let account = AccountRecord {
                id: id.to_string(),
                name: id.to_string(),
                created: now,
                state: AccountState::Active,
                limits: KeyLimits::default(),
            };
            let said = AuditedChange {
                at: now,
                who: "gateway".to_owned(),
                what: "account.create".to_owned(),
                target: account.id.clone(),
                change: crate::auth::account_json::told(&account),
            };
            if let Err(error) = vault.accounts.insert(&account, &said) {
                log::event(
                    log::error(),
                    "account_not_written",
                    &[("account", id), ("why", &error.to_string())],
                );
            }
        }
    }

    /// Returns the grant of the request's headers. Of several keys the first valid one counts.
    ///
    /// # Errors
    /// Returns an error if none is valid, without the reason.
    pub fn admit(&self, authorization: Option<&[u8]>, api_key: Option<&[u8]>) -> Result<Arc<Grant>, Refusal> {
        let now = self.clock.unix();
        let mut offered = false;
        for text in penstock_auth::presented_keys(authorization, api_key) {
            offered = true;
            let Ok(key) = ApiKey::parse(text) else { continue };
            // An unknown id takes as long as a wrong secret, so that timing reveals nothing.
            let grant = self.grant(key.public_id()).unwrap_or_else(Grant::nobody);
            let digest = penstock_auth::key_digest(&self.pepper.0, &key);
            // The digest of an unknown id never matches.
            if grant.knows(&digest, now) && grant.good(now) {
                grant.live.used.store(now, Ordering::Relaxed);
                return Ok(grant);
            }
        }
        Err(if offered { Refusal::new(Code::InvalidKey) } else { missing() })
    }

    /// Returns the grant of a public id.
    #[must_use]
    pub fn grant(&self, public_id: &str) -> Option<Arc<Grant>> {
        let id: Id = public_id.as_bytes().try_into().ok()?;
        self.grants.read().get(&id).cloned()
    }

    /// Returns the account with this id.
    #[must_use]
    pub fn account(&self, id: &str) -> Option<Arc<Account>> {
        self.accounts.read().get(id).cloned()
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.grants.read().len()
    }

    /// Stores a key that was created, changed or revoked.
    pub fn set_key(&self, record: &KeyRecord) {
        self.put(record, None);
    }

    fn put(&self, record: &KeyRecord, spent: Option<&SpendRecord>) {
        let Ok(id) = record.id.as_bytes().try_into() else { return };
        let account = self.account_of(&record.account);
        let mut grants = self.grants.write();
        let known = grants.get(&id).map(|grant: &Arc<Grant>| grant.live.clone());
        let live = known.unwrap_or_else(|| {
            let used = record.last_used.unwrap_or(0);
            Arc::new(Live {
                tally: Tally::new(&record.limits, spent),
                used: AtomicU64::new(used),
                noted: AtomicU64::new(used),
                ..Live::default()
            })
        });
        live.tally.set(&record.limits);
        if record.revoked.is_some() {
            live.revoked.store(true, Ordering::Release);
            live.ended.notify_waiters();
        }
        grants.insert(id, Arc::new(Grant::of(record, account, live)));
    }

    /// Returns the account that a key names. Keys of earlier versions may name an account that was never created.
    fn account_of(&self, id: &str) -> Arc<Account> {
        if let Some(account) = self.account(id) {
            return account;
        }
        let fresh = || Arc::new(Account { id: id.into(), ..Account::default() });
        self.accounts.write().entry(id.into()).or_insert_with(fresh).clone()
    }

    /// Stores an account that was created, changed, suspended or reactivated.
    pub fn set_account(&self, record: &AccountRecord) {
        let account = self.account_of(&record.id);
        account.tally.set(&record.limits);
        let suspended = record.state == AccountState::Suspended;
        account.suspended.store(suspended, Ordering::Release);
        if suspended {
            account.ended.notify_waiters();
        }
    }

    /// Marks the spend of the key and of its account to be written.
    pub fn charged(&self, grant: &Arc<Grant>) {
        let key = grant.live.spent.swap(true, Ordering::AcqRel);
        let account = grant.account.spent.swap(true, Ordering::AcqRel);
        if !key || !account {
            self.spenders.lock().push(grant.clone());
        }
    }

    /// Writes the spends since the last call; blocks.
    pub fn note_spends(&self, spends: &SpendStore) {
        self.write(self.spent(), spends);
    }

    /// Takes the spends since the last call, to be written.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let due = std::mem::take(&mut *self.spenders.lock());
        let now = self.clock.date();
        let mut rows: Map<SpendOwner, SpendRecord> = HashMap::default();
        for grant in &due {
            // Cleared before the read: a later charge marks it again.
            grant.live.spent.store(false, Ordering::Release);
            grant.account.spent.store(false, Ordering::Release);
            rows.insert(SpendOwner::Key(grant.public_id.to_string()), grant.tally().spent(now));
            rows.insert(SpendOwner::Account(grant.account.id.to_string()), grant.account.tally.spent(now));
        }
        Spent { due, rows: rows.into_iter().collect() }
    }

    /// Writes spends; blocks. Returns false if they could not be written, and marks them again.
    pub fn write(&self, spent: Spent, spends: &SpendStore) -> bool {
        if spent.due.is_empty() {
            return true;
        }
        let Err(error) = spends.put(&spent.rows) else { return true };
        log::event(log::error(), "spends_not_written", &[("why", &error.to_string())]);
        spent.due.iter().for_each(|grant| self.charged(grant));
        false
    }

    /// Writes the last use of keys that were used since the last call; blocks.
    pub fn note_uses(&self, keys: &KeyStore) {
        let due: Vec<Arc<Grant>> = {
            let grants = self.grants.read();
            let stale = |grant: &&Arc<Grant>| {
                let live = &grant.live;
                live.used.load(Ordering::Relaxed) >= live.noted.load(Ordering::Relaxed) + TOUCH
            };
            grants.values().filter(stale).cloned().collect()
        };
        for grant in due {
            let used = grant.live.used.load(Ordering::Relaxed);
            if keys.touch(&grant.public_id, used).is_ok() {
                grant.live.noted.store(used, Ordering::Relaxed);
            }
        }
    }
}

fn missing() -> Refusal {
    Refusal::because(
        Code::InvalidKey,
        "No API key was sent; send it as Authorization: Bearer, or as x-api-key.",
    )
}
