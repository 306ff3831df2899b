//! Sessions of signed-in users, by the SHA-256 of their random id, so that a copy of the store contains no usable
//! session.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::versioned_json::{self, RecordChangeOutcome};
use crate::{MAX_OPERATIONS, Store, StoreError, StoreTable, Transaction};

const WHAT: &str = "a session";

/// Record of a session. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Name of the user.
    pub user: String,
    /// Generation of the user at the sign-in. The session becomes invalid when the generation of the user changes.
    pub generation: u64,
    /// Time of the sign-in, Unix seconds.
    pub created: u64,
    /// Time of the last request, with an accuracy of a minute.
    pub seen: u64,
    /// CSRF token, which every form of the session contains.
    pub form_token: String,
    /// Digests of the forms that were submitted last. A form that is submitted again is recognised and has no second
    /// effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_forms: Vec<String>,
}

/// Outcome of a change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChangeOutcome {
    /// The session was changed as requested.
    Changed,
    /// The session needed no change.
    Unchanged,
    /// The session does not exist; it may have been removed in the meantime.
    Missing,
}

/// Access to the sign-in sessions in a store.
#[derive(Clone, Debug)]
pub struct SessionStore {
    store: Arc<dyn Store>,
}

impl SessionStore {
    /// Creates a view of the sessions in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> SessionStore {
        SessionStore { store }
    }

    /// Returns the session for the SHA-256 digest of a session id.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, digest: &[u8; 32]) -> Result<Option<SessionRecord>, StoreError> {
        let row = self.store.get(StoreTable::Sessions, digest)?;
        row.map(|row| versioned_json::decode(WHAT, &row)).transpose()
    }

    /// Writes a session.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn put(&self, digest: &[u8; 32], session: &SessionRecord) -> Result<(), StoreError> {
        let row = versioned_json::encode(WHAT, session)?;
        self.store.apply(Transaction::new().put(StoreTable::Sessions, *digest, row))
    }

    /// Changes a session by compare-and-swap, unless it has been removed; `change` returns false if there is nothing to
    /// change.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn change(
        &self,
        digest: &[u8; 32],
        change: impl Fn(&mut SessionRecord) -> bool,
    ) -> Result<SessionChangeOutcome, StoreError> {
        let row = (StoreTable::Sessions, digest.as_slice());
        let changed = versioned_json::change_record(&*self.store, WHAT, row, |session| {
            let outcome = change(session).then(|| RecordChangeOutcome::Changed(Transaction::new()));
            Ok(outcome.unwrap_or(RecordChangeOutcome::Unchanged))
        })?;
        Ok(match changed {
            None => SessionChangeOutcome::Missing,
            Some((_, true)) => SessionChangeOutcome::Changed,
            Some((_, false)) => SessionChangeOutcome::Unchanged,
        })
    }

    /// Removes a session.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn remove(&self, digest: &[u8; 32]) -> Result<(), StoreError> {
        self.store.apply(Transaction::new().delete(StoreTable::Sessions, *digest))
    }

    /// Removes all sessions for which `is_over` returns true, and those that cannot be decoded; returns the number of
    /// the remaining ones.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn remove_where(&self, is_over: impl Fn(&SessionRecord) -> bool) -> Result<usize, StoreError> {
        let (mut rest, mut after) = (0, None::<Vec<u8>>);
        loop {
            let page = self.store.scan(StoreTable::Sessions, b"", after.as_deref(), MAX_OPERATIONS / 2)?;
            let mut batch = Transaction::new();
            for row in &page.rows {
                // An unreadable session is removed too.
                if versioned_json::decode(WHAT, &row.value).is_ok_and(|session| !is_over(&session)) {
                    rest += 1;
                } else {
                    batch = batch.delete(StoreTable::Sessions, row.key.as_slice());
                }
            }
            if !batch.is_empty() {
                self.store.apply(batch)?;
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(rest),
            }
        }
    }
}
