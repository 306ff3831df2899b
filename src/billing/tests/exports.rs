//! Export of the ledger's entries of a period, page by page.

use crate::billing::ledger_export::{PageLimits, entries_of_period, read_page};
use crate::billing::report;
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_ledger::LedgerEntry;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::UsageRange;

/// Checks that pages of an export, however small they are, have each entry of the period once.
pub(super) fn assert_exports_equal_ledger(store: &LedgerStore, months: [UtcMonth; 2]) {
    let last = months[1].next().first_day().start() - 1;
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
        let days = range.from.start()..range.to.next().start();
        let is_wanted = |entry: &&LedgerEntry| {
            days.contains(&entry.at)
                && !["terms", "reserve"].contains(&entry.kind.name())
                && account.is_none_or(|account| *entry.account == *account)
        };
        let expected: Vec<u64> = all.iter().filter(is_wanted).map(|entry| entry.seq).collect();
        for (returned, read) in [(5_000, 100_000), (3, 100_000), (5_000, 7)] {
            let (mut numbers, mut after) = (Vec::new(), None);
            loop {
                let page = read_page(store, range, account, after, PageLimits { returned, read });
                let page = page.unwrap().unwrap();
                assert!(page.entries.len() <= returned.min(read));
                numbers.extend(page.entries.iter().map(|entry| entry["seq"].as_u64().unwrap()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(numbers, expected, "{account:?}, {returned} of {read}");
        }
        let outside =
            all.iter().find(|entry| !days.contains(&entry.at)).map_or(u64::MAX >> 12, |one| one.seq);
        for unknown in [0, outside] {
            assert!(entries_of_period(store, range, account, Some(unknown)).unwrap().is_none());
        }
    }
}
