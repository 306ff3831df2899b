//! Permissions of one key and its account, as exchanges hold them. A grant does not change during an exchange, except
//! that its key is revoked, its account suspended, or its limits used up.

use crate::gate::Tally;
use penstock_auth::{Scope, Scopes};
use penstock_contract::Refusal;
use penstock_routing::Client;
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::keys::KeyRecord;
use penstock_storage::spend::SpendRecord;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Permissions of one key, as they were when the exchange began.
#[derive(Debug)]
pub struct Grant {
    /// Public id of the key, for records.
    pub public_id: Arc<str>,
    /// Account that pays for the key.
    pub account: Arc<Account>,
    /// Hashes of key and account, by which breakers distinguish clients.
    pub client: Client,
    digest: [u8; 32],
    /// Digest of the secret before the last rotation, and its expiry.
    previous: Option<Box<([u8; 32], u64)>>,
    scopes: Scopes,
    models: Option<Box<[Box<str>]>>,
    expires: Option<u64>,
    pub(super) live: Arc<Live>,
}

/// State of a key that survives changes of its record.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) tally: Tally,
    pub(super) revoked: AtomicBool,
    pub(super) ended: Notify,
    pub(super) used: AtomicU64,
    pub(super) noted: AtomicU64,
    /// True if the spend has to be written.
    pub(super) spent: AtomicBool,
}

/// Account with its limits and their use.
#[derive(Debug, Default)]
pub struct Account {
    /// Id of the account.
    pub id: Arc<str>,
    /// Limits shared by its keys, and their use.
    pub tally: Tally,
    pub(super) suspended: AtomicBool,
    pub(super) ended: Notify,
    pub(super) spent: AtomicBool,
}

impl Account {
    pub(super) fn of(record: &AccountRecord, spent: Option<&SpendRecord>) -> Self {
        Self {
            id: record.id.as_str().into(),
            tally: Tally::new(&record.limits, spent),
            suspended: AtomicBool::new(record.state == AccountState::Suspended),
            ..Self::default()
        }
    }
}

/// Hashes a name; the result is stable for the life of the process.
fn hash(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}

impl Grant {
    /// Returns a grant that allows nothing, for an exchange whose key is not known yet.
    #[must_use]
    pub fn nobody() -> Arc<Self> {
        static NOBODY: OnceLock<Arc<Grant>> = OnceLock::new();
        NOBODY
            .get_or_init(|| {
                Arc::new(Grant {
                    public_id: "".into(),
                    account: Arc::default(),
                    client: Client { key: 0, account: 0 },
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

    pub(super) fn of(record: &KeyRecord, account: Arc<Account>, live: Arc<Live>) -> Self {
        let models = record.models.as_ref();
        Self {
            public_id: record.id.as_str().into(),
            client: Client { key: hash(&record.id), account: hash(&account.id) },
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

    /// Returns the limits of the key and their use.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.live.tally
    }

    /// Returns the time of the last use, in Unix seconds.
    #[must_use]
    pub fn last_used(&self) -> Option<u64> {
        Some(self.live.used.load(Ordering::Relaxed)).filter(|used| *used > 0)
    }

    /// Checks that the key has a scope.
    ///
    /// # Errors
    /// Returns a refusal that names the missing scope.
    pub fn require(&self, scope: Scope) -> Result<(), Refusal> {
        self.scopes.require(scope)
    }

    /// Returns true if the key has the scope by its own name or by a wildcard, not because another scope includes it.
    #[must_use]
    pub const fn holds(&self, scope: Scope) -> bool {
        self.scopes.holds(scope)
    }

    /// Returns true if the key has a scope.
    #[must_use]
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.allows(scope)
    }

    /// Returns true if the key may use a model of the catalogue.
    #[must_use]
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| **allowed == *model))
    }

    /// Returns true if the key is valid: not revoked, suspended or expired.
    #[must_use]
    pub fn good(&self, now: u64) -> bool {
        !self.stopped() && self.expires.is_none_or(|end| now < end)
    }

    /// Returns true if the account is suspended, which may be temporary.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        let revoked = self.live.revoked.load(Ordering::Acquire);
        !revoked && self.account.suspended.load(Ordering::Acquire)
    }

    fn stopped(&self) -> bool {
        self.live.revoked.load(Ordering::Acquire) || self.account.suspended.load(Ordering::Acquire)
    }

    /// Returns true if the digest is of the current secret, or of the previous one before its expiry.
    pub(super) fn knows(&self, digest: &[u8; 32], now: u64) -> bool {
        let before = self.previous.as_ref().filter(|previous| now < previous.1);
        let now = penstock_auth::verify(&self.digest, digest);
        before.map_or(now, |previous| now | penstock_auth::verify(&previous.0, digest))
    }

    /// Completes when the key is revoked, or its account suspended.
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
