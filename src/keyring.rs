//! Who may ask: every key in memory, so that a request never waits for the
//! disk. A revocation counts from the next request on, and ends open streams.

use crate::clock::Clock;
use crate::vault::{Pepper, Vault};
use parking_lot::RwLock;
use penstock_auth::{Key, Scope, Scopes};
use penstock_contract::{Code, Refusal};
use penstock_storage::keys::{KeyRecord, KeyStore};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Keys read from the store at once.
const PAGE: usize = 1_000;
/// A key's last use is written down when it is older than this, in seconds.
const TOUCH: u64 = 60;

/// What one key may do.
pub struct Grant {
    /// Its public id, for records.
    pub public_id: Arc<str>,
    /// The account it draws on.
    pub account: Arc<str>,
    digest: [u8; 32],
    scopes: Scopes,
    models: Option<Vec<String>>,
    expires: Option<u64>,
    revoked: AtomicBool,
    ended: Notify,
    used: AtomicU64,
    noted: AtomicU64,
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
                    account: "".into(),
                    digest: [0; 32],
                    scopes: Scopes::default(),
                    models: None,
                    expires: None,
                    revoked: AtomicBool::new(true),
                    ended: Notify::new(),
                    used: AtomicU64::new(0),
                    noted: AtomicU64::new(0),
                })
            })
            .clone()
    }

    fn of(record: &KeyRecord) -> Self {
        Self {
            public_id: record.id.as_str().into(),
            account: record.account.as_str().into(),
            digest: record.digest.0,
            // Unknown scopes of a later version allow nothing here.
            scopes: Scopes::lenient(record.scopes.iter().map(String::as_str)),
            models: record.models.clone(),
            expires: record.expires,
            revoked: AtomicBool::new(record.revoked.is_some()),
            ended: Notify::new(),
            used: AtomicU64::new(record.last_used.unwrap_or(0)),
            noted: AtomicU64::new(record.last_used.unwrap_or(0)),
        }
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// The scope that is missing.
    pub fn require(&self, scope: Scope) -> Result<(), Refusal> {
        if self.scopes.allows(scope) {
            return Ok(());
        }
        Err(Refusal::because(
            Code::InsufficientScope,
            format!("This API key lacks the scope {}.", scope.name()),
        )
        .with("required_scope", scope.name()))
    }

    /// Whether the key may use a model of the catalogue.
    #[must_use]
    pub fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }

    /// Whether it is still good.
    #[must_use]
    pub fn good(&self, now: u64) -> bool {
        !self.revoked.load(Ordering::Acquire) && self.expires.is_none_or(|end| now < end)
    }

    /// Ends when the key is revoked.
    pub async fn ended(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.revoked.load(Ordering::Acquire) {
            ended.await;
        }
    }
}

/// All keys.
pub struct Keyring {
    grants: RwLock<HashMap<Box<str>, Arc<Grant>, ahash::RandomState>>,
    pepper: Pepper,
    clock: Clock,
}

impl Keyring {
    /// Reads every key of the store.
    ///
    /// # Errors
    /// What the store says.
    pub fn load(vault: &Vault, clock: Clock) -> Result<Self, String> {
        let mut grants = HashMap::default();
        let mut after: Option<String> = None;
        loop {
            let page = vault.keys.list(None, after.as_deref(), PAGE).map_err(|error| error.to_string())?;
            for record in &page.keys {
                grants.insert(record.id.as_str().into(), Arc::new(Grant::of(record)));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(Self { grants: RwLock::new(grants), pepper: vault.pepper, clock })
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
            let Some(grant) = self.grants.read().get(key.public_id()).cloned() else { continue };
            let digest = penstock_auth::digest(&self.pepper.0, &key);
            if penstock_auth::verify(&digest, &grant.digest) && grant.good(now) {
                grant.used.store(now, Ordering::Relaxed);
                return Ok(grant);
            }
        }
        Err(if offered { Refusal::new(Code::InvalidKey) } else { missing() })
    }

    /// A new key counts from now on.
    pub fn add(&self, record: &KeyRecord) {
        self.grants.write().insert(record.id.as_str().into(), Arc::new(Grant::of(record)));
    }

    /// A revoked key ends now, with all its streams.
    pub fn revoke(&self, public_id: &str) {
        if let Some(grant) = self.grants.read().get(public_id) {
            grant.revoked.store(true, Ordering::Release);
            grant.ended.notify_waiters();
        }
    }

    /// Writes down the last use of keys used since; blocks.
    pub fn note_uses(&self, keys: &KeyStore) {
        let due: Vec<Arc<Grant>> = {
            let grants = self.grants.read();
            let stale = |grant: &&Arc<Grant>| {
                grant.used.load(Ordering::Relaxed) >= grant.noted.load(Ordering::Relaxed) + TOUCH
            };
            grants.values().filter(stale).cloned().collect()
        };
        for grant in due {
            let used = grant.used.load(Ordering::Relaxed);
            if keys.touch(&grant.public_id, used).is_ok() {
                grant.noted.store(used, Ordering::Relaxed);
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
