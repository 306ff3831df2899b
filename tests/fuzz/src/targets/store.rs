//! What is read from a disk: exports and rows, however broken, are refused or are themselves when written again.

use penstock_storage::accounts::AccountStore;
use penstock_storage::batches::BatchStore;
use penstock_storage::files::FileStore;
use penstock_storage::keys::KeyStore;
use penstock_storage::{Batch, Space, export, import, memory};

pub fn check(bytes: &[u8]) {
    let store = memory();
    if import(&*store, &mut &bytes[..]).is_ok() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        export(&*store, &mut first).expect("what was read can be written");
        let other = memory();
        import(&*other, &mut &first[..]).expect("what was written can be read");
        export(&*other, &mut second).expect("and written");
        assert_eq!(first, second);
    }
    // The same bytes as a row of each kind.
    let spaces = [Space::Files, Space::Batches, Space::Keys, Space::Accounts];
    let store = memory();
    let rows = spaces.into_iter().fold(Batch::new(), |batch, space| batch.put(space, *b"k", bytes));
    if store.apply(rows).is_err() {
        return;
    }
    if let Ok(Some(file)) = FileStore::new(store.clone()).get("k") {
        let (_, _, row) = FileStore::row(&file).expect("what was read can be written");
        let again = memory();
        again.apply(Batch::new().put(Space::Files, *b"k", row)).expect("a row");
        assert_eq!(FileStore::new(again).get("k").ok().flatten(), Some(file));
    }
    let _ = FileStore::new(store.clone()).all(None, 10);
    let _ = BatchStore::new(store.clone()).get("k");
    let _ = KeyStore::new(store.clone()).get("k");
    let _ = AccountStore::new(store).get("k");
}
