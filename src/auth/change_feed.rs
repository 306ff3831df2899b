//! Changes of keys and accounts that other processes wrote to the same store.
//!
//! Each change is also an entry of the audit log, written in the same commit with the next number. So a process that
//! reads all entries in the order of their numbers misses no change. The changed key or account is read from the store
//! and set again, so an entry that was already applied, or that this process wrote itself, changes nothing.

use crate::auth::key_cache::KeyCache;
use crate::storage::stores::OpenStorage;
use parking_lot::Mutex;
use penstock_storage::accounts::AccountStore;
use penstock_storage::audit::{AuditEntry, AuditLog, AuditPage};
use penstock_storage::keys::KeyStore;
use penstock_storage::{RowScan, StoreError};

/// Maximum number of audit log entries that are read at once.
const PAGE_ENTRIES: usize = 500;

/// Key or account that another process changed, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedRecord<'a> {
    /// Changed key, by its id.
    Key(&'a str),
    /// Changed account, by its id.
    Account(&'a str),
}

/// Reader of the audit log that applies the changes of other processes to the key cache.
pub struct ChangeFeed {
    audit: AuditLog,
    keys: KeyStore,
    accounts: AccountStore,
    /// Number of the last entry that was applied.
    last: u64,
    /// Last entry that was applied; `None` if the log was empty. It is read again together with the following entries:
    /// if it is missing or differs, the database has lost commits that it had acknowledged.
    last_entry: Option<AuditEntry>,
}

impl ChangeFeed {
    /// Creates a feed that starts after the last entry of the audit log. Keys have to be loaded after this call, so
    /// that no change is missed.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub fn from_last_entry(stores: &OpenStorage) -> Result<Self, StoreError> {
        let (audit, keys, accounts) = (stores.audit.clone(), stores.keys.clone(), stores.accounts.clone());
        let last = audit.last_entry_number()?;
        let last_entry = audit.list(last.saturating_sub(1), 1)?.entries.pop();
        Ok(Self { audit, keys, accounts, last, last_entry })
    }

    /// Reads the entries of the audit log since the last call, updates the changed keys and accounts in `cache`, and
    /// passes each change to `notify`. Returns the number of entries. `write_lock` is the lock under which this process
    /// reads, changes and sets keys; it is held during each update and its notification. Blocks.
    ///
    /// # Errors
    /// Returns the error of the store; the next call then applies the remaining changes. Returns `Reverted` if the last
    /// applied entry is no longer in the log.
    pub fn apply_new_changes(
        &mut self,
        cache: &KeyCache,
        write_lock: &Mutex<()>,
        notify: impl Fn(ChangedRecord<'_>),
    ) -> Result<u64, StoreError> {
        self.apply_changes_from(self.audit.list(self.scan_start(), PAGE_ENTRIES)?, cache, write_lock, notify)
    }

    /// Returns the scan of the next changes. The resulting page has to be passed to [`Self::apply_changes_from`] before another
    /// call uses this feed.
    #[must_use]
    pub fn next_row_scan(&self) -> RowScan {
        AuditLog::entry_scan_after(self.scan_start(), PAGE_ENTRIES)
    }

    /// Returns the entry number after which the scan starts: the one before the last applied entry, which is read
    /// again.
    const fn scan_start(&self) -> u64 {
        self.last.saturating_sub(1)
    }

    /// Applies a page of changes that begins with the last applied entry, and then the changes that follow the page,
    /// like [`Self::apply_new_changes`].
    ///
    /// # Errors
    /// Same as [`Self::apply_new_changes`].
    pub fn apply_changes_from(
        &mut self,
        mut page: AuditPage,
        cache: &KeyCache,
        write_lock: &Mutex<()>,
        notify: impl Fn(ChangedRecord<'_>),
    ) -> Result<u64, StoreError> {
        let first = self.last;
        let mut known = self.last_entry.clone();
        loop {
            let mut entries = page.entries.into_iter();
            if let Some(known) = known.take()
                && entries.next() != Some(known)
            {
                return Err(StoreError::Reverted);
            }
            for entry in entries {
                let target = entry.description.target.as_str();
                match entry.description.what.split_once('.') {
                    Some(("key", _)) => {
                        let _guard = write_lock.lock();
                        if let Some(key) = self.keys.get(target)? {
                            cache.set_key(&key);
                        }
                        notify(ChangedRecord::Key(target));
                    }
                    Some(("account", _)) => {
                        let _guard = write_lock.lock();
                        if let Some(account) = self.accounts.get(target)? {
                            cache.set_account(&account);
                        }
                        notify(ChangedRecord::Account(target));
                    }
                    _ => {}
                }
                self.last = entry.number;
                self.last_entry = Some(entry);
            }
            if page.next.is_none() {
                return Ok(self.last - first);
            }
            page = self.audit.list(self.last, PAGE_ENTRIES)?;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::settings::StorageSettings;
    use crate::time::clock::ProcessClock;
    use penstock_auth::ApiKey;
    use penstock_storage::accounts::{AccountRecord, AccountState};
    use penstock_storage::audit::ChangeDescription;
    use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord};
    use serde_json::json;

    fn audited(what: &str, target: &str) -> ChangeDescription {
        let (what, target) = (what.to_owned(), target.to_owned());
        ChangeDescription { at: 5, who: "test".to_owned(), what, target, change: json!({}) }
    }

    fn record(stores: &OpenStorage, key: &ApiKey) -> KeyRecord {
        KeyRecord {
            name: "a key".to_owned(),
            scopes: vec!["inference".to_owned()],
            ..KeyRecord::new(
                key.public_id(),
                KeyDigest(penstock_auth::key_digest(&stores.pepper.0, key)),
                "acme",
                1,
            )
        }
    }

    #[test]
    fn changes_of_another_process_are_known_once_the_feed_was_followed() {
        let folder = tempfile::tempdir().unwrap();
        let stores = OpenStorage::open(&StorageSettings::embedded(folder.path())).unwrap();
        let (clock, lock) = (ProcessClock::start(), Mutex::new(()));
        let mut feed = ChangeFeed::from_last_entry(&stores).unwrap();
        let cache = KeyCache::load(&stores, clock).unwrap();
        let key = ApiKey::generate(&mut |bytes| rand::fill(bytes));
        let bearer = format!("Bearer {}", key.reveal());
        let accepted = || cache.authenticate(Some(bearer.as_bytes()), None).is_ok();
        // Simulates another process: writes the key to the store, but not to the cache.
        stores.keys.insert(&record(&stores, &key), &audited("key.create", key.public_id())).unwrap();
        assert!(!accepted());
        assert!(feed.apply_new_changes(&cache, &lock, |_| {}).unwrap() >= 1);
        assert!(accepted());
        let account = AccountRecord {
            id: "acme".to_owned(),
            name: "acme".to_owned(),
            created: 1,
            state: AccountState::Active,
            limits: KeyLimits::default(),
        };
        stores.accounts.insert(&account, &audited("account.create", "acme")).unwrap();
        let suspend = |account: &mut AccountRecord| {
            account.state = AccountState::Suspended;
            Some(audited("account.change", "acme"))
        };
        stores.accounts.change("acme", suspend).unwrap();
        let principal = cache.find_principal(key.public_id()).unwrap();
        assert_eq!(feed.apply_new_changes(&cache, &lock, |_| {}), Ok(2));
        assert!(principal.is_suspended());
        stores.keys.revoke(key.public_id(), &audited("key.revoke", key.public_id())).unwrap();
        assert_eq!(feed.apply_new_changes(&cache, &lock, |_| {}), Ok(1));
        assert!(!accepted());
        assert_eq!(feed.apply_new_changes(&cache, &lock, |_| {}), Ok(0), "nothing is applied twice");
    }

    #[test]
    fn an_entry_that_the_store_lacks_or_has_replaced_is_noticed() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [stores, standby] = folders
            .each_ref()
            .map(|folder| OpenStorage::open(&StorageSettings::embedded(folder.path())).unwrap());
        let add = |stores: &OpenStorage, target: &str| {
            stores
                .audit
                .apply_with_entry(&penstock_storage::Transaction::new(), &audited("something", target))
                .unwrap();
        };
        let (cache, lock) = (KeyCache::load(&stores, ProcessClock::start()).unwrap(), Mutex::new(()));
        let mut feed = ChangeFeed::from_last_entry(&stores).unwrap();
        for target in ["a", "b"] {
            [&stores, &standby].into_iter().for_each(|stores| add(stores, target));
        }
        add(&stores, "c");
        feed.apply_new_changes(&cache, &lock, |_| {}).unwrap();
        feed.audit = standby.audit.clone();
        assert_eq!(feed.apply_new_changes(&cache, &lock, |_| {}), Err(StoreError::Reverted), "c is missing");
        add(&standby, "d");
        add(&standby, "e");
        assert_eq!(
            feed.apply_new_changes(&cache, &lock, |_| {}),
            Err(StoreError::Reverted),
            "d has its number"
        );
    }

    #[test]
    fn a_feed_follows_more_entries_than_one_page_and_unknown_ones() {
        let folder = tempfile::tempdir().unwrap();
        let stores = OpenStorage::open(&StorageSettings::embedded(folder.path())).unwrap();
        let mut feed = ChangeFeed::from_last_entry(&stores).unwrap();
        let cache = KeyCache::load(&stores, ProcessClock::start()).unwrap();
        feed.apply_new_changes(&cache, &Mutex::new(()), |_| {}).unwrap();
        for n in 0..PAGE_ENTRIES + 2 {
            let target = format!("{n}");
            stores
                .audit
                .apply_with_entry(&penstock_storage::Transaction::new(), &audited("key.revoke", &target))
                .unwrap();
        }
        stores
            .audit
            .apply_with_entry(&penstock_storage::Transaction::new(), &audited("something", "else"))
            .unwrap();
        assert_eq!(feed.apply_new_changes(&cache, &Mutex::new(()), |_| {}), Ok(PAGE_ENTRIES as u64 + 3));
    }
}
