//! Accounts in a store: who they are and what they may use up. What they have is kept elsewhere.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, Said};
use crate::keys::KeyLimits;
use crate::versioned::{self, Changed};
use crate::{Batch, Space, Store, StoreError};

/// Accounts lie under `a/` and their id.
const PREFIX: &[u8] = b"a/";
const WHAT: &str = "an account";
/// Longest id, in bytes.
pub const MAX_ACCOUNT: usize = 200;

/// Whether an account's keys are good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    /// They are.
    #[default]
    Active,
    /// None of them is, until the account is active again.
    Suspended,
}

/// An account as it is kept. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// What keys and the ledger call it.
    pub id: String,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// When it was made.
    pub created: u64,
    /// Whether its keys are good.
    #[serde(default)]
    pub state: AccountState,
    /// What its keys may use up together.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// Accounts by rising id, a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPage {
    /// The accounts.
    pub accounts: Vec<AccountRecord>,
    /// The id to pass as `after` for the next page; `None` if there is none.
    pub next: Option<String>,
}

/// The accounts of a store.
#[derive(Clone, Debug)]
pub struct AccountStore {
    store: Arc<dyn Store>,
}

impl AccountStore {
    /// The accounts in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> AccountStore {
        AccountStore { store }
    }

    /// Adds an account.
    ///
    /// # Errors
    /// `Guard` if there is one of this id, `Format` if the id is empty, too long or has a NUL in it, and what
    /// [`Store::apply`] fails with.
    pub fn insert(&self, account: &AccountRecord, said: &Said) -> Result<(), StoreError> {
        if account.id.is_empty() || account.id.len() > MAX_ACCOUNT || account.id.contains('\0') {
            return Err(StoreError::Format { what: "an account needs an id".to_owned() });
        }
        let place = place(&account.id);
        let batch = Batch::new().absent(Space::Accounts, place.clone()).put(
            Space::Accounts,
            place,
            versioned::write(WHAT, account)?,
        );
        AuditLog::new(self.store.clone()).apply(&batch, said)
    }

    /// The account of an id.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<AccountRecord>, StoreError> {
        let row = self.store.get(Space::Accounts, &place(id))?;
        row.map(|row| versioned::read(WHAT, &row)).transpose()
    }

    /// At most `limit` accounts after the id `after`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<AccountPage, StoreError> {
        let after = after.map(place);
        let page = self.store.scan(Space::Accounts, PREFIX, after.as_deref(), limit)?;
        let accounts: Vec<AccountRecord> =
            page.rows.iter().map(|row| versioned::read(WHAT, &row.value)).collect::<Result<_, _>>()?;
        let next = if page.more { accounts.last().map(|account| account.id.clone()) } else { None };
        Ok(AccountPage { accounts, next })
    }

    /// Changes an account; `change` says what it did, or `None` if nothing. Returns the account as it is now,
    /// `None` if there is none.
    ///
    /// # Errors
    /// As [`Store::apply`]; `Guard` only if others kept changing the account meanwhile.
    pub fn change(
        &self,
        id: &str,
        change: impl Fn(&mut AccountRecord) -> Option<Said>,
    ) -> Result<Option<AccountRecord>, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let place = place(id);
        let changed = versioned::change(&*self.store, WHAT, (Space::Accounts, &place), |account| {
            Ok(match change(account) {
                None => Changed::No,
                Some(said) => Changed::Yes(log.entry(&said)?),
            })
        })?;
        Ok(changed.map(|(account, _)| account))
    }
}

fn place(id: &str) -> Vec<u8> {
    [PREFIX, id.as_bytes()].concat()
}
