//! Benchmark of usage queries of a year at 500,000 hourly rollups of an account: `cargo bench --bench usage`. The
//! first row of the output adds up hourly rollups, as the gateway did before it had daily rollups.
//!
//! A query of any period takes at most 100 ms. Times are wall-clock times of one call, the median of several.
#![allow(clippy::unwrap_used, reason = "what is made up here is well-formed")]
#![allow(clippy::print_stdout, reason = "the figures are printed")]

use penstock::billing::carbon::{ReportedAccounts, read_carbon_figures};
use penstock::billing::invoice::read_invoice_figures;
use penstock::billing::report::ReportError;
use penstock::billing::rollups::answer::{UsageQuery, read_usage};
use penstock::billing::rollups::days::build_days;
use penstock::billing::rollups::query::for_each_hour_rollup;
use penstock_core::calendar::UtcDay;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, StatementSums, Wallet};
use penstock_storage::ledger::{EntryBlock, LedgerCommit, LedgerStore, LedgerTip};
use penstock_storage::{StoreOptions, open};
use penstock_usage::{
    HourNumber, PriceClass, RollupDimensions, UsageGrouping, UsageOutcome, UsageRange, UsageReport,
    UsageSums, encode_row_value, row_key,
};
use rust_decimal::Decimal;
use std::hint::black_box;
use std::time::{Duration, Instant};

const DAYS: u32 = 365;
const KEYS: u32 = 19;
const MODELS: u32 = 3;
const ROUNDS: usize = 3;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), StoreOptions::default()).unwrap();
    let ledger = LedgerStore::open_read_only(store);
    let first = UtcDay::parse("2025-11-01").unwrap();
    fill(&ledger, HourNumber::from_unix(first.start()));
    let end = first.start() + u64::from(DAYS) * 86_400;
    let range = UsageRange { from: first, to: UtcDay::from_unix(end - 1) };
    let by = |names: &str| UsageQuery {
        key: None,
        range,
        groupings: UsageGrouping::parse_list(Some(names)).unwrap(),
    };
    report("hours, by day and model", || {
        let mut report = UsageReport::new(by("day,model").groupings, 10_000);
        for_each_hour_rollup(&ledger, "acme", range.hour_bounds(), |cell, sums| {
            report.add(cell, sums).unwrap();
            Ok::<_, ReportError>(())
        })
        .unwrap();
        black_box(report);
    });
    let began = Instant::now();
    let built = build_days(&ledger, end, "bench".to_owned()).unwrap().unwrap();
    println!("build of {} rollups of {} days: {:.1?}", built.rows, built.days, began.elapsed());
    for names in ["day,model", "week,model", "month", "key"] {
        report(&format!("days, by {names}"), || {
            drop(black_box(read_usage(&ledger, "acme", &by(names)).unwrap()))
        });
    }
    report("invoice", || drop(black_box(read_invoice_figures(&ledger, "acme", range).unwrap())));
    let one = ReportedAccounts::One("acme".to_owned());
    report("carbon report", || drop(black_box(read_carbon_figures(&ledger, &one, range, || true).unwrap())));
}

/// Prints the median time of a call.
fn report(name: &str, mut call: impl FnMut()) {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            call();
            began.elapsed()
        })
        .collect();
    times.sort();
    println!("{name}: {:.1?}", times.get(ROUNDS / 2).unwrap());
}

/// Writes hourly rollups of a year, and then a ledger entry whose tip marks the rollups as complete.
fn fill(ledger: &LedgerStore, first: HourNumber) {
    let mut rows = Vec::new();
    for hour in 0..DAYS * 24 {
        for (key, model) in (0..KEYS).flat_map(|key| (0..MODELS).map(move |model| (key, model))) {
            let cell = cell(HourNumber(first.0 + hour), key, model);
            rows.push((row_key(&cell), encode_row_value(&cell, &sums(hour + key + model))));
        }
        if rows.len() > 50_000 {
            ledger.write_rollups(&std::mem::take(&mut rows)).unwrap();
        }
    }
    ledger.write_rollups(&rows).unwrap();
    let at = HourNumber(first.0 + DAYS * 24).start();
    let (id, note, by) = ("g".into(), "".into(), "".into());
    let kind = EntryKind::Grant { id, wallet: Wallet::Credits, amount: 1, note, by };
    let (mut chain, mut text) = (HashChain::at_chain_start(0), Vec::new());
    chain.append(&LedgerEntry { seq: 1, at, account: "acme".into(), kind }, &mut text).unwrap();
    let (seq, hash) = (chain.seq, chain.hash);
    let tip = LedgerTip { seq, hash, at, are_rollups_complete: true, ..LedgerTip::default() };
    let block = EntryBlock { month: "2026-11".to_owned(), last: 1, text };
    let commit = LedgerCommit { new_tip: tip, blocks: vec![block], ..LedgerCommit::default() };
    ledger.append(&commit).unwrap();
}

fn cell(hour: HourNumber, key: u32, model: u32) -> RollupDimensions {
    RollupDimensions {
        account: "acme".into(),
        hour,
        key: format!("key_{key:024}").into(),
        model: format!("family/model-{model}-instruct").into(),
        provider: format!("provider-{model}").into(),
        location: "Paris, France".into(),
        terms: "".into(),
        outcome: UsageOutcome::Charged,
        price: PriceClass::default(),
    }
}

fn sums(seed: u32) -> UsageSums {
    let count = u64::from(seed);
    let decimal = |scale| Decimal::new(i64::from(seed) * 7_919 + 1, scale);
    UsageSums {
        billed: StatementSums {
            requests: count + 1,
            input: 900 * count,
            output: 300 * count,
            kwh: decimal(9),
            carbon_g: decimal(6),
            water_l: decimal(7),
            credits: i128::from(seed) * 1_234_567,
            eur: decimal(8),
            ..StatementSums::default()
        },
        carbon_low_g: decimal(7),
        carbon_high_g: decimal(5),
        ..UsageSums::default()
    }
}
