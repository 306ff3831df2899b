//! Accounts in a store, with their state and limits. Balances are stored in the ledger.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, ChangeDescription};
use crate::keys::KeyLimits;
use crate::versioned_json::{self, RecordChangeOutcome};
use crate::{Store, StoreError, StoreTable, Transaction};

/// Key prefix of account rows, followed by the account id.
const PREFIX: &[u8] = b"a/";
const WHAT: &str = "an account";
/// Maximum length of an account id, in bytes.
pub const MAX_ACCOUNT_ID_BYTES: usize = 200;

/// State of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    /// Account whose keys are valid.
    #[default]
    Active,
    /// Account whose keys are rejected until it is active again.
    Suspended,
}

/// Record of an account. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// Account id used by keys and the ledger.
    pub id: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Creation time.
    pub created: u64,
    /// State of the account.
    #[serde(default)]
    pub state: AccountState,
    /// Limits on all keys of the account together.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// Page of accounts in ascending id order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPage {
    /// Accounts of the page.
    pub accounts: Vec<AccountRecord>,
    /// Id to pass as `after` for the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Accounts of a store.
#[derive(Clone, Debug)]
pub struct AccountStore {
    store: Arc<dyn Store>,
}

impl AccountStore {
    /// Creates a view of the accounts in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> AccountStore {
        AccountStore { store }
    }

    /// Adds an account.
    ///
    /// # Errors
    /// Returns `Guard` if an account of this id exists, `InvalidArgument` if the id is empty, too long or contains a
    /// NUL, and the errors of [`Store::apply`].
    pub fn insert(&self, account: &AccountRecord, entry: &ChangeDescription) -> Result<(), StoreError> {
        if account.id.is_empty() || account.id.len() > MAX_ACCOUNT_ID_BYTES || account.id.contains('\0') {
            return Err(StoreError::InvalidArgument {
                what: "the id of an account is empty, too long or has a NUL",
            });
        }
        let key = account_key(&account.id);
        let batch = Transaction::new().require_absent(StoreTable::Accounts, key.clone()).put(
            StoreTable::Accounts,
            key,
            versioned_json::encode(WHAT, account)?,
        );
        AuditLog::new(self.store.clone()).apply_with_entry(&batch, entry)
    }

    /// Returns the account of an id.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<AccountRecord>, StoreError> {
        let row = self.store.get(StoreTable::Accounts, &account_key(id))?;
        row.map(|row| versioned_json::decode(WHAT, &row)).transpose()
    }

    /// Returns at most `limit` accounts after the id `after`.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<AccountPage, StoreError> {
        let after = after.map(account_key);
        let page = self.store.scan(StoreTable::Accounts, PREFIX, after.as_deref(), limit)?;
        let accounts: Vec<AccountRecord> =
            page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value)).collect::<Result<_, _>>()?;
        let next = if page.more { accounts.last().map(|account| account.id.clone()) } else { None };
        Ok(AccountPage { accounts, next })
    }

    /// Changes an account; `change` returns the audit description, or `None` if it changed nothing. Returns the current
    /// account, or `None` if it does not exist.
    ///
    /// # Errors
    /// Same as [`Store::apply`]; `Guard` if all 32 attempts failed because of concurrent changes of the account or of
    /// the audit log.
    pub fn change(
        &self,
        id: &str,
        change: impl Fn(&mut AccountRecord) -> Option<ChangeDescription>,
    ) -> Result<Option<AccountRecord>, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let key = account_key(id);
        let changed =
            versioned_json::change_record(&*self.store, WHAT, (StoreTable::Accounts, &key), |account| {
                Ok(match change(account) {
                    None => RecordChangeOutcome::Unchanged,
                    Some(entry) => RecordChangeOutcome::Changed(log.entry_operations(&entry)?),
                })
            })?;
        Ok(changed.map(|(account, _)| account))
    }
}

fn account_key(id: &str) -> Vec<u8> {
    [PREFIX, id.as_bytes()].concat()
}
