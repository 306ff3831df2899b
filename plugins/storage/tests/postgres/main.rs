//! PostgreSQL store beyond the conformance suite: one process at a time, lost connections, crashes of the server,
//! imports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod absent_rows;
mod connections;
#[path = "../support/flaky.rs"]
mod flaky;
mod fleet;
#[path = "../support/fleet_model.rs"]
mod fleet_model;
mod ledger;
mod outages;
#[path = "../support/server.rs"]
mod server;
mod sharing;
mod slices;
mod transfer;

use penstock_storage::{
    PostgresOptions, Store, StoreError, StoreHealth, StoreTable, Transaction, open_postgres, parse_counter,
};
use std::sync::Arc;
use std::time::Duration;

const COUNTERS: StoreTable = StoreTable::Meta;

/// Time without a heartbeat after which the stores of these tests take over the database from another process.
const TAKEOVER: Duration = Duration::from_millis(400);

/// Options of a second process: the same database, another folder.
fn elsewhere(options: &PostgresOptions, folder: &tempfile::TempDir) -> PostgresOptions {
    PostgresOptions { folder: folder.path().to_owned(), ..options.clone() }
}

fn add_one(store: &dyn Store) -> Result<(), penstock_storage::StoreError> {
    store.apply(Transaction::new().add_to_counter(COUNTERS, b"n", 1, None, None))
}

/// Opens a store whose folder was used before. Processes that other tests start inherit the lock of the folder until they
/// execute their program, so a lock that remains for a moment is waited for.
fn reopen(options: &PostgresOptions) -> Result<Arc<dyn Store>, StoreError> {
    loop {
        match open_postgres(options) {
            Err(StoreError::Locked { .. }) => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

fn count(store: &dyn Store) -> i64 {
    parse_counter(store.get(COUNTERS, b"n").unwrap().as_deref()).unwrap()
}

/// Waits until the store has this kind of health.
fn wait_for(store: &dyn Store, expected: fn(StoreHealth) -> bool) {
    while !expected(store.health()) {
        std::thread::yield_now();
    }
}
