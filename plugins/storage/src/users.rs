//! Persons who may sign in to the console, with their password hashes and invitations. A change is written with its
//! audit entry.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, ChangeDescription};
use crate::versioned_json::{self, RecordChangeOutcome};
use crate::{Store, StoreError, StoreTable, Transaction};

const WHAT: &str = "a user";
/// Maximum length of a user name, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 64;

/// Role of a user: what the console shows and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserRole {
    /// Role for everything in the console, including the management of users.
    Admin,
    /// Providers, configuration, batches, files and the audit log.
    Operator,
    /// Accounts, balances, grants and statements.
    Finance,
    /// All pages of operators except those about money, read only.
    Viewer,
    /// The dashboard of one account, and nothing of the console.
    Account,
}

/// Returns true if a text may be the name of a user: letters, digits, `.`, `_`, `-` and `@`, the first a letter or a
/// digit.
#[must_use]
pub fn is_valid_user_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    name.len() <= MAX_USER_NAME_BYTES
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

impl UserRole {
    /// All roles of users.
    pub const ALL: [UserRole; 5] =
        [UserRole::Admin, UserRole::Operator, UserRole::Finance, UserRole::Viewer, UserRole::Account];

    /// Returns the name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            UserRole::Admin => "admin",
            UserRole::Operator => "operator",
            UserRole::Finance => "finance",
            UserRole::Viewer => "viewer",
            UserRole::Account => "account",
        }
    }

    /// Returns the role with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<UserRole> {
        UserRole::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Invitation to choose a password, valid once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// SHA-256 of the token, hexadecimal.
    pub digest: String,
    /// Time in Unix seconds after which the invitation is invalid.
    pub expires: u64,
}

/// Identity of a user at an OpenID provider: issuer and subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OidcIdentity {
    /// URL of the provider.
    pub issuer: String,
    /// Id of the person, unique at the OpenID provider.
    pub subject: String,
    /// True if role and account come from the claims of the OpenID provider; false if an invitation has set them.
    pub has_claimed_role: bool,
}

/// Record of a user. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRecord {
    /// Name to sign in with.
    pub name: String,
    /// Role of the user.
    pub role: UserRole,
    /// Account whose dashboard the user sees; set for the role `account` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Time at which the user was created, Unix seconds.
    pub created: u64,
    /// Argon2id hash of the password in PHC format; `None` until the user has chosen one.
    #[serde(default)]
    pub password: Option<String>,
    /// Open invitation of the user.
    #[serde(default)]
    pub invitation: Option<Invitation>,
    /// Person at an OpenID provider who signs in as this user; `None` for a user without such a sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<OidcIdentity>,
    /// Time at which the user was disabled; `None` for an enabled user.
    #[serde(default)]
    pub disabled: Option<u64>,
    /// Number of changes of the password or the state; sessions that began under an earlier number are invalid.
    #[serde(default)]
    pub generation: u64,
}

/// Result of [`UserStore::change_unless_last`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserChangeOutcome {
    /// The user after the change; the unchanged user if there was no need for a change.
    Current(Box<UserRecord>),
    /// The change was refused, because after it no user would satisfy the condition.
    LastNeeded,
    /// There is no user with the given name.
    UnknownUser,
}

/// Access to the console's users in a store.
#[derive(Clone, Debug)]
pub struct UserStore {
    store: Arc<dyn Store>,
}

impl UserStore {
    /// Creates a view of the users in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> UserStore {
        UserStore { store }
    }

    /// Adds a user.
    ///
    /// # Errors
    /// Returns `Guard` if a user of this name exists, and the errors of [`Store::apply`].
    pub fn insert(&self, user: &UserRecord, change: &ChangeDescription) -> Result<(), StoreError> {
        let key = user.name.as_bytes();
        let batch = Transaction::new().require_absent(StoreTable::Users, key).put(
            StoreTable::Users,
            key,
            versioned_json::encode(WHAT, user)?,
        );
        AuditLog::new(self.store.clone()).apply_with_entry(&batch, change)
    }

    /// Returns the user of a name.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, name: &str) -> Result<Option<UserRecord>, StoreError> {
        let row = self.store.get(StoreTable::Users, name.as_bytes())?;
        row.map(|row| versioned_json::decode(WHAT, &row)).transpose()
    }

    /// Returns all users by name.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list(&self) -> Result<Vec<UserRecord>, StoreError> {
        let mut users = Vec::new();
        self.find_row(|user, _| {
            users.push(user);
            None::<()>
        })?;
        Ok(users)
    }

    /// Calls `find` with each user and the value of its row, by name, until it returns a result.
    fn find_row<T>(
        &self,
        mut find: impl FnMut(UserRecord, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut after = None::<Vec<u8>>;
        loop {
            let page = self.store.scan(StoreTable::Users, b"", after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let found = find(versioned_json::decode(WHAT, &row.value)?, &row.value);
                if found.is_some() {
                    return Ok(found);
                }
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(None),
            }
        }
    }

    /// Changes a user like [`Self::change`]. Refuses a change after which no user would satisfy `is_needed`, such as
    /// the removal of the last administrator. The transaction requires that the row of another user who satisfies it is
    /// unchanged, so two concurrent calls cannot change the last two such users.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn change_unless_last(
        &self,
        name: &str,
        is_needed: impl Fn(&UserRecord) -> bool,
        change: impl Fn(&mut UserRecord) -> Option<ChangeDescription>,
    ) -> Result<UserChangeOutcome, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let mut is_last = false;
        let changed = versioned_json::change_record(
            &*self.store,
            WHAT,
            (StoreTable::Users, name.as_bytes()),
            |user| {
                let was_needed = is_needed(user);
                let Some(audited) = change(user) else { return Ok(RecordChangeOutcome::Unchanged) };
                let mut guard = Transaction::new();
                is_last = false;
                if was_needed && !is_needed(user) {
                    // The transaction requires the exact row of the other user, because a changed row may not satisfy
                    // the condition.
                    let other = self.find_row(|other, row| {
                        (other.name != name && is_needed(&other)).then(|| (other.name, row.to_vec()))
                    })?;
                    let Some((other, row)) = other else {
                        is_last = true;
                        return Ok(RecordChangeOutcome::Unchanged);
                    };
                    guard = guard.require_value(StoreTable::Users, other.as_bytes(), row);
                }
                Ok(RecordChangeOutcome::Changed(guard.append_operations(log.entry_operations(&audited)?)))
            },
        )?;
        Ok(match changed {
            None => UserChangeOutcome::UnknownUser,
            Some(_) if is_last => UserChangeOutcome::LastNeeded,
            Some((user, _)) => UserChangeOutcome::Current(Box::new(user)),
        })
    }

    /// Changes a user; `change` returns the audit description, or `None` if it changed nothing. Returns the current
    /// user and true if it was changed, or `None` if the user does not exist.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn change(
        &self,
        name: &str,
        change: impl Fn(&mut UserRecord) -> Option<ChangeDescription>,
    ) -> Result<Option<(UserRecord, bool)>, StoreError> {
        let log = AuditLog::new(self.store.clone());
        versioned_json::change_record(&*self.store, WHAT, (StoreTable::Users, name.as_bytes()), |user| {
            Ok(match change(user) {
                None => RecordChangeOutcome::Unchanged,
                Some(change) => RecordChangeOutcome::Changed(log.entry_operations(&change)?),
            })
        })
    }
}
