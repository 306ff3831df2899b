//! Ledger that several processes write on one database: a chain each, shared balances, names and rollups.

use crate::fleet::three_stores;
use crate::server::PostgresServer;
use penstock_core::entry_number::{chain_of, number_before_chain, sequence_in_chain};
use penstock_core::usage_row::{USAGE_ROW_VERSION, UsageRow};
use penstock_storage::fleet::{Fleet, Incarnation, PoolAmount, SharedFleet, credit_pool_name};
use penstock_storage::ledger::{
    BalanceRecord, ChainClaim, CommitConflict, EntryBlock, LedgerCommit, LedgerStore, LedgerTip,
};
use penstock_storage::{Store, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const COMMITS: u64 = 60;
const ROLLUP: &[u8] = b"acme\0hour and names";

/// Ledger of one process.
fn member(store: &Arc<dyn Store>) -> LedgerStore {
    let incarnation = SharedFleet::new(store.clone()).join("a gateway").unwrap().id;
    LedgerStore::open_member(store.clone(), None, ChainClaim::take(&**store, incarnation).unwrap()).unwrap()
}

fn usage(requests: u64, credits: &str) -> Vec<u8> {
    let outcome = "charged".into();
    UsageRow { v: USAGE_ROW_VERSION, outcome, requests, credits: credits.into(), ..UsageRow::default() }
        .to_json()
}

/// Returns the commit of the next entry: a charge of 1, and with `granted` also a grant of this amount under this
/// name.
fn commit(ledger: &LedgerStore, tip: Option<LedgerTip>, granted: Option<(&str, i64)>) -> LedgerCommit {
    let last = tip.map_or(number_before_chain(ledger.chain()), |tip| tip.seq) + 1;
    let pool = credit_pool_name("acme");
    let amount = granted.map_or(0, |(_, amount)| amount);
    LedgerCommit {
        previous_tip: tip,
        new_tip: LedgerTip {
            seq: last,
            hash: [7; 32],
            at: 1,
            first_open: last + 1,
            are_rollups_complete: true,
        },
        blocks: vec![EntryBlock {
            month: "2026-11".to_owned(),
            last,
            text: format!("{last}\n").into_bytes(),
        }],
        balance_changes: vec![("acme".to_owned(), BalanceRecord { credits: amount - 1, energy: 0 })],
        names: granted.iter().map(|(name, _)| ((*name).to_owned(), last)).collect(),
        rollup_changes: vec![(ROLLUP.to_vec(), usage(1, "3"))],
        spent: vec![PoolAmount { pool: pool.clone(), amount: 1 }],
        credited: granted.iter().map(|_| PoolAmount { pool: pool.clone(), amount }).collect(),
        ..LedgerCommit::default()
    }
}

/// Appends a commit, with retries while the database is unreachable; returns the conflict if the commit is refused.
fn append(ledger: &LedgerStore, commit: &LedgerCommit) -> Option<CommitConflict> {
    loop {
        match ledger.append(commit) {
            Ok(_) => return None,
            Err(StoreError::Guard { .. }) => loop {
                if let Ok(conflict) = ledger.commit_conflict(commit) {
                    return Some(conflict);
                }
            },
            Err(_) => {}
        }
    }
}

#[test]
fn members_that_start_together_claim_different_chains() {
    let server = PostgresServer::start();
    let (_folders, stores) = three_stores(&server);
    let chains: BTreeSet<u32> = std::thread::scope(|scope| {
        let claims: Vec<_> = (0..9)
            .map(|number| {
                let store = &stores[number % stores.len()];
                scope.spawn(move || member(store).chain())
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!(chains, (0..9).collect());
}

#[test]
fn commits_of_three_processes_add_up_and_a_name_is_used_once() {
    let mut server = PostgresServer::start();
    let (_folders, stores) = three_stores(&server);
    let ledgers: Vec<LedgerStore> = stores.iter().map(member).collect();
    let granted = AtomicU64::new(0);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for ledger in &ledgers {
            scope.spawn(|| {
                for number in 0..COMMITS {
                    let name = format!("grant {number}");
                    let tip = ledger.tip().unwrap_or_else(|_| {
                        loop {
                            if let Ok(tip) = ledger.tip() {
                                break tip;
                            }
                        }
                    });
                    let with_grant = commit(ledger, tip, Some((&name, 100)));
                    match append(ledger, &with_grant) {
                        None => drop(granted.fetch_add(1, Ordering::Relaxed)),
                        Some(CommitConflict::NamesInUse(used)) => {
                            assert_eq!(used[0].0, name);
                            assert_ne!(chain_of(used[0].1), ledger.chain());
                            assert_eq!(append(ledger, &commit(ledger, tip, None)), None);
                        }
                        Some(other) => panic!("{other:?}"),
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while written.load(Ordering::Relaxed) < COMMITS {
            std::thread::yield_now();
        }
        server.crash();
        server.restart();
    });
    let (ledger, total) = (&ledgers[0], 3 * COMMITS);
    assert_eq!(granted.into_inner(), COMMITS, "each name is used by one of them");
    let balance = i64::try_from(100 * COMMITS - total).unwrap();
    assert_eq!(ledger.balance("acme").unwrap().unwrap().credits, balance);
    assert_eq!(ledger.rollup(ROLLUP).unwrap().unwrap(), usage(total, &(3 * total).to_string()));
    for (chain, tip) in ledger.chains().unwrap() {
        assert_eq!((chain_of(tip.seq), sequence_in_chain(tip.seq)), (chain, COMMITS));
        let mut numbers = Vec::new();
        let read = ledger.for_each_block(number_before_chain(chain), |block| {
            numbers.push(block.last);
            Ok::<_, StoreError>(())
        });
        read.unwrap();
        assert_eq!(numbers, (number_before_chain(chain) + 1..=tip.seq).collect::<Vec<_>>());
    }
    let fleet = SharedFleet::new(stores[0].clone());
    let parts: i64 = ledgers
        .iter()
        .map(|ledger| Incarnation { id: ledger.claim().unwrap().incarnation(), beat: 0 })
        .flat_map(|incarnation| fleet.pool_parts(incarnation).unwrap())
        .map(|part| part.amount)
        .sum();
    assert_eq!(parts + fleet.available_amount(&credit_pool_name("acme")).unwrap(), balance);
}

#[test]
fn a_buried_process_commits_nothing_and_the_next_one_continues_its_chain() {
    let server = PostgresServer::start();
    let (_folders, stores) = three_stores(&server);
    let (one, other) = (member(&stores[0]), member(&stores[1]));
    let first = commit(&one, None, Some(("grant a", 50)));
    assert_eq!(append(&one, &first), None);
    let fleet = SharedFleet::new(stores[1].clone());
    let peer =
        fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == one.claim().unwrap().incarnation());
    assert!(fleet.evict(&peer.unwrap()).unwrap());
    let late = commit(&one, Some(first.new_tip), None);
    let rows =
        LedgerCommit { previous_tip: Some(first.new_tip), new_tip: first.new_tip, ..LedgerCommit::default() };
    for refused in [&late, &rows] {
        assert_eq!(append(&one, refused), Some(CommitConflict::Fenced));
    }
    assert_eq!(append(&one, &first), None, "an earlier commit is known to be written");
    let next = member(&stores[2]);
    assert_eq!((next.chain(), next.tip().unwrap()), (0, Some(first.new_tip)));
    assert_eq!(append(&next, &late), None);
    assert_eq!(append(&one, &commit(&one, Some(late.new_tip), None)), Some(CommitConflict::Fenced));
    assert_eq!(append(&other, &commit(&other, None, None)), None);
    assert_eq!(one.balance("acme").unwrap().unwrap().credits, 49 - 1 - 1);
}
