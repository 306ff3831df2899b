//! API keys in a store. Each key has a row under its public id and an empty index row under its account; both are
//! written in one transaction.

mod record;

use std::sync::Arc;

pub use self::record::{KeyDigest, KeyLimits, KeyRecord, PreviousSecret};
use crate::audit::{AuditLog, ChangeDescription};
use crate::versioned_json::{self, RecordChangeOutcome};
use crate::{Store, StoreError, StoreTable, Transaction};

/// Length of a public key id, in characters.
pub const KEY_ID_LENGTH: usize = 16;
const WHAT: &str = "a key";

/// Outcome of a key revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeOutcome {
    /// The key was not revoked before, and is now.
    Revoked,
    /// The key was revoked before; its first revocation time does not change.
    AlreadyRevoked,
    /// Key that does not exist.
    UnknownKey,
}

/// Page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Keys of the page, in ascending order of their public ids.
    pub keys: Vec<KeyRecord>,
    /// Id to pass as `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// API keys of a store.
#[derive(Clone, Debug)]
pub struct KeyStore {
    store: Arc<dyn Store>,
}

impl KeyStore {
    /// Creates a view of the keys in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> KeyStore {
        KeyStore { store }
    }

    /// Adds a key and writes an audit entry.
    ///
    /// # Errors
    /// Returns `Guard` if a key of this id exists, `InvalidArgument` if the id is not 16 letters and digits or the
    /// account is empty or contains a NUL, and the errors of [`Store::apply`].
    pub fn insert(&self, key: &KeyRecord, entry: &ChangeDescription) -> Result<(), StoreError> {
        if key.id.len() != KEY_ID_LENGTH || !key.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(StoreError::InvalidArgument { what: "a key's id is 16 letters and digits" });
        }
        if key.account.is_empty() || key.account.contains('\0') {
            return Err(StoreError::InvalidArgument { what: "a key needs an account's name" });
        }
        let batch = Transaction::new()
            .require_absent(StoreTable::Keys, key.id.as_bytes())
            .put(StoreTable::Keys, key.id.as_bytes(), versioned_json::encode(WHAT, key)?)
            .put(StoreTable::AccountKeys, index_key(&key.account, &key.id), []);
        AuditLog::new(self.store.clone()).apply_with_entry(&batch, entry)
    }

    /// Returns the key of a public id.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<KeyRecord>, StoreError> {
        self.store
            .get(StoreTable::Keys, id.as_bytes())?
            .map(|row| versioned_json::decode(WHAT, &row))
            .transpose()
    }

    /// Returns the keys of one account, or of all: at most `limit` after the id `after`.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list(
        &self,
        account: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<KeyPage, StoreError> {
        let (keys, more) = match account {
            Some(account) => self.list_account(account, after, limit)?,
            None => self.list_all(after, limit)?,
        };
        let next = if more { keys.last().map(|key| key.id.clone()) } else { None };
        Ok(KeyPage { keys, next })
    }

    /// Returns true if the key of a row is not revoked.
    ///
    /// # Errors
    /// Returns `Corrupt` if the row is not a key, `Format` if it is of an unknown version.
    pub(crate) fn is_valid_row(value: &[u8]) -> Result<bool, StoreError> {
        let key: KeyRecord = versioned_json::decode(WHAT, value)?;
        Ok(key.revoked.is_none())
    }

    fn list_all(&self, after: Option<&str>, limit: usize) -> Result<(Vec<KeyRecord>, bool), StoreError> {
        let page = self.store.scan(StoreTable::Keys, b"", after.map(str::as_bytes), limit)?;
        let keys =
            page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value)).collect::<Result<_, _>>()?;
        Ok((keys, page.more))
    }

    fn list_account(
        &self,
        account: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<KeyRecord>, bool), StoreError> {
        let prefix = index_key(account, "");
        let after = after.map(|id| index_key(account, id));
        let page = self.store.scan(StoreTable::AccountKeys, &prefix, after.as_deref(), limit)?;
        let mut keys = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let id = row.key.get(prefix.len()..).unwrap_or_default();
            let key = self.store.get(StoreTable::Keys, id)?;
            let key = key.ok_or_else(|| StoreError::corrupt("an account lists a key that does not exist"))?;
            keys.push(versioned_json::decode(WHAT, &key)?);
        }
        Ok((keys, page.more))
    }

    /// Changes a key; `change` returns the audit description, or `None` if it changed nothing. Returns the current key,
    /// or `None` if it does not exist.
    ///
    /// # Errors
    /// Same as [`Store::apply`]; `Guard` if concurrent changes of the key or of the audit log made all 32 attempts
    /// fail.
    pub fn change(
        &self,
        id: &str,
        change: impl Fn(&mut KeyRecord) -> Option<ChangeDescription>,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let changed =
            versioned_json::change_record(&*self.store, WHAT, (StoreTable::Keys, id.as_bytes()), |key| {
                Ok(match change(key) {
                    None => RecordChangeOutcome::Unchanged,
                    Some(entry) => RecordChangeOutcome::Changed(log.entry_operations(&entry)?),
                })
            })?;
        Ok(changed.map(|(key, _)| key))
    }

    /// Revokes a key at the time of the audited change and writes an audit entry. A second revocation changes nothing.
    ///
    /// # Errors
    /// Same as [`KeyStore::change`].
    pub fn revoke(&self, id: &str, entry: &ChangeDescription) -> Result<RevokeOutcome, StoreError> {
        let already = std::cell::Cell::new(false);
        let found = self.change(id, |key| {
            already.set(key.revoked.is_some());
            if already.get() {
                return None;
            }
            key.revoked = Some(entry.at);
            Some(entry.clone())
        })?;
        Ok(match found {
            None => RevokeOutcome::UnknownKey,
            Some(_) if already.get() => RevokeOutcome::AlreadyRevoked,
            Some(_) => RevokeOutcome::Revoked,
        })
    }

    /// Updates the last use of a key to `now` (Unix seconds); returns true if the key exists. The time never decreases.
    /// Costs a commit: call it periodically, not per request.
    ///
    /// # Errors
    /// Same as [`KeyStore::change`].
    pub fn update_last_use(&self, id: &str, now: u64) -> Result<bool, StoreError> {
        let touched = versioned_json::change_record(
            &*self.store,
            WHAT,
            (StoreTable::Keys, id.as_bytes()),
            |key: &mut KeyRecord| {
                if key.last_used.is_some_and(|used| used >= now) {
                    return Ok(RecordChangeOutcome::Unchanged);
                }
                key.last_used = Some(now);
                Ok(RecordChangeOutcome::Changed(Transaction::new()))
            },
        )?;
        Ok(touched.is_some())
    }
}

/// Returns the index key `account \0 id`: an account has no NUL, so the lists of two accounts never overlap.
fn index_key(account: &str, id: &str) -> Vec<u8> {
    [account.as_bytes(), b"\0", id.as_bytes()].concat()
}
