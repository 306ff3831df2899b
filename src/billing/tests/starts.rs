//! Tests of a start after an earlier process: its open reservations, and its clock.

use super::*;

#[test]
fn reserves_left_open_by_a_crash_are_voided_and_charge_nothing() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    reserve(&ledger, "paid", 100).unwrap().settle(charge(40));
    let open_ones: Vec<Hold> = (0..5).map(|n| reserve(&ledger, &format!("open{n}"), 100).unwrap()).collect();
    until("it to be written", || ledger.durability_snapshot().waiting == 0);
    // Simulates the end of the process: the dropped reservations no longer reach the store.
    ledger.close();
    drop(open_ones);
    // A command that only reads changes nothing.
    let book = Arc::new(LedgerStore::open_read_only(store.clone()));
    let before = report::verify(&book).unwrap();
    let reader = Ledger::open_for_reading(book.clone(), ProcessClock::start()).unwrap();
    assert_eq!((before.open_reservations, reader.balance("acme").credits.amount), (5, 960));
    drop(reader);
    let after = report::verify(&book).unwrap();
    assert_eq!((after.entries, after.open_reservations), (before.entries, 5));
    let next = open(&store, QUICK);
    until("them to be voided", || {
        next.durability_snapshot().open == 0 && next.durability_snapshot().waiting == 0
    });
    let proof = settled(&next);
    assert_eq!((proof.open_reservations, next.balance("acme").credits.amount), (0, 960));
    assert_eq!(reserve(&next, "after", 960).map(drop).err(), None);
    // A third start finds nothing left to void.
    let entries = settled(&next).entries;
    next.close();
    assert_eq!(settled(&open(&store, QUICK)).entries, entries);
}

#[test]
fn a_ledger_with_future_dates_is_not_continued_unless_allowed() {
    let store = Flaky::over(open_in_memory());
    let book = || Arc::new(LedgerStore::open_read_only(store.clone()));
    let start = |text: &str, by: Duration| {
        Ledger::open(book(), &settings(text).ledger, ProcessClock::with_offset(by))
    };
    const DAY: Duration = Duration::from_secs(86_400);
    let ledger = start(QUICK, DAY * 3_650).unwrap();
    grant(&ledger, "g1", 7).unwrap();
    ledger.close();
    let why = start(QUICK, Duration::ZERO).err().unwrap();
    assert!(why.contains("set the clock right") && why.contains("ledger.ahead"), "{why}");
    assert!(start(QUICK, DAY * 3_648).is_err());
    assert!(start(QUICK, DAY * 3_649 + Duration::from_secs(3_600)).is_ok());
    assert!(start("[ledger]\nahead = \"365d\"\n", Duration::ZERO).is_err());
    assert!(start("[ledger]\nahead = \"366d\"\n", Duration::ZERO).is_ok());
}
