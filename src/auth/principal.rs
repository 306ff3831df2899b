//! Snapshot of the permissions of an API key and its account, which an exchange holds. The snapshot does not change
//! during the exchange, but the key may be revoked, its account suspended, or its budget used up.

use crate::auth::usage_limiter::UsageLimiter;
use penstock_auth::{KeyScope, KeyScopes};
use penstock_core::ApiError;
use penstock_routing::BreakerClient;
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::keys::KeyRecord;
use penstock_storage::spend::SpendRecord;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Key with its account and permissions, as they are at the start of an exchange.
#[derive(Debug)]
pub struct Principal {
    /// Public id, for records.
    pub public_id: Arc<str>,
    /// Account that pays for the requests of the key.
    pub account: Arc<CachedAccount>,
    /// Hash of key and account, by which circuit breakers distinguish clients.
    pub breaker_client: BreakerClient,
    digest: [u8; 32],
    /// Digest of the secret before the last rotation, and the Unix second until which that secret is accepted; `None`
    /// without such a secret.
    previous: Option<Box<([u8; 32], u64)>>,
    scopes: KeyScopes,
    /// Ids of the models that the key may use; `None` for all models.
    models: Option<Box<[Box<str>]>>,
    /// True if responses are stored for requests with `store: true`.
    pub stores_responses: bool,
    /// Time from which the key is no longer valid, in Unix seconds; `None` if it does not expire.
    expires: Option<u64>,
    pub(super) key_state: Arc<KeyState>,
}

/// State of a key that survives changes of the key's record.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) limiter: UsageLimiter,
    pub(super) revoked: AtomicBool,
    pub(super) ended: Notify,
    /// Time of the last use, in Unix seconds; 0 if the key was never used.
    pub(super) last_used: AtomicU64,
    /// Time of the last use that the store has, in Unix seconds; 0 for none.
    pub(super) last_written_use: AtomicU64,
    /// True if the spending of the key has to be written.
    pub(super) spend_due: AtomicBool,
    /// True if the key was used since limits were last shared in a fleet.
    pub(super) used_since_sync: AtomicBool,
}

/// Account in the key cache, with the usage of its limits.
#[derive(Debug, Default)]
pub struct CachedAccount {
    /// Id of the account.
    pub id: Arc<str>,
    /// Limits that its keys share.
    pub limiter: UsageLimiter,
    pub(super) suspended: AtomicBool,
    pub(super) ended: Notify,
    pub(super) spend_due: AtomicBool,
}

impl CachedAccount {
    pub(super) fn from_record(record: &AccountRecord, spent: Option<&SpendRecord>) -> Self {
        Self {
            id: record.id.as_str().into(),
            limiter: UsageLimiter::new(&record.limits, spent),
            suspended: AtomicBool::new(record.state == AccountState::Suspended),
            ..Self::default()
        }
    }
}

/// Returns the hash of a name, constant for the life of the process.
fn hash_name(name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name)
}

impl Principal {
    /// Returns a principal without permissions, for an exchange whose key is not known yet.
    #[must_use]
    pub fn placeholder() -> Arc<Self> {
        static UNAUTHENTICATED: OnceLock<Arc<Principal>> = OnceLock::new();
        UNAUTHENTICATED
            .get_or_init(|| {
                Arc::new(Principal {
                    public_id: "".into(),
                    account: Arc::default(),
                    breaker_client: BreakerClient { key: 0, account: 0 },
                    digest: [0; 32],
                    previous: None,
                    scopes: KeyScopes::default(),
                    models: None,
                    stores_responses: false,
                    expires: None,
                    key_state: Arc::new(KeyState { revoked: AtomicBool::new(true), ..KeyState::default() }),
                })
            })
            .clone()
    }

    pub(super) fn from_record(record: &KeyRecord, account: Arc<CachedAccount>, live: Arc<KeyState>) -> Self {
        let models = record.models.as_ref();
        Self {
            public_id: record.id.as_str().into(),
            breaker_client: BreakerClient { key: hash_name(&record.id), account: hash_name(&account.id) },
            account,
            digest: record.digest.0,
            previous: record.previous.map(|previous| Box::new((previous.digest.0, previous.until))),
            // Scopes that only a later version knows grant nothing.
            scopes: KeyScopes::parse_lenient(record.scopes.iter().map(String::as_str)),
            models: models.map(|models| models.iter().map(|model| model.as_str().into()).collect()),
            stores_responses: record.store_responses,
            expires: record.expires,
            key_state: live,
        }
    }

    /// Returns the limits of the key and their usage.
    #[must_use]
    pub fn limiter(&self) -> &UsageLimiter {
        &self.key_state.limiter
    }

    /// Records a use of the key at this time, in Unix seconds, unless a later one is recorded.
    pub fn record_use(&self, at: u64) {
        self.key_state.last_used.fetch_max(at, Ordering::Relaxed);
    }

    /// Returns the time of the last use in Unix seconds; `None` for a key that was never used.
    #[must_use]
    pub fn last_used(&self) -> Option<u64> {
        Some(self.key_state.last_used.load(Ordering::Relaxed)).filter(|used| *used > 0)
    }

    /// Checks that the key has a scope.
    ///
    /// # Errors
    /// Returns a refusal that names the missing scope.
    pub fn require_scope(&self, scope: KeyScope) -> Result<(), ApiError> {
        self.scopes.require(scope)
    }

    /// Returns true if the key was granted the scope by its name or by a wildcard. A scope that another scope includes
    /// does not count.
    #[must_use]
    pub const fn has_directly_granted_scope(&self, scope: KeyScope) -> bool {
        self.scopes.contains(scope)
    }

    /// Returns true if the key may send requests to models of any kind.
    #[must_use]
    pub const fn allows_inference(&self) -> bool {
        self.scopes.allows_inference()
    }

    /// Returns true if the key has a scope.
    #[must_use]
    pub fn has_scope(&self, scope: KeyScope) -> bool {
        self.scopes.allows(scope)
    }

    /// Returns true if the key may use a model of the catalogue.
    #[must_use]
    pub fn may_use_model(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| **allowed == *model))
    }

    /// Returns true if the key is valid at this time, in Unix seconds: not revoked, not expired, and its account not
    /// suspended.
    #[must_use]
    pub fn is_valid_at(&self, now: u64) -> bool {
        !self.is_revoked_or_suspended() && self.expires.is_none_or(|end| now < end)
    }

    /// Returns true if the key is not revoked but its account is suspended, which may be lifted again.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        let revoked = self.key_state.revoked.load(Ordering::Acquire);
        !revoked && self.account.suspended.load(Ordering::Acquire)
    }

    /// Returns true if the key is revoked or its account suspended.
    #[must_use]
    pub fn is_revoked_or_suspended(&self) -> bool {
        self.key_state.revoked.load(Ordering::Acquire) || self.account.suspended.load(Ordering::Acquire)
    }

    /// Returns true if the digest is that of the secret, or of the previous secret while that is valid; `now` is in
    /// Unix seconds.
    pub(super) fn verify_secret(&self, digest: &[u8; 32], now: u64) -> bool {
        let before = self.previous.as_ref().filter(|previous| now < previous.1);
        let now = penstock_auth::digests_equal(&self.digest, digest);
        before.map_or(now, |previous| now | penstock_auth::digests_equal(&previous.0, digest))
    }

    /// Waits until the requests of this key have to end: it is revoked, its account is suspended, or
    /// [`KeyCache::interrupt_requests`](super::key_cache::KeyCache::interrupt_requests) is called.
    pub async fn wait_until_interrupted(&self) {
        let (key, account) = (self.key_state.ended.notified(), self.account.ended.notified());
        tokio::pin!(key, account);
        key.as_mut().enable();
        account.as_mut().enable();
        if !self.is_revoked_or_suspended() {
            tokio::select! {
                () = key => {}
                () = account => {}
            }
        }
    }
}
