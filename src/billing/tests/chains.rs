//! Tests of several ledgers on one store, as the members of a fleet have them: each writes its own chain, and together
//! they lose and duplicate no entry.

use super::rollups::{Operations, assert_equal_to_ledger};
use super::*;
use crate::billing::rebuild::rebuild_ledger;
use crate::billing::rollups::rebuild;
use penstock_core::entry_number::{chain_of, sequence_in_chain};
use penstock_ledger::{CorrectedKind, HashChain, LedgerEntry, split_lines};
use penstock_storage::fleet::{Fleet, SharedFleet, credit_pool_name};
use penstock_storage::ledger::ChainClaim;
use std::path::Path;

/// Member of a fleet with its ledger.
struct Member {
    incarnation: u32,
    ledger: Arc<Ledger>,
}

fn join(store: &Arc<Flaky>, text: &str) -> Member {
    join_with_copies(store, text, None)
}

fn join_with_copies(store: &Arc<Flaky>, text: &str, copies: Option<&Path>) -> Member {
    let incarnation = SharedFleet::new(store.clone()).join("a gateway").unwrap().id;
    Member { incarnation, ledger: continue_member(store, incarnation, text, copies) }
}

/// Opens the ledger of a member that has joined.
fn continue_member(store: &Arc<Flaky>, incarnation: u32, text: &str, copies: Option<&Path>) -> Arc<Ledger> {
    let claim = ChainClaim::take(&**store, incarnation).unwrap();
    let book = LedgerStore::open_member(store.clone(), copies, claim).unwrap();
    Ledger::open(Arc::new(book), &settings(text).ledger, ProcessClock::start()).unwrap()
}

/// Gives a member an amount that it may spend, as a lease does.
fn lease(member: &Member, amount: i64) {
    member.ledger.account_balance("acme").add_amount(Wallet::Credits, amount);
}

/// Ends the membership of an incarnation, as its peers do when it is dead.
fn evict(store: &Arc<Flaky>, incarnation: u32) {
    let fleet = SharedFleet::new(store.clone());
    let peer = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == incarnation).unwrap();
    assert!(fleet.evict(&peer).unwrap());
}

/// Reads all entries, with a position of one number or of one for each chain.
fn entries(store: &LedgerStore, by_chain: bool) -> Vec<LedgerEntry> {
    let (mut all, mut position) = (Vec::new(), vec![0]);
    while let Some((text, last)) = report::read_text_page(store, &position).unwrap() {
        for line in split_lines(&text) {
            all.push(HashChain::parse_unverified(line).unwrap().0);
        }
        position = if by_chain {
            let ends = all.iter().map(|entry: &LedgerEntry| (chain_of(entry.seq), entry.seq));
            let ends: std::collections::BTreeMap<u32, u64> = ends.collect();
            ends.into_values().chain([0]).collect()
        } else {
            vec![last]
        };
    }
    all
}

/// Checks that the ledger is whole and the rollups and balances are its sums.
fn assert_whole(store: &Arc<Flaky>) -> report::LedgerVerification {
    let book = LedgerStore::open_read_only(store.clone());
    let proof = report::verify(&book).unwrap();
    assert!(proof.is_intact(), "{proof:?}");
    let check = rebuild::verify(&book).unwrap();
    assert!(check.is_intact() && check.entries == proof.entries, "{check:?}");
    proof
}

fn stored_balance(store: &Arc<Flaky>) -> i64 {
    LedgerStore::open_read_only(store.clone()).balance("acme").unwrap().unwrap().credits
}

#[test]
fn members_that_write_at_the_same_time_lose_and_double_nothing() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Flaky::over(open_in_memory()));
    let folder = |number: usize| dir.path().join(number.to_string());
    let members: Vec<Member> =
        (0..3).map(|number| join_with_copies(&store, QUICK, Some(&folder(number)))).collect();
    let granted = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for (seed, member) in (1..).zip(&members) {
            let granted = &granted;
            scope.spawn(move || {
                let mut operations = Operations::new(seed);
                for number in 0..150 {
                    operations.push_request(&member.ledger);
                    // All members request the same grant ids; each id is granted by one of them.
                    if number >= 100
                        && number % 5 == 0
                        && grant(&member.ledger, &format!("g{number}"), 1_000).is_ok()
                    {
                        granted.fetch_add(1_000, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    members.iter().for_each(|member| member.ledger.close());
    let book = LedgerStore::open_read_only(store.clone());
    assert_eq!(granted.into_inner(), 10 * 1_000);
    assert_eq!(book.chains().unwrap().iter().map(|(chain, _)| *chain).collect::<Vec<_>>(), [0, 1, 2]);
    let proof = assert_whole(&store);
    assert_equal_to_ledger(&book);
    let all = entries(&book, true);
    assert_eq!(all.len() as u64, proof.entries);
    let terms = all.iter().filter(|entry| matches!(entry.kind, EntryKind::Terms { .. })).count();
    assert_eq!(terms, 2, "each terms are recorded by one of the members");
    assert_eq!(all, entries(&book, false));
    assert!(all.is_sorted_by_key(|entry| (entry.at, entry.seq)), "in the order of time");
    // The balance is the pool plus the leases in the store, which the charges make negative here.
    let fleet = SharedFleet::new(store.clone());
    let parts = members.iter().flat_map(|member| {
        fleet.pool_parts(penstock_storage::fleet::Incarnation { id: member.incarnation, beat: 0 }).unwrap()
    });
    let spent: i64 = parts.filter(|part| part.pool == credit_pool_name("acme")).map(|part| part.amount).sum();
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")).unwrap(), 10 * 1_000);
    assert!(spent < 0 && stored_balance(&store) == 10 * 1_000 + spent, "{spent}");
    assert_rebuilt_equal(&store, &[0, 1, 2].map(folder), &dir.path().join("all"));
}

/// Rebuilds the ledger from the files of all members in one folder, and compares the result.
fn assert_rebuilt_equal(store: &Arc<Flaky>, folders: &[std::path::PathBuf], to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(Result::unwrap) {
        assert!(!to.join(file.file_name()).exists(), "each chain has its own files");
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let rebuilt = Flaky::over(open_in_memory());
    let engine: Arc<dyn Store> = rebuilt.clone();
    let count = rebuild_ledger(&engine, to).map_err(|failed| failed.to_string()).unwrap().entries;
    assert_eq!(count, assert_whole(&rebuilt).entries);
    let (one, other) =
        (LedgerStore::open_read_only(store.clone()), LedgerStore::open_for_comparison(engine, to));
    assert_eq!(one.balances().unwrap(), other.balances().unwrap());
    assert_eq!(entries(&one, true), entries(&other, true));
    let tips = |book: &LedgerStore| book.chains().unwrap();
    let without_open =
        |(chain, tip): &(u32, penstock_storage::ledger::LedgerTip)| (*chain, tip.seq, tip.hash);
    assert!(tips(&one).iter().map(without_open).eq(tips(&other).iter().map(without_open)));
    assert_eq!(other.compare_replica().unwrap(), Vec::<String>::new());
}

#[test]
fn a_name_that_another_member_used_meanwhile_leaves_the_rest_of_the_group() {
    let inner: Arc<dyn Store> = open_in_memory();
    let (slow, quick) = (Flaky::over(inner.clone()), Flaky::over(inner));
    let long = "[ledger]\nwindow = \"1h\"\n";
    let (one, other) = (join(&slow, long), join(&quick, QUICK));
    grant(&one.ledger, "first", 1_000).unwrap();
    lease(&one, 500);
    lease(&other, 500);
    slow.stalls.store(true, Ordering::Release);
    let begun = slow.begun.load(Ordering::Acquire);
    reserve(&one.ledger, "before", 50).unwrap().settle(charge(20));
    let still_open = reserve(&one.ledger, "open", 70).unwrap();
    std::thread::scope(|scope| {
        let same = scope.spawn(|| grant(&one.ledger, "same", 7));
        let again = scope.spawn(|| grant(&one.ledger, "same", 7));
        let own = scope.spawn(|| grant(&one.ledger, "own", 11));
        until("the group to be drafted", || slow.begun.load(Ordering::Acquire) > begun);
        // The other member records the same terms and the same grant, while the commit of the first group is blocked.
        reserve(&other.ledger, "elsewhere", 30).unwrap().settle(charge(5));
        let made = grant(&other.ledger, "same", 7).unwrap();
        assert_eq!(chain_of(made), 1);
        reserve(&one.ledger, "after", 10).unwrap().settle(charge(3));
        slow.stalls.store(false, Ordering::Release);
        let results = [same, again].map(|asked| asked.join().unwrap());
        assert_eq!(results, [Err(AdjustmentError::Duplicate(made)); 2]);
        assert!(own.join().unwrap().is_ok());
    });
    assert_eq!((one.ledger.durability_snapshot().open, one.ledger.is_failing()), (1, false));
    still_open.settle(charge(40));
    one.ledger.close();
    other.ledger.close();
    let proof = assert_whole(&quick);
    // Three grants (first, same, own), the terms once, and four charges with a reserve each: three of one member, one
    // of the other.
    assert_eq!((proof.entries, proof.open_reservations), (3 + 1 + 2 * 4, 0));
    assert_eq!(stored_balance(&quick), 1_000 + 7 + 11 - 20 - 40 - 3 - 5);
    let book = LedgerStore::open_read_only(quick.clone());
    let of_grants = |name: &str| chain_of(book.entry_number_by_name(name).unwrap().unwrap());
    assert_eq!((of_grants("grant same"), of_grants("grant own"), of_grants("terms t")), (1, 0, 1));
}

#[test]
fn a_correction_of_another_members_charge_is_made_once() {
    let store = Flaky::over(open_in_memory());
    let members = [join(&store, QUICK), join(&store, QUICK)];
    grant(&members[0].ledger, "g", 1_000).unwrap();
    lease(&members[0], 500);
    reserve(&members[0].ledger, "r", 90).unwrap().settle(charge(90));
    settled(&members[0].ledger);
    let book = LedgerStore::open_read_only(store.clone());
    let charge = entries(&book, true).into_iter().find(|entry| entry.kind.name() == "settle").unwrap();
    let correct = |member: &Member, id: &str| {
        let act = EntryKind::Correct {
            id: id.into(),
            of: charge.seq,
            what: CorrectedKind::Settle,
            key: Some("key".into()),
            wallet: Wallet::Credits,
            previous_amount: 90,
            new_amount: 30,
            eur: Decimal::new(60, 8),
            note: "".into(),
            by: "me".into(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(member.ledger.record_correction("acme", act, None))
    };
    let made = correct(&members[1], "c1").unwrap();
    assert_eq!((chain_of(made), sequence_in_chain(made)), (1, 1));
    assert_eq!(correct(&members[0], "c2"), Err(AdjustmentError::Duplicate(made)));
    assert_eq!(stored_balance(&store), 1_000 - 30);
    assert_whole(&store);
}

#[test]
fn a_fenced_member_writes_nothing_more() {
    let store = Flaky::over(open_in_memory());
    let (one, other) = (join(&store, QUICK), join(&store, QUICK));
    grant(&one.ledger, "g1", 1_000).unwrap();
    lease(&one, 500);
    let hold = reserve(&one.ledger, "r1", 100).unwrap();
    until("it to be written", || one.ledger.durability_snapshot().waiting == 0);
    let tip = one.ledger.store.tip().unwrap();
    evict(&store, one.incarnation);
    let ticket = hold.settle(charge(60));
    until("the fence to be known", || one.ledger.is_failing());
    let refused = reserve(&one.ledger, "r2", 1).err().unwrap();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(!runtime.block_on(one.ledger.wait_durable(ticket)), "it never will be");
    assert_eq!(grant(&one.ledger, "g2", 5), Err(AdjustmentError::StoreFailing));
    assert!(one.ledger.durability_snapshot().exhausted && one.ledger.is_failing());
    assert_eq!((one.ledger.store.tip().unwrap(), stored_balance(&store)), (tip, 1_000));
    // The chain's next writer voids the reservation, and the first member writes nothing after that.
    let next = join(&store, QUICK);
    assert_eq!(next.ledger.store.chain(), 0);
    settled(&next.ledger);
    one.ledger.close();
    assert!(one.ledger.is_failing());
    grant(&other.ledger, "g3", 1).unwrap();
    assert_eq!((assert_whole(&store).open_reservations, stored_balance(&store)), (0, 1_001));
}

#[test]
fn a_member_whose_chain_another_one_has_writes_nothing_more() {
    let store = Flaky::over(open_in_memory());
    let one = join(&store, QUICK);
    grant(&one.ledger, "g1", 1_000).unwrap();
    lease(&one, 500);
    // Simulates that another member took the claim while the incarnation counts as alive.
    let other = SharedFleet::new(store.clone()).join("other").unwrap().id;
    let claim = penstock_storage::counter_row(i64::from(other));
    store.apply(Transaction::new().put(StoreTable::Meta, b"ledger/chain/0", claim)).unwrap();
    reserve(&one.ledger, "r1", 100).unwrap().settle(charge(60));
    until("the fence to be known", || one.ledger.is_failing());
    one.ledger.close();
    assert_eq!((assert_whole(&store).entries, stored_balance(&store)), (1, 1_000));
}

#[test]
fn a_claimed_chain_continues_after_a_crash_and_its_reservations_are_voided_once() {
    let store = Flaky::over(open_in_memory());
    let (one, other) = (join(&store, QUICK), join(&store, QUICK));
    assert_eq!([one.ledger.store.chain(), other.ledger.store.chain()], [0, 1]);
    for member in [&one, &other] {
        grant(&member.ledger, &format!("g{}", member.incarnation), 1_000).unwrap();
        lease(member, 500);
    }
    let of_one: Vec<Hold> = (0..5).map(|n| reserve(&one.ledger, &format!("a{n}"), 100).unwrap()).collect();
    let of_other = reserve(&other.ledger, "b", 100).unwrap();
    until("all to be written", || {
        one.ledger.durability_snapshot().waiting == 0 && other.ledger.durability_snapshot().waiting == 0
    });
    one.ledger.close();
    drop(of_one);
    let third = join(&store, QUICK);
    assert_eq!(third.ledger.store.chain(), 2, "the first is not known to be dead");
    assert_eq!(third.ledger.void_abandoned_reservations(), Ok(0));
    evict(&store, one.incarnation);
    let next = join(&store, QUICK);
    assert_eq!(next.ledger.store.chain(), 0);
    until("them to be voided", || {
        next.ledger.durability_snapshot().open == 0 && next.ledger.durability_snapshot().waiting == 0
    });
    let proof = assert_whole(&store);
    assert_eq!(proof.open_reservations, 1, "that of the living member");
    of_other.settle(charge(40));
    assert_eq!(settled(&other.ledger).open_reservations, 0);
    // If the same member starts again, it still has its claim, and there is no reservation to void.
    next.ledger.close();
    let again = continue_member(&store, next.incarnation, QUICK, None);
    assert_eq!((again.store.chain(), settled(&again).entries), (0, proof.entries + 2));
    assert_eq!(stored_balance(&store), 2_000 - 40);
}

#[test]
fn reservations_of_a_dead_member_are_voided_by_another_one_in_their_chain() {
    let store = Flaky::over(open_in_memory());
    let (one, other) = (join(&store, QUICK), join(&store, QUICK));
    grant(&one.ledger, "g", 1_000).unwrap();
    lease(&one, 500);
    let holds: Vec<Hold> = (0..3).map(|n| reserve(&one.ledger, &format!("a{n}"), 100).unwrap()).collect();
    until("them to be written", || one.ledger.durability_snapshot().waiting == 0);
    one.ledger.close();
    drop(holds);
    assert_eq!(other.ledger.void_abandoned_reservations(), Ok(0), "their member lives");
    evict(&store, one.incarnation);
    assert_eq!(
        (other.ledger.void_abandoned_reservations(), other.ledger.void_abandoned_reservations()),
        (Ok(3), Ok(0))
    );
    let book = LedgerStore::open_read_only(store.clone());
    let voids = entries(&book, true).into_iter().filter(|entry| entry.kind.name() == "void");
    assert!(voids.map(|entry| chain_of(entry.seq)).eq([0, 0, 0]));
    assert_eq!(assert_whole(&store).open_reservations, 0);
    // The chain is free for the next member.
    assert_eq!(join(&store, QUICK).ledger.store.chain(), 0);
}

#[test]
fn a_start_alone_voids_the_reservations_of_every_chain_and_writes_the_first() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Flaky::over(open_in_memory()));
    let copies = dir.path().join("ledger");
    let members: Vec<Member> = (0..3).map(|_| join(&store, QUICK)).collect();
    grant(&members[0].ledger, "g", 1_000).unwrap();
    let mut open_ones = Vec::new();
    for (number, member) in members.iter().enumerate() {
        lease(member, 100);
        open_ones.push(reserve(&member.ledger, &format!("r{number}"), 10).unwrap());
        until("it to be written", || member.ledger.durability_snapshot().waiting == 0);
        member.ledger.close();
    }
    drop(open_ones);
    members.iter().for_each(|member| evict(&store, member.incarnation));
    let start = || {
        let book = LedgerStore::open(store.clone(), Some(&copies)).unwrap();
        Ledger::open(Arc::new(book), &settings(QUICK).ledger, ProcessClock::start()).unwrap()
    };
    let alone = start();
    assert_eq!((alone.store.chain(), alone.balance("acme").credits.amount), (0, 1_000));
    grant(&alone, "g2", 5).unwrap();
    let proof = settled(&alone);
    assert_eq!((proof.open_reservations, proof.entries), (0, 2 + 3 * 2));
    alone.close();
    drop(alone);
    let names = std::fs::read_dir(&copies).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(names.count(), 3, "the copy has all chains");
    assert_eq!(assert_whole(&store).entries, settled(&start()).entries);
    assert_eq!(join(&store, QUICK).ledger.store.chain(), 0);
}

#[test]
fn an_unreadable_rollup_keeps_no_charge_of_a_member_from_being_written() {
    let store = Flaky::over(open_in_memory());
    let members = [join(&store, QUICK), join(&store, QUICK)];
    let mut operations = Operations::new(3);
    operations.step = 1;
    members.iter().for_each(|member| operations.push_request(&member.ledger));
    members.iter().for_each(|member| drop(settled(&member.ledger)));
    for row in store.scan(StoreTable::Usage, b"", None, 100).unwrap().rows {
        store.apply(Transaction::new().put(StoreTable::Usage, row.key, b"damaged".to_vec())).unwrap();
    }
    for _ in 0..50 {
        members.iter().for_each(|member| operations.push_request(&member.ledger));
    }
    members.iter().for_each(|member| member.ledger.close());
    let book = LedgerStore::open_read_only(store.clone());
    assert!(members.iter().all(|member| member.ledger.durability_snapshot().waiting == 0));
    assert!(report::verify(&book).unwrap().is_intact());
    assert!(!rebuild::verify(&book).unwrap().is_intact());
    assert!(!book.has_complete_rollups().unwrap(), "statements are read from the entries");
    // Members do not write incomplete rollups; a rebuild while no member runs writes them.
    let next = continue_member(&store, members[0].incarnation, QUICK, None);
    operations.push_request(&next);
    next.close();
    assert!(!book.has_complete_rollups().unwrap());
    rebuild::rebuild(&book).unwrap();
    assert_equal_to_ledger(&book);
}
