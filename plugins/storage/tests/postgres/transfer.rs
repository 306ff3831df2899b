//! Exports and imports between engines, checks, and refused databases.

use crate::{elsewhere, server::PostgresServer};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::{KeyDigest, KeyRecord, KeyStore};
use penstock_storage::{
    PostgresOptions, Store, StoreError, StoreOptions, StoreTable, Transaction, begin_import, check_postgres,
    export, finish_import, import, open, open_postgres,
};

fn key(number: u32) -> KeyRecord {
    KeyRecord {
        name: "k".to_owned(),
        ..KeyRecord::new(format!("{number:016}"), KeyDigest([7; 32]), "acme", 1)
    }
}

fn audited(what: &str) -> ChangeDescription {
    let [who, target] = ["test", "k"].map(str::to_owned);
    ChangeDescription { at: 1, who, what: what.to_owned(), target, change: serde_json::Value::Null }
}

fn filled(store: &dyn Store) {
    for table in StoreTable::ALL {
        let rows = (0..700_u16).fold(Transaction::new(), |batch, n| {
            batch.put(table, n.to_be_bytes(), vec![table.tag(); usize::from(n) % 90])
        });
        store.apply(rows).unwrap();
    }
}

fn exported(store: &dyn Store) -> Vec<u8> {
    let mut lines = Vec::new();
    export(store, &mut lines).unwrap();
    lines
}

#[test]
fn an_export_moves_to_the_database_and_back_unchanged() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = elsewhere(&server.options(), &folder);
    let embedded = StoreOptions { ballast_bytes: 0, ..StoreOptions::default() };
    let sled = open(&folder.path().join("first"), embedded).unwrap();
    filled(&*sled);
    let rows = exported(&*sled);
    let database = begin_import(&options).unwrap();
    assert_eq!(import(&*database, &mut &rows[..]).unwrap(), StoreTable::ALL.len() as u64 * 700);
    finish_import(&options).unwrap();
    drop(database);
    let database = crate::reopen(&options).unwrap();
    let back = exported(&*database);
    assert_eq!(back, rows);
    let sled = open(&folder.path().join("second"), embedded).unwrap();
    import(&*sled, &mut &back[..]).unwrap();
    assert_eq!(exported(&*sled), rows);
    drop(database);
    let refused = begin_import(&options).unwrap_err();
    assert!(refused.to_string().contains("an import needs an empty store"), "{refused}");
}

#[test]
fn a_database_with_an_unfinished_import_is_refused_until_the_import_is_repeated() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = elsewhere(&server.options(), &folder);
    let store = begin_import(&options).unwrap();
    store.apply(Transaction::new().put(StoreTable::Keys, b"half", b"")).unwrap();
    drop(store);
    let refused = crate::reopen(&options).unwrap_err();
    assert!(refused.to_string().contains("repeat `penstock store import`"), "{refused}");
    let store = begin_import(&options).unwrap();
    assert_eq!(store.verify().unwrap().rows, 0);
    finish_import(&options).unwrap();
    drop(store);
    crate::reopen(&options).unwrap();
}

#[test]
fn a_check_changes_nothing_and_names_what_is_missing() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = elsewhere(&server.options(), &folder);
    let report = check_postgres(&options).unwrap();
    assert!(!report.has_tables && report.server_version.starts_with(|digit: char| digit.is_ascii_digit()));
    assert!(report.warnings.iter().any(|warning| warning.contains("fsync")), "{report:?}");
    let store = open_postgres(&options).unwrap();
    let report = check_postgres(&options).unwrap();
    assert!(report.has_tables && report.valid_keys == 0);
    let keys = KeyStore::new(store);
    for number in 0..3 {
        keys.insert(&key(number), &audited("key.create")).unwrap();
    }
    keys.revoke(&key(1).id, &audited("key.revoke")).unwrap();
    assert_eq!(check_postgres(&options).unwrap().valid_keys, 2);
    drop(keys);
    let nowhere = PostgresOptions { url: options.url.replace("penstock-pg", "no-pg"), ..options.clone() };
    let unreachable = check_postgres(&nowhere).unwrap_err();
    assert!(matches!(unreachable, StoreError::Unreachable { .. }), "{unreachable:?}");
    // Connects to the server itself, because the pooler of these tests uses one database user for all clients.
    let url = options.url.replace("/pooler", "").replace("user=penstock", "user=nobody");
    let stranger = PostgresOptions { url, ..options.clone() };
    let refused = check_postgres(&stranger).unwrap_err();
    assert!(matches!(&refused, StoreError::Database { what } if what.contains("nobody")), "{refused:?}");
}

#[test]
fn a_damaged_row_is_found_and_not_returned() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = elsewhere(&server.options(), &folder);
    let store = open_postgres(&options).unwrap();
    store
        .apply(Transaction::new().put(StoreTable::Keys, b"a", b"1").put(StoreTable::Keys, b"b", b"2"))
        .unwrap();
    server.execute(&format!("update {}.keys set value = 'x' where key = 'a'", options.schema));
    assert!(matches!(store.get(StoreTable::Keys, b"a"), Err(StoreError::Corrupt { .. })));
    let verified = store.verify().unwrap();
    assert_eq!((verified.rows, verified.damaged), (1, 1));
}

#[test]
fn a_table_that_came_later_is_added_to_an_older_database() {
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let options = elsewhere(&server.options(), &folder);
    let store = open_postgres(&options).unwrap();
    store.apply(Transaction::new().put(StoreTable::Keys, b"a", b"1")).unwrap();
    drop(store);
    server.execute(&format!("drop table {}.figures", options.schema));
    let store = crate::reopen(&options).unwrap();
    store.apply(Transaction::new().put(StoreTable::Measurements, b"b", b"2")).unwrap();
    assert_eq!(store.verify().unwrap().rows, 2);
}
