//! Crashes and outages of the server.

use crate::{TAKEOVER, add_one, count, elsewhere, server::PostgresServer, wait_for};
use penstock_storage::{StoreError, StoreHealth, StoreTable, Transaction, open_postgres};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

#[test]
fn every_acknowledged_write_is_there_once_after_crashes_of_the_server() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = elsewhere(&server.options(), &folder);
    options.takeover_after = TAKEOVER;
    let store = open_postgres(&options).unwrap();
    let (stop, written, unknown) = (AtomicBool::new(false), AtomicI64::new(0), AtomicI64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match add_one(&*store) {
                        Ok(()) => written.fetch_add(1, Ordering::Relaxed),
                        Err(StoreError::Stuck) => unknown.fetch_add(1, Ordering::Relaxed),
                        Err(StoreError::Unreachable { .. }) => 0,
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
        for round in 1..=5 {
            while written.load(Ordering::Relaxed) < round * 100 {
                std::thread::yield_now();
            }
            server.crash();
            server.restart();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (written, unknown) = (written.into_inner(), unknown.into_inner());
    let found = count(&*store);
    assert!((written..=written + unknown).contains(&found), "{found} of {written} + {unknown}");
    assert_eq!(unknown, 0, "a restart within the time of the retries leaves no outcome unknown");
    assert_eq!(store.health(), StoreHealth::Ready);
}

#[test]
fn an_outage_is_reported_and_ends_by_itself() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = elsewhere(&server.options(), &folder);
    options.takeover_after = TAKEOVER;
    options.fail_fast_after = Duration::ZERO;
    let store = open_postgres(&options).unwrap();
    add_one(&*store).unwrap();
    server.crash();
    wait_for(&*store, |health| matches!(health, StoreHealth::Unreachable { .. }));
    let transaction = || Transaction::new().put(StoreTable::Keys, b"k", b"v");
    assert!(matches!(store.apply(transaction()), Err(StoreError::Unreachable { .. })));
    assert!(matches!(store.get(StoreTable::Keys, b"k"), Err(StoreError::Unreachable { .. })));
    assert!(matches!(store.copy_rows(&mut |_| Ok(())), Err(StoreError::Unreachable { .. })));
    server.restart();
    wait_for(&*store, |health| health == StoreHealth::Ready);
    store.apply(transaction()).unwrap();
    assert_eq!(store.get(StoreTable::Keys, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(count(&*store), 1);
}

#[test]
fn a_database_that_lost_acknowledged_commits_is_written_to_only_by_a_process_that_starts_again() {
    let mut server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = elsewhere(&server.options(), &folder);
    options.takeover_after = TAKEOVER;
    let store = open_postgres(&options).unwrap();
    add_one(&*store).unwrap();
    server.copy();
    add_one(&*store).unwrap();
    server.promote_copy();
    wait_for(&*store, |health| health == StoreHealth::Reverted);
    assert_eq!(add_one(&*store), Err(StoreError::Reverted));
    drop(store);
    let store = crate::reopen(&options).unwrap();
    add_one(&*store).unwrap();
    assert_eq!((count(&*store), store.health()), (2, StoreHealth::Ready));
}
