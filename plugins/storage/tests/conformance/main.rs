//! Conformance suite for every engine: those of `FOLDER_ENGINES`, a PostgreSQL database, and memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod copies;
mod guards;
mod invoices;
mod scans;
#[path = "../support/server.rs"]
mod server;

use penstock_storage::{
    FOLDER_ENGINES, FolderEngine, Store, StoreHealth, StoreOptions, StoreTable, Transaction, open_in_memory,
    open_postgres,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;

static SERVER: LazyLock<server::PostgresServer> = LazyLock::new(server::PostgresServer::start);

fn postgres() -> (Option<TempDir>, Arc<dyn Store>) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = SERVER.options();
    options.folder = dir.path().to_owned();
    (Some(dir), open_postgres(&options).unwrap())
}

fn folder(engine: &FolderEngine) -> (Option<TempDir>, Arc<dyn Store>) {
    // On a memory file system if possible, because these tests do not concern durability.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options = StoreOptions { ballast_bytes: 0, ..StoreOptions::default() };
    let store = (engine.open)(dir.path(), options).unwrap();
    (Some(dir), store)
}

/// Returns a new store of each engine, one after the other.
fn engines() -> impl Iterator<Item = (&'static str, (Option<TempDir>, Arc<dyn Store>))> {
    let folders = FOLDER_ENGINES.iter().map(|engine| (engine.name, folder(engine)));
    std::iter::once_with(|| ("memory", (None, open_in_memory())))
        .chain(folders)
        .chain(std::iter::once_with(|| ("postgres", postgres())))
}

fn each_engine(case: impl Fn(&Arc<dyn Store>)) {
    for (name, (_dir, store)) in engines() {
        assert_eq!(store.health(), StoreHealth::Ready, "{name}");
        case(&store);
        let verified = store.verify().unwrap();
        assert!(verified.damaged == 0 && !verified.missing, "{name}: {verified:?}");
    }
}

fn keys(
    store: &dyn Store,
    space: StoreTable,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Vec<Vec<u8>> {
    store.scan(space, prefix, after, limit).unwrap().rows.into_iter().map(|row| row.key).collect()
}

#[test]
fn stored_values_are_read_and_deleted_ones_are_gone() {
    each_engine(|store| {
        assert_eq!(store.get(StoreTable::Keys, b"a").unwrap(), None);
        store
            .apply(Transaction::new().put(StoreTable::Keys, b"a", b"1").put(StoreTable::Keys, b"empty", b""))
            .unwrap();
        assert_eq!(store.get(StoreTable::Keys, b"a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(store.get(StoreTable::Keys, b"empty").unwrap(), Some(vec![]));
        store.apply(Transaction::new().put(StoreTable::Keys, b"a", b"2")).unwrap();
        assert_eq!(store.get(StoreTable::Keys, b"a").unwrap(), Some(b"2".to_vec()));
        store
            .apply(Transaction::new().delete(StoreTable::Keys, b"a").delete(StoreTable::Keys, b"never"))
            .unwrap();
        assert_eq!(store.get(StoreTable::Keys, b"a").unwrap(), None);
    });
}

#[test]
fn spaces_do_not_see_each_other() {
    each_engine(|store| {
        for space in StoreTable::ALL {
            store.apply(Transaction::new().put(space, b"same", [space.tag()])).unwrap();
        }
        for space in StoreTable::ALL {
            assert_eq!(store.get(space, b"same").unwrap(), Some(vec![space.tag()]));
            assert_eq!(keys(&**store, space, b"", None, 10), [b"same"]);
        }
    });
}

#[test]
fn random_write_batches_match_a_plain_map() {
    each_engine(|store| {
        let mut random = StdRng::seed_from_u64(7);
        let mut model: BTreeMap<(StoreTable, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for _ in 0..400 {
            let mut batch = Transaction::new();
            let mut after = model.clone();
            let mut holds = true;
            for _ in 0..random.random_range(1..8) {
                let space = StoreTable::ALL[random.random_range(0..3)];
                let key = vec![random.random_range(0..12_u8)];
                let at = (space, key.clone());
                let value = vec![random.random_range(0..4_u8); random.random_range(0..300)];
                match random.random_range(0..10) {
                    0 => {
                        holds &= !after.contains_key(&at);
                        batch = batch.require_absent(space, key);
                    }
                    1 => {
                        holds &= after.contains_key(&at);
                        batch = batch.require_present(space, key);
                    }
                    2 => {
                        let value = after.get(&at).cloned().unwrap_or(value);
                        holds &= after.get(&at) == Some(&value);
                        batch = batch.require_value(space, key, value);
                    }
                    3 | 4 => {
                        after.remove(&at);
                        batch = batch.delete(space, key);
                    }
                    _ => {
                        after.insert(at, value.clone());
                        batch = batch.put(space, key, value);
                    }
                }
            }
            assert_eq!(store.apply(batch).is_ok(), holds);
            if holds {
                model = after;
            }
        }
        assert!(!model.is_empty());
        let mut rows = BTreeMap::new();
        store
            .copy_rows(&mut |row| {
                rows.insert((row.table, row.key.to_vec()), row.value.unwrap().to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, model);
        assert_eq!(store.verify().unwrap().rows, model.len() as u64);
    });
}
