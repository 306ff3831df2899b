//! Tests of the cache on a store in a folder.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::settings::StorageSettings;

fn open_stores(folder: &std::path::Path) -> Stores {
    Stores::open(&StorageSettings::embedded(folder)).unwrap()
}

#[test]
fn only_accounts_that_are_not_stored_are_written_at_the_start() {
    const ACCOUNTS: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let stores = open_stores(folder.path());
    let cache = KeyCache::load(&stores, ProcessClock::start()).unwrap();
    let stored: FastSet<Box<str>> =
        (0..ACCOUNTS).map(|number| format!("account-{number}").into()).chain([DEFAULT_ACCOUNT.into()]).collect();
    stored.iter().chain(["implicit".into()].iter()).for_each(|id| drop(cache.account_or_insert(id)));
    cache.persist_implicit_accounts(&stores, &stored);
    let written = stores.accounts.list(None, PAGE_ROWS).unwrap().accounts;
    assert_eq!(written.iter().map(|account| &*account.id).collect::<Vec<_>>(), [DEFAULT_ACCOUNT, "implicit"]);
}
