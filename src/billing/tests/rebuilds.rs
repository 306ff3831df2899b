//! Tests of a rebuild from the ledger's replica files.

use super::*;
use crate::billing::rebuild::rebuild_ledger;
use penstock_ledger::{HashChain, LedgerEntry};

#[test]
fn terms_that_were_recorded_twice_are_rebuilt() {
    let (dir, mut chain, mut text) = (tempfile::tempdir().unwrap(), HashChain::default(), Vec::new());
    let grant = |id: &str, amount| EntryKind::Grant {
        id: id.into(),
        wallet: Wallet::Credits,
        amount,
        note: "".into(),
        by: "me".into(),
    };
    let terms = || EntryKind::Terms { id: "t".into(), terms: "{}".into() };
    let entries = [("acme", grant("a", 5)), ("", terms()), ("acme", grant("b", 7)), ("", terms())];
    for (account, kind) in entries {
        let entry = LedgerEntry { seq: chain.seq + 1, at: 1_795_305_600, account: account.into(), kind };
        chain.append(&entry, &mut text).unwrap();
    }
    std::fs::write(dir.path().join("2026-11.jsonl"), text).unwrap();
    let store: Arc<dyn Store> = open_in_memory();
    for _ in 0..2 {
        // A second rebuild counts nothing twice.
        assert_eq!(rebuild_ledger(&store, dir.path()).map_err(|failed| failed.0).unwrap(), 4);
        let ledger = LedgerStore::open_read_only(store.clone());
        assert_eq!(ledger.balance("acme").unwrap().unwrap().credits, 12);
        assert_eq!(ledger.entry_number("terms t").unwrap(), Some(2));
        assert!(report::verify(&ledger).unwrap().is_intact());
    }
}
