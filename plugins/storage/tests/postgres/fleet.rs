//! Several processes on one database.

use crate::fleet_model::World;
use crate::{TAKEOVER, add_one, count, elsewhere, server::PostgresServer};
use penstock_storage::{
    PostgresOptions, Store, StoreError, StoreHealth, StoreSharing, StoreTable, Transaction, open_postgres,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Opens three stores of one database, as three processes do.
pub(crate) fn three_stores(server: &PostgresServer) -> (Vec<TempDir>, Vec<Arc<dyn Store>>) {
    let options =
        PostgresOptions { sharing: StoreSharing::Shared, takeover_after: TAKEOVER, ..server.options() };
    let folders: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let stores = folders.iter().map(|folder| open_postgres(&elsewhere(&options, folder)).unwrap()).collect();
    (folders, stores)
}

#[test]
fn writers_of_several_processes_lose_nothing() {
    let server = PostgresServer::start();
    let (_folders, stores) = three_stores(&server);
    let created = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for store in &stores {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..50 {
                        add_one(&**store).unwrap();
                        // All three stores try to create the row; only one of them may succeed.
                        let at = StoreTable::Idempotency;
                        let name = format!("name {n}");
                        match store
                            .apply(Transaction::new().require_absent(at, name.as_str()).put(at, name, b"1"))
                        {
                            Ok(()) => drop(created.fetch_add(1, Ordering::Relaxed)),
                            Err(StoreError::Guard { step: 0 }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        }
    });
    assert_eq!((count(&*stores[0]), created.into_inner()), (300, 50));
    assert!(stores.iter().all(|store| store.health() == StoreHealth::Ready));
}

#[test]
fn pools_of_three_processes_are_whole_after_kills_pauses_and_crashes_of_the_server() {
    let mut server = PostgresServer::start();
    let (_folders, stores) = three_stores(&server);
    let mut world = World::new(&stores, 2_000, 30, 7);
    for step in 1..=600 {
        world.step();
        if step % 200 == 0 {
            server.crash();
            server.restart();
        }
        world.check().unwrap_or_else(|why| panic!("step {step}: {why}"));
    }
    world.settle();
    world.check().unwrap();
    let (charged, served) = world.totals();
    assert!(charged > 0 && charged <= served && world.evicted > 0, "{charged} of {served}");
}
