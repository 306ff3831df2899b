//! Exports and rows that are read from a disk: each is refused as damaged, or survives a round trip.

use penstock_storage::accounts::AccountStore;
use penstock_storage::batches::BatchStore;
use penstock_storage::files::FileStore;
use penstock_storage::keys::KeyStore;
use penstock_storage::{StoreTable, Transaction, export, import, open_in_memory};

pub fn check(bytes: &[u8]) {
    let store = open_in_memory();
    if import(&*store, &mut &bytes[..]).is_ok() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        export(&*store, &mut first).expect("what was read can be written");
        let other = open_in_memory();
        import(&*other, &mut &first[..]).expect("what was written can be read");
        export(&*other, &mut second).expect("and written");
        assert_eq!(first, second);
    }
    // Stores the same bytes as a row of each table.
    let spaces = [StoreTable::Files, StoreTable::Batches, StoreTable::Keys, StoreTable::Accounts];
    let store = open_in_memory();
    let rows = spaces.into_iter().fold(Transaction::new(), |batch, space| batch.put(space, *b"k", bytes));
    if store.apply(rows).is_err() {
        return;
    }
    if let Ok(Some(file)) = FileStore::new(store.clone()).get("k") {
        let (_, _, row) = FileStore::encoded_row(&file).expect("what was read can be written");
        let again = open_in_memory();
        again.apply(Transaction::new().put(StoreTable::Files, *b"k", row)).expect("a row");
        assert_eq!(FileStore::new(again).get("k").ok().flatten(), Some(file));
    }
    let _ = FileStore::new(store.clone()).list_all(None, 10);
    let _ = BatchStore::new(store.clone()).get("k");
    let _ = KeyStore::new(store.clone()).get("k");
    let _ = AccountStore::new(store).get("k");
}
