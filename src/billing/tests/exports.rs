//! Export of the ledger's entries of a period, page by page.

use super::*;
use crate::billing::BackdatedCharge;
use crate::billing::ledger_export::{PageLimits, entries_of_period, read_page};
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_ledger::LedgerEntry;
use penstock_storage::fleet::{Fleet, SharedFleet};
use penstock_storage::ledger::ChainClaim;
use penstock_usage::UsageRange;

/// 2026-11-29T23:00:00Z.
const START: u64 = 1_795_993_200;

/// Records one charge per second in the chain of a new member, from `at` on.
fn record_charges(store: &Arc<Flaky>, name: &str, at: u64, count: u64) {
    let incarnation = SharedFleet::new(store.clone()).join(name).unwrap().id;
    let claim = ChainClaim::take(&**store, incarnation).unwrap();
    let book = LedgerStore::open_member(store.clone(), None, claim).unwrap();
    let ledger = Ledger::open(Arc::new(book), &settings(QUICK).ledger, ProcessClock::start()).unwrap();
    let past = |number: u64| BackdatedCharge {
        at: at + number,
        request: format!("{name}{number}").into(),
        settlement: charge(3),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(runtime.block_on(ledger.import_backdated_charges(
        "acme",
        &"key".into(),
        (0..count).map(past).collect()
    )));
    ledger.close();
}

#[test]
fn entries_that_a_gateway_records_late_are_on_the_following_pages() {
    let (day, store) = (UtcDay::from_unix(START), Flaky::over(open_in_memory()));
    record_charges(&store, "a", START, 20);
    record_charges(&store, "b", START, 3);
    let book = LedgerStore::open_read_only(store.clone());
    let range = UsageRange { from: day, to: day };
    let (mut requests, mut after) = (Vec::new(), Vec::new());
    loop {
        let limits = PageLimits { returned: 4, read: 100_000 };
        let page = read_page(&book, range, None, &after, limits).unwrap().unwrap();
        requests.extend(page.entries.iter().map(|entry| entry["request"].as_str().unwrap().to_owned()));
        if requests.len() == 12 {
            // A gateway that was cut off records its charges after those of the others were read.
            record_charges(&store, "c", START + 1, 9);
        }
        let Some(next) = page.next else { break };
        assert!(next.len() >= 2, "{next:?}");
        after = next;
    }
    requests.sort();
    let names = [("a", 20), ("b", 3), ("c", 9)].into_iter();
    let mut expected: Vec<String> =
        names.flat_map(|(name, count)| (0..count).map(move |number| format!("{name}{number}"))).collect();
    expected.sort();
    assert_eq!(requests, expected);
}

/// Checks that pages of an export, however small they are, have each entry of the period once.
pub(super) fn assert_exports_equal_ledger(store: &LedgerStore, months: [UtcMonth; 2]) {
    let last = months[1].end() - 1;
    let (from, to) = (months[0].first_day(), UtcDay::from_unix(last));
    let middle =
        UtcDay::from_unix(months[0].first_day().start() + (last - months[0].first_day().start()) / 3);
    let mut all = Vec::new();
    for month in months {
        let add = |entry: LedgerEntry| {
            all.push(entry);
            Ok(())
        };
        report::for_each_entry(store, month, add).unwrap();
    }
    for (range, account) in [
        (UsageRange { from, to }, None),
        (UsageRange { from: middle, to }, Some("acme")),
        (UsageRange { from, to: middle }, Some("b")),
    ] {
        let days = range.from.start()..range.to.end();
        let is_wanted = |entry: &&LedgerEntry| {
            days.contains(&entry.at)
                && !["terms", "reserve"].contains(&entry.kind.name())
                && account.is_none_or(|account| *entry.account == *account)
        };
        let expected: Vec<u64> = all.iter().filter(is_wanted).map(|entry| entry.seq).collect();
        for (returned, read) in [(5_000, 100_000), (3, 100_000), (5_000, 7)] {
            let (mut numbers, mut after) = (Vec::new(), Vec::new());
            loop {
                let page = read_page(store, range, account, &after, PageLimits { returned, read });
                let page = page.unwrap().unwrap();
                assert!(page.entries.len() <= returned.min(read));
                numbers.extend(page.entries.iter().map(|entry| entry["seq"].as_u64().unwrap()));
                match page.next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            assert_eq!(numbers, expected, "{account:?}, {returned} of {read}");
        }
        let outside =
            all.iter().find(|entry| !days.contains(&entry.at)).map_or(u64::MAX >> 12, |one| one.seq);
        for unknown in [&[0][..], &[outside], &[u64::MAX], &[0, u64::MAX], &[0, 1 << 62]] {
            assert!(entries_of_period(store, range, account, unknown).unwrap().is_none(), "{unknown:?}");
        }
        // A position of one number continues in the order of time.
        let Some(middle) = expected.get(expected.len() / 2) else { continue };
        let page = entries_of_period(store, range, account, &[*middle]).unwrap().unwrap();
        let rest: Vec<u64> = page.entries.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
        assert_eq!(rest, expected[expected.len() / 2 + 1..], "{account:?}");
    }
}
