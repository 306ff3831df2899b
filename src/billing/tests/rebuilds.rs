//! Tests of a rebuild from the ledger's replica files.

use super::*;
use crate::billing::rebuild::rebuild_ledger;
use penstock_ledger::{HashChain, LedgerEntry};
use penstock_storage::fleet::{Fleet, HeartbeatReport, PoolAmount, SharedFleet, credit_pool_name};

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
        assert_eq!(
            rebuild_ledger(&store, dir.path()).map_err(|failed| failed.to_string()).unwrap().entries,
            4
        );
        let ledger = LedgerStore::open_read_only(store.clone());
        assert_eq!(ledger.balance("acme").unwrap().unwrap().credits, 12);
        assert_eq!(ledger.entry_number_by_name("terms t").unwrap(), Some(2));
        assert!(report::verify(&ledger).unwrap().is_intact());
    }
}

#[test]
fn a_rebuild_without_the_chain_of_another_gateway_is_refused_and_pools_are_filled_anew() {
    let (dir, store) = (tempfile::tempdir().unwrap(), open_in_memory());
    let grant = |account: &str, chain: &mut HashChain, text: &mut Vec<u8>| {
        let kind = EntryKind::Grant {
            id: account.into(),
            wallet: Wallet::Credits,
            amount: 5,
            note: "".into(),
            by: "me".into(),
        };
        let entry = LedgerEntry { seq: chain.seq + 1, at: 1_795_305_600, account: account.into(), kind };
        chain.append(&entry, text).unwrap();
    };
    for (name, first) in [("2026-11.jsonl", 0), ("2026-11.1.jsonl", 1_u64 << 33)] {
        let (mut chain, mut text) = (HashChain { seq: first, ..HashChain::default() }, Vec::new());
        grant(&format!("account-{first}"), &mut chain, &mut text);
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    assert_eq!(rebuild_ledger(&store, dir.path()).map_err(|failed| failed.to_string()).unwrap().entries, 2);
    let fleet = SharedFleet::new(store.clone());
    let mut member = fleet.join("a").map_err(|error| format!("{error:?}")).unwrap();
    fleet.open_pools(&mut member, None).unwrap();
    // Filling the pools sends heartbeats, and the next heartbeat follows them.
    assert!(member.beat > 0);
    fleet.heartbeat(member, &HeartbeatReport::default()).map_err(|error| format!("{error:?}")).unwrap();
    store
        .apply(SharedFleet::credit_pool_operations(&PoolAmount {
            pool: credit_pool_name("account-0"),
            amount: 70,
        }))
        .unwrap();
    assert_eq!(fleet.available_amount(&credit_pool_name("account-0")), Ok(75));
    assert_eq!(rebuild_ledger(&store, dir.path()).map_err(|failed| failed.to_string()).unwrap().entries, 2);
    let mut member = fleet.join("b").map_err(|error| format!("{error:?}")).unwrap();
    fleet.open_pools(&mut member, None).unwrap();
    assert_eq!(fleet.available_amount(&credit_pool_name("account-0")), Ok(5));
    std::fs::remove_file(dir.path().join("2026-11.1.jsonl")).unwrap();
    let refused = rebuild_ledger(&store, dir.path()).map_err(|failed| failed.to_string()).unwrap_err();
    assert!(refused.contains("lacks chain 1 of the ledger"), "{refused}");
    let ledger = LedgerStore::open_read_only(store);
    assert_eq!(ledger.balance("account-8589934592").unwrap().unwrap().credits, 5, "nothing was removed");
}

#[test]
fn an_incomplete_last_line_is_removed_once_the_ledger_is_rebuilt() {
    let (mut chain, mut lines) = (HashChain::default(), Vec::new());
    for (number, at) in [(1, 1_793_487_600), (2, 1_795_305_600), (3, 1_795_305_600)] {
        let (id, note, by) = (format!("g{number}").into(), "".into(), "me".into());
        let kind = EntryKind::Grant { id, wallet: Wallet::Credits, amount: 5, note, by };
        let mut line = Vec::new();
        let entry = LedgerEntry { seq: number, at, account: "acme".into(), kind };
        chain.append(&entry, &mut line).unwrap();
        lines.push(line);
    }
    let [first, second, third] = &lines[..] else { panic!() };
    let zeros = vec![0; 100_000];
    let rebuild = |october: &[u8], november: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let files = ["2026-10.jsonl", "2026-11.jsonl"].map(|name| dir.path().join(name));
        std::fs::write(&files[0], october).unwrap();
        std::fs::write(&files[1], november).unwrap();
        let store: Arc<dyn Store> = open_in_memory();
        let rebuilt = rebuild_ledger(&store, dir.path()).map_err(|failed| failed.to_string())?;
        // The rebuilt store continues its ledger in the same replica files.
        LedgerStore::open(store, Some(dir.path())).unwrap();
        let left = files.map(|file| std::fs::read(file).unwrap()).concat();
        Ok::<_, String>((rebuilt.entries, rebuilt.shortened_files.len(), left))
    };
    for length in 0..third.len() {
        let expected = (2, usize::from(length > 0), [&first[..], second].concat());
        assert_eq!(rebuild(first, &[&second[..], &third[..length]].concat()), Ok(expected), "{length}");
    }
    assert_eq!(rebuild(first, &zeros), Ok((1, 1, first.clone())));
    assert_eq!(rebuild(&[&first[..], &zeros].concat(), &second[..9]), Ok((1, 2, first.clone())));
    for (october, november) in [
        (first[..40].to_vec(), second.clone()),
        (first.clone(), [&second[..40], third].concat()),
        (first.clone(), [&second[..40], b"\n"].concat()),
    ] {
        assert!(rebuild(&october, &november).unwrap_err().starts_with("Entry "), "{november:?}");
    }
}

#[test]
fn a_copy_that_is_behind_is_completed_when_the_ledger_is_closed() {
    let (dir, store) = (tempfile::tempdir().unwrap(), open_in_memory());
    let (copies, elsewhere) = (dir.path().join("ledger"), dir.path().join("elsewhere"));
    let open = || Arc::new(LedgerStore::open(store.clone(), Some(&copies)).unwrap());
    let ledger = Ledger::open(open(), &settings(QUICK).ledger, ProcessClock::start()).unwrap();
    // The first file cannot be created, as on a full disk.
    std::fs::rename(&copies, &elsewhere).unwrap();
    grant(&ledger, "g", 1_000).unwrap();
    assert!(!ledger.durability_snapshot().is_replica_current);
    std::fs::rename(&elsewhere, &copies).unwrap();
    ledger.close();
    assert_eq!(LedgerStore::open_for_comparison(store.clone(), &copies).compare_replica().unwrap(), [""; 0]);
    drop(ledger);
    assert_eq!(open().take_replica_repairs(), []);
}
