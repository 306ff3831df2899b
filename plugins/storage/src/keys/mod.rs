//! API keys in a store: one row by public id, and an empty row that lists it under its account, written
//! together.

mod record;

use std::sync::Arc;

pub use self::record::{KeyDigest, KeyLimits, KeyRecord, Previous};
use crate::audit::{AuditLog, Said};
use crate::versioned::{self, Changed};
use crate::{Batch, Space, Store, StoreError};

/// Length of a public id.
pub const ID_LENGTH: usize = 16;
const WHAT: &str = "a key";

/// What a revocation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The key was good and is revoked now.
    Revoked,
    /// The key was revoked before; its first time of revocation stays.
    Already,
    /// There is no such key.
    Unknown,
}

/// Keys, by public id, a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys, by rising public id.
    pub keys: Vec<KeyRecord>,
    /// The id to pass as `after` for the next page; `None` if there is none.
    pub next: Option<String>,
}

/// The keys of a store.
#[derive(Clone, Debug)]
pub struct KeyStore {
    store: Arc<dyn Store>,
}

impl KeyStore {
    /// The keys in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> KeyStore {
        KeyStore { store }
    }

    /// Adds a key, and tells of it.
    ///
    /// # Errors
    /// `Guard` if there is a key of this id, `Format` if the id is not 16 letters and digits or the account's
    /// name is empty or has a NUL in it, and what [`Store::apply`] fails with.
    pub fn insert(&self, key: &KeyRecord, said: &Said) -> Result<(), StoreError> {
        if key.id.len() != ID_LENGTH || !key.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(StoreError::Format { what: "a key's id is 16 letters and digits".to_owned() });
        }
        if key.account.is_empty() || key.account.contains('\0') {
            return Err(StoreError::Format { what: "a key needs an account's name".to_owned() });
        }
        let batch = Batch::new()
            .absent(Space::Keys, key.id.as_bytes())
            .put(Space::Keys, key.id.as_bytes(), versioned::write(WHAT, key)?)
            .put(Space::AccountKeys, listing(&key.account, &key.id), []);
        AuditLog::new(self.store.clone()).apply(&batch, said)
    }

    /// The key of a public id.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        self.store.get(Space::Keys, id.as_bytes())?.map(|row| versioned::read(WHAT, &row)).transpose()
    }

    /// The keys of one account, or of all: at most `limit` of them after the id `after`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn list(
        &self,
        account: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<KeyPage, StoreError> {
        let (keys, more) = match account {
            Some(account) => self.of_account(account, after, limit)?,
            None => self.of_all(after, limit)?,
        };
        let next = if more { keys.last().map(|key| key.id.clone()) } else { None };
        Ok(KeyPage { keys, next })
    }

    fn of_all(&self, after: Option<&str>, limit: usize) -> Result<(Vec<KeyRecord>, bool), StoreError> {
        let page = self.store.scan(Space::Keys, b"", after.map(str::as_bytes), limit)?;
        let keys = page.rows.iter().map(|row| versioned::read(WHAT, &row.value)).collect::<Result<_, _>>()?;
        Ok((keys, page.more))
    }

    fn of_account(
        &self,
        account: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<KeyRecord>, bool), StoreError> {
        let prefix = listing(account, "");
        let after = after.map(|id| listing(account, id));
        let page = self.store.scan(Space::AccountKeys, &prefix, after.as_deref(), limit)?;
        let mut keys = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let id = row.key.get(prefix.len()..).unwrap_or_default();
            let key = self.store.get(Space::Keys, id)?;
            let key = key.ok_or_else(|| StoreError::corrupt("an account lists a key that is not there"))?;
            keys.push(versioned::read(WHAT, &key)?);
        }
        Ok((keys, page.more))
    }

    /// Changes a key; `change` says what it did, or `None` if nothing. Returns the key as it is now, `None` if
    /// there is none.
    ///
    /// # Errors
    /// As [`Store::apply`]; `Guard` only if others kept changing the key meanwhile.
    pub fn change(
        &self,
        id: &str,
        change: impl Fn(&mut KeyRecord) -> Option<Said>,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let changed = versioned::change(&*self.store, WHAT, (Space::Keys, id.as_bytes()), |key| {
            Ok(match change(key) {
                None => Changed::No,
                Some(said) => Changed::Yes(log.entry(&said)?),
            })
        })?;
        Ok(changed.map(|(key, _)| key))
    }

    /// Revokes a key at the time of `said`, and tells of it. Doing so again changes nothing.
    ///
    /// # Errors
    /// As [`KeyStore::change`].
    pub fn revoke(&self, id: &str, said: &Said) -> Result<Revocation, StoreError> {
        let already = std::cell::Cell::new(false);
        let found = self.change(id, |key| {
            already.set(key.revoked.is_some());
            if already.get() {
                return None;
            }
            key.revoked = Some(said.at);
            Some(said.clone())
        })?;
        Ok(match found {
            None => Revocation::Unknown,
            Some(_) if already.get() => Revocation::Already,
            Some(_) => Revocation::Revoked,
        })
    }

    /// Notes that a key was used at `now` (Unix seconds), and returns whether there is such a key. The time
    /// never goes back. Costs a commit: call it now and then, not per request.
    ///
    /// # Errors
    /// As [`KeyStore::change`].
    pub fn touch(&self, id: &str, now: u64) -> Result<bool, StoreError> {
        let touched =
            versioned::change(&*self.store, WHAT, (Space::Keys, id.as_bytes()), |key: &mut KeyRecord| {
                if key.last_used.is_some_and(|used| used >= now) {
                    return Ok(Changed::No);
                }
                key.last_used = Some(now);
                Ok(Changed::Yes(Batch::new()))
            })?;
        Ok(touched.is_some())
    }
}

/// `account \0 id`: no account's name has a NUL, so no account's list runs into another's.
fn listing(account: &str, id: &str) -> Vec<u8> {
    [account.as_bytes(), b"\0", id.as_bytes()].concat()
}
