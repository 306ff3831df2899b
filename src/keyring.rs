//! Who may ask: every key and account in memory, so that a request never waits
//! for the disk. A change counts from the next request on; a revocation also
//! ends open streams.

use crate::admin::accounts::DEFAULT;
use crate::clock::Clock;
use crate::gate::Tally;
use crate::observe::log;
use crate::vault::{Pepper, Vault};
use parking_lot::{Mutex, RwLock};
use penstock_auth::{Key, Scope, Scopes};
use penstock_contract::{Code, Refusal};
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::audit::Said;
use penstock_storage::keys::{KeyLimits, KeyRecord, KeyStore};
use penstock_storage::spend::{SpendRecord, SpendStore, Spender};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Rows read from the store at once.
const PAGE: usize = 1_000;
/// A key's last use is written down when it is older than this, in seconds.
const TOUCH: u64 = 60;

type Map<K, V> = HashMap<K, V, ahash::RandomState>;
/// A public id as the map's key.
type Id = [u8; 16];

/// What one key may do, as it was when the exchange began.
#[derive(Debug)]
pub struct Grant {
    /// Its public id, for records.
    pub public_id: Arc<str>,
    /// The account it draws on.
    pub account: Arc<Account>,
    digest: [u8; 32],
    /// The secret before the last rotation, and until when it is good.
    previous: Option<Box<([u8; 32], u64)>>,
    scopes: Scopes,
    models: Option<Box<[Box<str>]>>,
    expires: Option<u64>,
    live: Arc<Live>,
}

/// What stays the same key's through all its changes.
#[derive(Debug, Default)]
struct Live {
    tally: Tally,
    revoked: AtomicBool,
    ended: Notify,
    used: AtomicU64,
    noted: AtomicU64,
    /// Its spend is to be written down.
    spent: AtomicBool,
}

/// An account at work.
#[derive(Debug, Default)]
pub struct Account {
    /// Its id.
    pub id: Arc<str>,
    /// What its keys may use up together, and have.
    pub tally: Tally,
    suspended: AtomicBool,
    ended: Notify,
    spent: AtomicBool,
}

impl Account {
    fn of(record: &AccountRecord, spent: Option<&SpendRecord>) -> Self {
        Self {
            id: record.id.as_str().into(),
            tally: Tally::new(&record.limits, spent),
            suspended: AtomicBool::new(record.state == AccountState::Suspended),
            ..Self::default()
        }
    }
}

impl Grant {
    /// A grant that allows nothing, for an exchange whose key is not known yet.
    #[must_use]
    pub fn nobody() -> Arc<Self> {
        static NOBODY: OnceLock<Arc<Grant>> = OnceLock::new();
        NOBODY
            .get_or_init(|| {
                Arc::new(Grant {
                    public_id: "".into(),
                    account: Arc::default(),
                    digest: [0; 32],
                    previous: None,
                    scopes: Scopes::default(),
                    models: None,
                    expires: None,
                    live: Arc::new(Live { revoked: AtomicBool::new(true), ..Live::default() }),
                })
            })
            .clone()
    }

    fn of(record: &KeyRecord, account: Arc<Account>, live: Arc<Live>) -> Self {
        let models = record.models.as_ref();
        Self {
            public_id: record.id.as_str().into(),
            account,
            digest: record.digest.0,
            previous: record.previous.map(|previous| Box::new((previous.digest.0, previous.until))),
            // Unknown scopes of a later version allow nothing here.
            scopes: Scopes::lenient(record.scopes.iter().map(String::as_str)),
            models: models.map(|models| models.iter().map(|model| model.as_str().into()).collect()),
            expires: record.expires,
            live,
        }
    }

    /// Its limits and their use.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.live.tally
    }

    /// When it was last used, Unix seconds.
    #[must_use]
    pub fn last_used(&self) -> Option<u64> {
        Some(self.live.used.load(Ordering::Relaxed)).filter(|used| *used > 0)
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// The scope that is missing.
    pub fn require(&self, scope: Scope) -> Result<(), Refusal> {
        self.scopes.require(scope)
    }

    /// Whether the key may use a model of the catalogue.
    #[must_use]
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| **allowed == *model))
    }

    /// Whether it is still good.
    #[must_use]
    pub fn good(&self, now: u64) -> bool {
        !self.stopped() && self.expires.is_none_or(|end| now < end)
    }

    /// Whether its account is suspended, which may pass.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        let revoked = self.live.revoked.load(Ordering::Acquire);
        !revoked && self.account.suspended.load(Ordering::Acquire)
    }

    fn stopped(&self) -> bool {
        self.live.revoked.load(Ordering::Acquire) || self.account.suspended.load(Ordering::Acquire)
    }

    /// Whether this is its secret, or the one before while that is good.
    fn knows(&self, digest: &[u8; 32], now: u64) -> bool {
        let before = self.previous.as_ref().filter(|previous| now < previous.1);
        let now = penstock_auth::verify(&self.digest, digest);
        before.map_or(now, |previous| now | penstock_auth::verify(&previous.0, digest))
    }

    /// Ends when the key is revoked, or its account suspended.
    pub async fn ended(&self) {
        let (key, account) = (self.live.ended.notified(), self.account.ended.notified());
        tokio::pin!(key, account);
        key.as_mut().enable();
        account.as_mut().enable();
        if !self.stopped() {
            tokio::select! {
                () = key => {}
                () = account => {}
            }
        }
    }
}

/// All keys and accounts.
pub struct Keyring {
    grants: RwLock<Map<Id, Arc<Grant>>>,
    accounts: RwLock<Map<Box<str>, Arc<Account>>>,
    /// Keys whose spend is to be written down.
    spenders: Mutex<Vec<Arc<Grant>>>,
    pepper: Pepper,
    clock: Clock,
}

impl Keyring {
    /// Reads every account and every key of the store.
    ///
    /// # Errors
    /// What the store says.
    pub fn load(vault: &Vault, clock: Clock) -> Result<Self, String> {
        let told = |error: penstock_storage::StoreError| error.to_string();
        let mut spends: HashMap<Spender, SpendRecord, ahash::RandomState> = HashMap::default();
        let keep = |spender, spend| {
            spends.insert(spender, spend);
        };
        vault.spends.each(keep).map_err(told)?;
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
                let spent = spends.get(&Spender::Account(record.id.clone()));
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
                ring.put(record, spends.get(&Spender::Key(record.id.clone())));
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

    /// Writes down the accounts that only keys of earlier versions name. A store that cannot be written to
    /// now is no reason not to start: the next start does it.
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
            let said = Said {
                at: now,
                who: "gateway".to_owned(),
                what: "account.create".to_owned(),
                target: account.id.clone(),
                change: crate::admin::accounts::told(&account),
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

    /// The grant of a request's headers. Of several keys the first good one counts.
    ///
    /// # Errors
    /// None of them is good; which way is not told.
    pub fn admit(&self, authorization: Option<&[u8]>, api_key: Option<&[u8]>) -> Result<Arc<Grant>, Refusal> {
        let now = self.clock.unix();
        let mut offered = false;
        for text in penstock_auth::presented(authorization, api_key) {
            offered = true;
            let Ok(key) = Key::parse(text) else { continue };
            // An id that nobody has takes as long as a wrong secret: who guesses learns nothing by the clock.
            let grant = self.grant(key.public_id()).unwrap_or_else(Grant::nobody);
            let digest = penstock_auth::digest(&self.pepper.0, &key);
            // Nobody is never good.
            if grant.knows(&digest, now) && grant.good(now) {
                grant.live.used.store(now, Ordering::Relaxed);
                return Ok(grant);
            }
        }
        Err(if offered { Refusal::new(Code::InvalidKey) } else { missing() })
    }

    /// The grant of a public id.
    #[must_use]
    pub fn grant(&self, public_id: &str) -> Option<Arc<Grant>> {
        let id: Id = public_id.as_bytes().try_into().ok()?;
        self.grants.read().get(&id).cloned()
    }

    /// The account of an id.
    #[must_use]
    pub fn account(&self, id: &str) -> Option<Arc<Account>> {
        self.accounts.read().get(id).cloned()
    }

    /// How many keys there are.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.grants.read().len()
    }

    /// A key as it is from now on: new, changed or revoked.
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

    /// The account that a key names. Keys of earlier versions may name one that was never made.
    fn account_of(&self, id: &str) -> Arc<Account> {
        if let Some(account) = self.account(id) {
            return account;
        }
        let fresh = || Arc::new(Account { id: id.into(), ..Account::default() });
        self.accounts.write().entry(id.into()).or_insert_with(fresh).clone()
    }

    /// An account as it is from now on: new, changed, suspended or active again.
    pub fn set_account(&self, record: &AccountRecord) {
        let account = self.account_of(&record.id);
        account.tally.set(&record.limits);
        let suspended = record.state == AccountState::Suspended;
        account.suspended.store(suspended, Ordering::Release);
        if suspended {
            account.ended.notify_waiters();
        }
    }

    /// Money was charged: the spend of the key and its account is to be written down.
    pub fn charged(&self, grant: &Arc<Grant>) {
        let key = grant.live.spent.swap(true, Ordering::AcqRel);
        let account = grant.account.spent.swap(true, Ordering::AcqRel);
        if !key || !account {
            self.spenders.lock().push(grant.clone());
        }
    }

    /// Writes down what was spent since; blocks. A spend that could not be written is tried again.
    pub fn note_spends(&self, spends: &SpendStore) {
        let due = std::mem::take(&mut *self.spenders.lock());
        if due.is_empty() {
            return;
        }
        let now = self.clock.now();
        let mut rows: Map<Spender, SpendRecord> = HashMap::default();
        for grant in &due {
            // Before looking: what comes after is due again.
            grant.live.spent.store(false, Ordering::Release);
            grant.account.spent.store(false, Ordering::Release);
            rows.insert(Spender::Key(grant.public_id.to_string()), grant.tally().spent(now));
            rows.insert(Spender::Account(grant.account.id.to_string()), grant.account.tally.spent(now));
        }
        let rows: Vec<(Spender, SpendRecord)> = rows.into_iter().collect();
        if let Err(error) = spends.put(&rows) {
            log::event(log::error(), "spends_not_written", &[("why", &error.to_string())]);
            due.iter().for_each(|grant| self.charged(grant));
        }
    }

    /// Writes down the last use of keys used since; blocks.
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
