//! Tests of the cache on a store in a folder.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::settings::{FleetSettings, StorageSettings};

fn open_stores(folder: &std::path::Path, fleet: Option<FleetSettings>) -> OpenStorage {
    OpenStorage::open(&StorageSettings { fleet, ..StorageSettings::embedded(folder) }).unwrap()
}

#[test]
fn only_accounts_that_are_not_stored_are_written_at_the_start() {
    const ACCOUNTS: usize = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let stores = open_stores(folder.path(), None);
    let cache = KeyCache::load(&stores, ProcessClock::start()).unwrap();
    let stored: FastSet<Box<str>> = (0..ACCOUNTS)
        .map(|number| format!("account-{number}").into())
        .chain([DEFAULT_ACCOUNT_ID.into()])
        .collect();
    stored.iter().chain(["implicit".into()].iter()).for_each(|id| drop(cache.account_or_insert(id)));
    cache.persist_implicit_accounts(&stores, &stored);
    let written = stores.accounts.list(None, PAGE_ROWS).unwrap().accounts;
    assert_eq!(
        written.iter().map(|account| &*account.id).collect::<Vec<_>>(),
        [DEFAULT_ACCOUNT_ID, "implicit"]
    );
}

#[test]
fn loaded_keys_expire_although_changes_were_never_read() {
    let stale = Duration::from_millis(1);
    let fleet = FleetSettings {
        name: None,
        claim: Duration::from_secs(15),
        lease: Duration::from_secs(600),
        advance: Duration::from_secs(300),
        stale: Some(stale),
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("database")).unwrap();
    let (stores, clock) = (open_stores(folder.path(), Some(fleet)), ProcessClock::start());
    let cache = KeyCache::load(&stores, clock).unwrap();
    let loaded = Instant::now();
    while loaded.elapsed() <= 2 * stale {
        std::hint::spin_loop();
    }
    assert!(!cache.is_current());
    assert!(cache.authenticate(None, None).is_err_and(|refusal| refusal.code == ErrorCode::Unavailable));
    cache.extend_validity(clock.steady_now() + Duration::from_secs(3_600));
    assert!(cache.is_current());
}

#[test]
fn keys_of_a_gateway_without_a_fleet_do_not_expire() {
    let folder = tempfile::tempdir().unwrap();
    let cache = KeyCache::load(&open_stores(folder.path(), None), ProcessClock::start()).unwrap();
    cache.extend_validity(Duration::ZERO);
    assert!(cache.is_current());
}
