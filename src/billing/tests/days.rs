//! Tests of the usage rollups of days: any period that is read from them is equal to the sum of its hours and to the
//! ledger, whatever is written after they were built.

use super::rollups::{Operations, START, assert_equal_to_ledger};
use super::*;
use crate::billing::report::{
    ReportError, StatementPeriod, UsageStatement, for_each_entry, statement_of_entries,
};
use crate::billing::rollups::days::{DayBuildResult, build_days, first_incomplete_day};
use crate::billing::rollups::query::{self, DayReader, for_each_hour_rollup};
use crate::billing::rollups::rebuild;
use penstock_ledger::{LedgerEntry, UtcDay, UtcMonth};
use penstock_storage::StoreError;
use penstock_storage::fleet::{Fleet, SharedFleet};
use penstock_storage::ledger::ChainClaim;
use penstock_usage::{
    DayNumber, DayRollupBuild, DayRollupWatermark, HourNumber, RollupDimensions, UsageSums, day_from_row_key,
    day_watermark_key,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const DAY: u64 = 86_400;

/// Sums by dimensions, where the hour is the first one of the day.
type Cells = BTreeMap<RollupDimensions, UsageSums>;

fn member(store: &Arc<Flaky>) -> Arc<Ledger> {
    let incarnation = SharedFleet::new(store.clone()).join("a gateway").unwrap().id;
    let claim = ChainClaim::take(&**store, incarnation).unwrap();
    let book = LedgerStore::open_member(store.clone(), None, claim).unwrap();
    Ledger::open(Arc::new(book), &settings(QUICK).ledger, ProcessClock::start()).unwrap()
}

fn written(ledger: &Ledger) {
    until("the queue to be written", || ledger.durability_snapshot().waiting == 0);
}

fn days_of(store: &LedgerStore, account: &str, days: (DayNumber, DayNumber)) -> Cells {
    let mut cells = Cells::new();
    DayReader::open(store)
        .unwrap()
        .for_each(account, days, |cell, sums| {
            assert!(cells.insert(cell.clone(), sums.clone()).is_none(), "{cell:?} twice");
            Ok::<_, ReportError>(())
        })
        .unwrap();
    cells
}

fn hours_of(store: &LedgerStore, account: &str, (first, end): (DayNumber, DayNumber)) -> Cells {
    let mut cells = Cells::new();
    for_each_hour_rollup(store, account, (first.first_hour(), end.first_hour()), |cell, sums| {
        let day = RollupDimensions { hour: DayNumber::from_hour(cell.hour).first_hour(), ..cell.clone() };
        cells.entry(day).or_default().add(sums);
        Ok::<_, ReportError>(())
    })
    .unwrap();
    cells
}

fn all_entries(store: &LedgerStore) -> Vec<LedgerEntry> {
    let mut entries = Vec::new();
    for month in store.months().unwrap() {
        for_each_entry(store, UtcMonth::parse(&month).unwrap(), |entry| {
            entries.push(entry);
            Ok(())
        })
        .unwrap();
    }
    entries
}

/// Checks that the rollups of days equal those of hours and the ledger, for random periods of all accounts.
fn assert_periods(store: &LedgerStore, random: &mut StdRng) {
    let entries = all_entries(store);
    let first = DayNumber::from_unix(START).0 - 1;
    for account in ["", "acme", "b", "c c"] {
        for _ in 0..6 {
            let from = first + random.random_range(0..8);
            let days = (DayNumber(from), DayNumber(from + random.random_range(0..9)));
            let cells = days_of(store, account, days);
            assert_eq!(cells, hours_of(store, account, days), "{account} {days:?}");
            let mut sum = UsageSums::default();
            cells.values().for_each(|sums| sum.add(sums));
            let mut expected = UsageSums::default();
            for entry in &entries {
                let day = DayNumber::from_unix(entry.at);
                let is_counted = account.is_empty() || *entry.account == *account;
                if is_counted && days.0 <= day && day < days.1 {
                    expected.add(&UsageSums::from_entry(&entry.kind));
                }
            }
            assert_eq!(sum, expected, "{account} {days:?}");
        }
    }
}

/// Checks that statements of random periods equal those computed from the entries.
fn assert_statements(store: &LedgerStore, random: &mut StdRng) {
    for account in [None, Some("acme")] {
        let day = |number: u64| UtcDay::from_unix(START + number * DAY);
        let from = random.random_range(0..6);
        let period = StatementPeriod { from: day(from), to: day(from + random.random_range(0..40)) };
        let rows = |statement: UsageStatement| statement.statement.rows().collect::<Vec<_>>();
        let entries = statement_of_entries(store, period, account).unwrap();
        let rollups = query::statement(store, period, account).unwrap();
        assert_eq!(rollups.terms, entries.terms, "{period:?}");
        assert_eq!(rows(rollups), rows(entries), "{period:?}");
    }
}

fn build(store: &LedgerStore, now: u64) -> Option<DayBuildResult> {
    build_days(store, now, now.to_string()).unwrap()
}

fn newest(store: &LedgerStore) -> u64 {
    store.chains().unwrap().iter().map(|(_, tip)| tip.at).max().unwrap()
}

#[test]
fn any_period_is_equal_to_its_hours_and_to_the_ledger_whatever_is_written_after_a_build() {
    let mut built = 0;
    for seed in 0..8 {
        let store = Flaky::over(open_in_memory());
        let book = LedgerStore::open_read_only(store.clone());
        let mut random = StdRng::seed_from_u64(seed);
        // The clocks of two gateways differ by days, so that one of them writes to days that were built.
        let mut members = [5_000, 20_000].map(|step| {
            let mut operations = Operations::new(seed + step);
            operations.step = step;
            (member(&store), operations)
        });
        for _ in 0..12 {
            for (ledger, operations) in &mut members {
                for _ in 0..random.random_range(0..10) {
                    operations.push_request(ledger);
                }
                written(ledger);
                if random.random_bool(0.3) {
                    operations.adjust(ledger);
                }
            }
            if random.random_bool(0.6) && !book.chains().unwrap().is_empty() {
                let now = newest(&book) + random.random_range(0..2 * DAY);
                built += build(&book, now).map_or(0, |built| built.days);
                assert!(
                    first_incomplete_day(&book).unwrap() >= DayNumber::from_unix(now),
                    "nothing was written since"
                );
            }
            assert_periods(&book, &mut random);
            assert_statements(&book, &mut random);
        }
        members.iter().for_each(|(ledger, _)| ledger.close());
        assert_equal_to_ledger(&book);
    }
    assert!(built > 50, "{built} days were built");
}

#[test]
fn a_late_entry_is_counted_at_once_and_its_day_is_built_again() {
    let store = Flaky::over(open_in_memory());
    let book = LedgerStore::open_read_only(store.clone());
    let (early, late) = (member(&store), member(&store));
    let mut operations = [Operations::new(1), Operations::new(2)];
    operations[0].step = 2;
    operations[1].step = 20_000;
    (0..20).for_each(|_| operations[0].push_request(&early));
    (0..40).for_each(|_| operations[1].push_request(&late));
    [&early, &late].into_iter().for_each(|ledger| written(ledger));
    let today = DayNumber::from_unix(newest(&book) + DAY);
    let whole = (DayNumber(0), today);
    assert!(build(&book, newest(&book) + DAY).unwrap().days >= 3);
    assert_eq!(build(&book, newest(&book) + DAY), None, "nothing changed");
    assert_eq!(first_incomplete_day(&book).unwrap(), today);
    let before = days_of(&book, "", whole);
    operations[0].push_request(&early);
    written(&early);
    assert_eq!(first_incomplete_day(&book).unwrap(), DayNumber::from_unix(START));
    let after = days_of(&book, "", whole);
    assert_ne!(after, before);
    assert_eq!(after, hours_of(&book, "", whole));
    build(&book, newest(&book) + DAY).unwrap();
    assert_eq!((first_incomplete_day(&book).unwrap(), days_of(&book, "", whole)), (today, after));
    // A gateway that joins writes a chain that the watermark does not contain.
    let third = member(&store);
    let mut operations = Operations::new(3);
    operations.step = 1;
    operations.push_request(&third);
    written(&third);
    assert_eq!(first_incomplete_day(&book).unwrap(), DayNumber::from_unix(START));
    assert_eq!(days_of(&book, "", whole), hours_of(&book, "", whole));
    [early, late, third].iter().for_each(|ledger| ledger.close());
    assert_equal_to_ledger(&book);
}

/// Store with some days of requests, and the time after them.
fn days_of_requests(seed: u64) -> (Arc<Flaky>, LedgerStore, u64) {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let mut operations = Operations::new(seed);
    operations.step = 20_000;
    (0..60).for_each(|_| operations.push_request(&ledger));
    ledger.close();
    let book = LedgerStore::open_read_only(store.clone());
    let now = newest(&book) + DAY;
    (store, book, now)
}

#[test]
fn a_build_that_ends_anywhere_is_continued() {
    for transactions in 0..4 {
        let (store, book, now) = days_of_requests(4);
        let whole = (DayNumber(0), DayNumber::from_unix(now));
        let hours = hours_of(&book, "acme", whole);
        store.passes.store(transactions, Ordering::Release);
        store.lies.store(1, Ordering::Release);
        let built = build_days(&book, now, "first".to_owned());
        assert_eq!(built.is_ok(), transactions == 3, "a build has a start, its rows and an end");
        assert_eq!(days_of(&book, "acme", whole), hours);
        store.lies.store(0, Ordering::Release);
        // The watermark names the first build as running until that build counts as abandoned, unless only the end of
        // the build was reported as failed.
        build(&book, now + 599);
        assert_eq!(days_of(&book, "acme", whole), hours);
        build(&book, now + 600);
        assert!(first_incomplete_day(&book).unwrap() >= whole.1, "{transactions}");
        assert_eq!(days_of(&book, "acme", whole), hours);
        assert_equal_to_ledger(&book);
    }
}

#[test]
fn a_build_writes_nothing_after_another_has_begun() {
    let (store, book, now) = days_of_requests(5);
    build(&book, now - DAY).unwrap();
    let mark = || DayRollupWatermark::decode(&book.rollup(&day_watermark_key()).unwrap().unwrap()).unwrap();
    let first =
        DayRollupWatermark { build: Some(DayRollupBuild { id: "first".to_owned(), started: now }), ..mark() };
    store.apply(Transaction::new().put(StoreTable::Usage, day_watermark_key(), first.encode())).unwrap();
    assert_eq!(build(&book, now + 599), None, "the first one still runs");
    assert!(build(&book, now + 600).is_some());
    let row = (b"acme\0some row".to_vec(), b"{}".to_vec());
    let written =
        book.write_guarded_rollups((&day_watermark_key(), Some(&first.encode())), std::slice::from_ref(&row));
    assert!(matches!(written, Err(StoreError::Guard { .. })), "{written:?}");
    assert_eq!(book.rollup(&row.0).unwrap(), None);
    assert!(mark().build.is_none());
}

#[test]
fn a_changed_row_of_a_day_is_found_and_a_rebuild_writes_it_again() {
    let (store, book, now) = days_of_requests(6);
    build(&book, now).unwrap();
    assert!(rebuild::verify(&book).unwrap().is_intact());
    let rows = store.scan(StoreTable::Usage, b"acme\0", None, 1_000).unwrap().rows;
    let row = rows.iter().find(|row| matches!(day_from_row_key(&row.key), Ok(Some(_)))).unwrap();
    let changed = String::from_utf8(row.value.clone()).unwrap().replace("\"v\":1", "\"v\":1,\"images\":7");
    let mut other = row.key.clone();
    *other.last_mut().unwrap() ^= 1;
    for damage in [
        Transaction::new().put(StoreTable::Usage, row.key.clone(), changed.into_bytes()),
        Transaction::new().put(StoreTable::Usage, row.key.clone(), b"damaged".to_vec()),
        Transaction::new().delete(StoreTable::Usage, row.key.clone()),
        Transaction::new().put(StoreTable::Usage, other, row.value.clone()),
    ] {
        store.apply(damage).unwrap();
        let check = rebuild::verify(&book).unwrap();
        assert!(!check.is_intact());
        rebuild::rebuild(&book).unwrap();
        assert!(rebuild::verify(&book).unwrap().is_intact());
        build(&book, now);
    }
    // With an unreadable watermark, no day is complete.
    store.apply(Transaction::new().put(StoreTable::Usage, day_watermark_key(), b"damaged".to_vec())).unwrap();
    assert_eq!(first_incomplete_day(&book).unwrap(), DayNumber(0));
    assert_equal_to_ledger(&book);
    build(&book, now).unwrap();
    assert_eq!(first_incomplete_day(&book).unwrap(), DayNumber::from_unix(now));
}

#[test]
fn an_earlier_version_reads_the_hours_of_a_store_with_days() {
    let (store, book, now) = days_of_requests(7);
    build(&book, now).unwrap();
    // An earlier version reads the rows of an account up to an hour, and must find the rows of days behind all hours.
    for account in ["", "acme"] {
        let prefix = penstock_usage::account_key_prefix(account);
        let rows = store.scan(StoreTable::Usage, &prefix, None, 1_000).unwrap().rows;
        let (cells, days): (Vec<_>, Vec<_>) = rows
            .iter()
            .map(|row| penstock_usage::decode_row(&row.key, &row.value).unwrap())
            .partition(|(cell, _)| cell.hour < HourNumber::from_unix(now));
        assert!(!cells.is_empty() && !days.is_empty());
        assert!(days.iter().all(|(cell, _)| cell.hour.0 >= 1 << 31), "after all hours");
    }
}
