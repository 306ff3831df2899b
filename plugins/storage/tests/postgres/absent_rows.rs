//! Guards of absent rows against another process that creates the row at the same moment.

use crate::{elsewhere, server::PostgresServer};
use penstock_storage::{StoreSharing, StoreTable, Transaction, open_postgres};
use std::sync::Barrier;

const TABLE: StoreTable = StoreTable::Meta;

#[test]
fn a_row_that_is_created_while_it_is_required_absent_is_a_conflict() {
    let server = PostgresServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = server.options();
    options.sharing = StoreSharing::Shared;
    let [first, second] =
        folders.each_ref().map(|folder| open_postgres(&elsewhere(&options, folder)).unwrap());
    for round in 0..200 {
        let (lock, done) = (format!("test/lock{round}"), format!("test/done{round}"));
        first.apply(Transaction::new().put(TABLE, lock.as_bytes(), b"first")).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // One transaction deletes the row `lock`, which both processes use, and creates the row `done`, which
                // the second process requires to be absent.
                let finish = Transaction::new().require_value(TABLE, lock.as_bytes(), b"first");
                first.apply(finish.put(TABLE, done.as_bytes(), b"1").delete(TABLE, lock.as_bytes())).unwrap();
            });
            start.wait();
            while second.get(TABLE, done.as_bytes()).unwrap().is_none() {
                let begin = Transaction::new()
                    .require_absent(TABLE, done.as_bytes())
                    .require_absent(TABLE, lock.as_bytes())
                    .put(TABLE, lock.as_bytes(), b"second");
                assert!(second.apply(begin).is_err(), "round {round}: the first process has or had the lock");
            }
        });
    }
}

#[test]
fn a_row_that_is_required_absent_stays_absent() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let store = open_postgres(&elsewhere(&server.options(), &folder)).unwrap();
    for _ in 0..2 {
        store.apply(Transaction::new().require_absent(TABLE, b"test/a").put(TABLE, b"test/b", b"1")).unwrap();
        assert_eq!(store.get(TABLE, b"test/a").unwrap(), None);
        assert_eq!(store.get(TABLE, b"test/b").unwrap().as_deref(), Some(&b"1"[..]));
    }
    let removed = Transaction::new().require_absent(TABLE, b"test/c").delete(TABLE, b"test/c");
    store.apply(removed.put(TABLE, b"test/b", b"2")).unwrap();
    assert_eq!(store.get(TABLE, b"test/c").unwrap(), None);
}
