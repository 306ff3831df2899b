//! What one key may do, and the account it draws on, as exchanges hold them. A grant does not change under an
//! exchange, but that its key is revoked, its account suspended, or what they have is used up.

use crate::auth::key_limiter::Tally;
use penstock_auth::{KeyScope, KeyScopes};
use penstock_contract::Refusal;
use penstock_routing::Client;
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::keys::KeyRecord;
use penstock_storage::spend::SpendRecord;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// What one key may do, as it was when the exchange began.
#[derive(Debug)]
pub struct Grant {
    /// Its public id, for records.
    pub public_id: Arc<str>,
    /// The account it draws on.
    pub account: Arc<Account>,
    /// Both, as breakers tell clients apart.
    pub client: Client,
    digest: [u8; 32],
    /// The secret before the last rotation, and until when it is good.
    previous: Option<Box<([u8; 32], u64)>>,
    scopes: KeyScopes,
    models: Option<Box<[Box<str>]>>,
    expires: Option<u64>,
    pub(super) live: Arc<Live>,
}

/// What stays the same key's through all its changes.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) tally: Tally,
    pub(super) revoked: AtomicBool,
    pub(super) ended: Notify,
    pub(super) used: AtomicU64,
    pub(super) noted: AtomicU64,
    /// Its spend is to be written down.
    pub(super) spent: AtomicBool,
}

/// An account at work.
#[derive(Debug, Default)]
pub struct Account {
    /// Its id.
    pub id: Arc<str>,
    /// What its keys may use up together, and have.
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

/// The same for the same name as long as the process lives.
fn hash(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
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
                    client: Client { key: 0, account: 0 },
                    digest: [0; 32],
                    previous: None,
                    scopes: KeyScopes::default(),
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
            scopes: KeyScopes::parse_lenient(record.scopes.iter().map(String::as_str)),
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
    pub fn require(&self, scope: KeyScope) -> Result<(), Refusal> {
        self.scopes.require(scope)
    }

    /// The key has the scope by its own name or by a wildcard, not because another scope includes it.
    #[must_use]
    pub const fn holds(&self, scope: KeyScope) -> bool {
        self.scopes.contains(scope)
    }

    /// Whether the key has a scope.
    #[must_use]
    pub fn allows(&self, scope: KeyScope) -> bool {
        self.scopes.allows(scope)
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
    pub(super) fn knows(&self, digest: &[u8; 32], now: u64) -> bool {
        let before = self.previous.as_ref().filter(|previous| now < previous.1);
        let now = penstock_auth::digests_equal(&self.digest, digest);
        before.map_or(now, |previous| now | penstock_auth::digests_equal(&previous.0, digest))
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
