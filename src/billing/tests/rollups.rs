//! Tests of the usage rollups: they are equal to the ledger's sums after any sequence of operations, restarts and
//! failures of the store, and a rebuild writes the same rows.

use super::*;
use crate::billing::carbon::{ReportedAccounts, read_carbon_figures};
use crate::billing::invoice::{InvoiceSums, read_invoice_figures};
use crate::billing::invoice_totals::InvoiceTotals;
use crate::billing::report::StatementPeriod;
use crate::billing::rollups::answer::{UsageQuery, read_usage};
use crate::billing::rollups::{query, rebuild};
use crate::billing::write_op::LedgerAction;
use penstock_ledger::{CorrectedKind, Statement, StatementSums, UtcMonth};
use penstock_usage::{HourNumber, UsageRange};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// 2026-10-31T20:00:00Z: the operations of a test pass the end of a month.
pub(super) const START: u64 = 1_793_476_800;
const TERMS: [(&str, &str); 2] = [
    (
        "t1",
        r#"{"location":"Paris, France","pue":"1.2","input":"1.5","contract":{"share":"0.8","evidence":"annual-ppa"}}"#,
    ),
    ("t2", r#"{"location":"Berlin, Germany"}"#),
];

/// Random operations on a ledger, with their own clock.
pub(super) struct Operations {
    seed: u64,
    random: StdRng,
    at: u64,
    /// Upper limit of the seconds between two requests, exclusive.
    pub(super) step: u64,
    requests: u64,
    adjustments: u64,
}

impl Operations {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            random: StdRng::seed_from_u64(seed),
            at: START,
            step: 2_400,
            requests: 0,
            adjustments: 0,
        }
    }

    fn pick<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.random.random_range(0..names.len())]
    }

    fn footprint(&mut self) -> RequestFootprint {
        let mut decimal = |scale| Decimal::new(self.random.random_range(0..1_000_000), scale);
        let (low, carbon, high) = (decimal(6), decimal(6), decimal(6));
        let carbon_g = low + carbon;
        RequestFootprint {
            kwh: decimal(9) + Decimal::new(1, 3),
            carbon_g,
            carbon_low_g: low,
            carbon_high_g: carbon_g + high,
            water_l: decimal(7),
            failed_kwh: decimal(9),
        }
    }

    /// Pushes a request: its reserve, and its charge or void.
    pub(super) fn push_request(&mut self, ledger: &Ledger) {
        self.at += self.random.random_range(0..self.step);
        self.requests += 1;
        let request: Arc<str> = format!("r{}-{}-{}", self.seed, self.at, self.requests).into();
        let (account, key) = (self.pick(&["acme", "b", "c c"]), self.pick(&["k1", "k2"]));
        let (key, wallet): (Arc<str>, _) = (key.into(), self.wallet());
        let reserve = EntryKind::Reserve { request: request.clone(), key: key.clone(), wallet, amount: 90 };
        let footprint = self.footprint();
        let (terms, text) = TERMS[self.random.random_range(0..TERMS.len())];
        let end = if self.random.random_bool(0.3) {
            let why = self.pick(&["failed", "left", "cancelled", "crash", "dropped"]).into();
            EntryKind::Void { request, key, wallet, held: 90, why, footprint }
        } else {
            let amount = self.random.random_range(0..1_000);
            let mut sale = charge(amount).sale;
            sale.model = self.pick(&["m1", "m2", "m3"]).into();
            sale.terms = terms.into();
            sale.batch = self.random.random_bool(0.3);
            sale.usage.input = self.random.random_range(0..5_000);
            EntryKind::Settle { request, key, wallet, amount, held: 90, sale: Box::new(sale), footprint }
        };
        let terms = Arc::new(SaleTerms { id: terms.into(), text: text.into() });
        for (act, terms) in [(reserve, None), (end, Some(terms))] {
            let (at, account) = (self.at, account.into());
            ledger.queue.push(WriteOp::Action(LedgerAction {
                at,
                account,
                act,
                terms,
                exposed_eur: 0,
                number: 0,
            }));
        }
    }

    fn wallet(&mut self) -> Wallet {
        if self.random.random_bool(0.2) { Wallet::Energy } else { Wallet::Credits }
    }

    /// Grants an amount, or corrects a random charge of the store.
    pub(super) fn adjust(&mut self, ledger: &Ledger) {
        self.adjustments += 1;
        let id = format!("a{}-{}", self.seed, self.adjustments);
        let act = match self.charge_to_correct(ledger) {
            Some((entry, key, wallet, was)) if self.random.random_bool(0.7) => EntryKind::Correct {
                id: id.as_str().into(),
                of: entry,
                what: CorrectedKind::Settle,
                key: Some(key),
                wallet,
                previous_amount: was,
                new_amount: was / 2,
                eur: Decimal::new(was - was / 2, 8),
                note: "".into(),
                by: "me".into(),
            },
            _ => EntryKind::Grant {
                id: id.as_str().into(),
                wallet: Wallet::Credits,
                amount: 500,
                note: "".into(),
                by: "me".into(),
            },
        };
        let (reply, answered) = mpsc::channel();
        let (balance, names) = (ledger.account_balance("acme"), vec![format!("x {id}")]);
        let order = AdminAdjustment { balance, at: self.at, act, names, audit: None, reply };
        ledger.queue.push(WriteOp::Adjustment(Box::new(order)));
        answered.recv().unwrap().unwrap();
    }

    fn charge_to_correct(&mut self, ledger: &Ledger) -> Option<(u64, Arc<str>, Wallet, i64)> {
        let last = ledger.store.tip().unwrap()?.seq;
        let entry = report::find_entry(&ledger.store, self.random.random_range(1..=last)).unwrap()?;
        let EntryKind::Settle { key, wallet, amount, .. } = entry.kind else { return None };
        (&*entry.account == "acme").then_some((entry.seq, key, wallet, amount))
    }
}

fn months() -> [UtcMonth; 2] {
    [UtcMonth::from_unix(START), UtcMonth::from_unix(START).next().unwrap()]
}

fn rows_of(statement: &Statement) -> Vec<penstock_ledger::StatementRow> {
    statement.rows().collect()
}

/// Checks that each grouping of an invoice adds up to the entries of its account.
fn assert_invoices_equal_ledger(store: &LedgerStore) {
    let to = months()[1].last_day();
    let range = UsageRange { from: months()[0].first_day(), to };
    let carbon = |accounts| read_carbon_figures(store, &accounts, range, || true).unwrap();
    let each = carbon(ReportedAccounts::Each);
    let whole = carbon(ReportedAccounts::Total);
    assert_eq!(each.total.usage, whole.total.usage);
    assert!(each.providers.keys().eq(whole.providers.keys()));
    assert_eq!(whole.total, read_invoice_figures(store, "", range).unwrap().total);
    if whole.total != InvoiceSums::default() {
        assert!(read_carbon_figures(store, &ReportedAccounts::Total, range, || false).is_err());
    }
    for account in ["acme", "b", "c c"] {
        let figures = read_invoice_figures(store, account, range).unwrap();
        let one = carbon(ReportedAccounts::One(account.to_owned()));
        assert_eq!(one.total, figures.total, "{account}");
        assert_eq!(each.accounts.get(account).cloned().unwrap_or_default(), figures.total, "{account}");
        for groups in [&one.countries, &one.providers, &one.months] {
            let mut sum = InvoiceSums::default();
            groups.values().for_each(|group| sum.merge(group));
            assert_eq!(sum, figures.total, "{account}");
        }
        let mut ledger = StatementSums::default();
        for month in months() {
            ledger.add(
                &report::statement_of_entries(store, StatementPeriod::of_month(month), Some(account))
                    .unwrap()
                    .statement
                    .account_sums(account),
            );
        }
        ledger.granted_credits = 0;
        ledger.granted_energy = 0;
        assert_eq!(figures.total.usage.billed, ledger, "{account}");
        let sum = |rows: Vec<&InvoiceSums>| {
            let mut sum = InvoiceSums::default();
            rows.into_iter().for_each(|row| sum.merge(row));
            sum
        };
        let total = &figures.total;
        assert_eq!(&sum(figures.keys.values().collect()), total, "{account}");
        assert_eq!(&sum(figures.days.values().collect()), total, "{account}");
        assert_eq!(&sum(figures.locations.values().collect()), total, "{account}");
        let corrections = figures.corrections.iter().map(|correction| &correction.sums);
        let lines = sum(figures.lines.values().chain(corrections).collect()).usage.billed;
        assert_eq!((lines.eur, lines.credits, lines.requests), (ledger.eur, ledger.credits, ledger.requests));
        assert!(total.market_g <= ledger.carbon_g && !total.market_g.is_sign_negative(), "{account}");
        let totals = InvoiceTotals::from_net_amount(ledger.eur, Decimal::from(19));
        assert_eq!((totals.net, totals.net + totals.vat), (ledger.rounded_eur(), totals.gross));
    }
}

/// Checks that statements and reports from rollups are equal to those from the entries.
pub(super) fn assert_equal_to_ledger(store: &LedgerStore) {
    let check = rebuild::verify(store).unwrap();
    assert!(check.is_intact(), "{check:?}");
    assert_invoices_equal_ledger(store);
    super::exports::assert_exports_equal_ledger(store, months());
    for month in months() {
        for account in [None, Some("acme"), Some("c c")] {
            let period = StatementPeriod::of_month(month);
            let entries = report::statement_of_entries(store, period, account).unwrap();
            let rollups = query::statement(store, period, account).unwrap();
            assert_eq!(rows_of(&rollups.statement), rows_of(&entries.statement), "{month} {account:?}");
            assert_eq!(rollups.terms, entries.terms);
            for name in entries.statement.accounts() {
                let models = |of: &Statement| {
                    of.model_sums(&name)
                        .map(|(model, sums)| (model.clone(), sums.clone()))
                        .collect::<Vec<_>>()
                };
                assert_eq!(models(&rollups.statement), models(&entries.statement), "{name}");
            }
        }
    }
    let days = |account: &str| {
        let value = |name: &str| match name {
            "from" => Some("2026-10-01"),
            "to" => Some("2026-12-31"),
            _ => Some("day,model,outcome").filter(|_| name == "group_by"),
        };
        read_usage(store, account, &UsageQuery::parse(value, START).unwrap()).unwrap()
    };
    let mut all = penstock_usage::UsageSums::default();
    for account in query::account_names(store).unwrap() {
        let of_account = days(&account);
        let mut groups = penstock_usage::UsageSums::default();
        of_account.groups().for_each(|group| groups.add(&group.sums));
        assert_eq!(groups, *of_account.total());
        all.add(of_account.total());
    }
    assert_eq!(all, *days("").total(), "the gateway is the sum of its accounts");
}

#[test]
fn rollups_are_equal_to_the_ledger_after_any_operations_and_restarts() {
    for seed in 0..12 {
        let store = Flaky::over(open_in_memory());
        let mut operations = Operations::new(seed);
        for _ in 0..4 {
            let ledger = open(&store, QUICK);
            for _ in 0..operations.random.random_range(1..40) {
                operations.push_request(&ledger);
                if operations.random.random_bool(0.2) {
                    until("the queue to be written", || ledger.durability_snapshot().waiting == 0);
                    operations.adjust(&ledger);
                }
            }
            ledger.close();
        }
        assert_equal_to_ledger(&LedgerStore::open_read_only(store.clone()));
    }
}

#[test]
fn a_rebuild_writes_the_same_rows_and_a_changed_row_is_found() {
    let store = Flaky::over(open_in_memory());
    let mut operations = Operations::new(99);
    let ledger = open(&store, QUICK);
    (0..200).for_each(|_| operations.push_request(&ledger));
    ledger.close();
    let rows = || {
        let mut rows = store.scan(StoreTable::Usage, b"", None, 1_000).unwrap().rows;
        rows.retain(|row| matches!(penstock_usage::day_from_row_key(&row.key), Ok(None)));
        rows.retain(|row| row.key != penstock_usage::day_watermark_key());
        rows
    };
    let before = rows();
    assert!(before.len() > 50, "{}", before.len());
    let book = LedgerStore::open_read_only(store.clone());
    assert_eq!(rebuild::rebuild(&book).unwrap().rollups, before.len() as u64);
    assert_eq!(rows(), before);
    assert!(rebuild::verify(&book).unwrap().is_intact());
    // One changed row, one missing row, one row too many.
    let changed =
        String::from_utf8(before[3].value.clone()).unwrap().replace("\"v\":1", "\"v\":1,\"images\":7");
    let mut other = before[4].key.clone();
    *other.last_mut().unwrap() ^= 1;
    let damages = [
        Transaction::new().put(StoreTable::Usage, before[3].key.clone(), changed.into_bytes()),
        Transaction::new().delete(StoreTable::Usage, before[3].key.clone()),
        Transaction::new().put(StoreTable::Usage, other, before[4].value.clone()),
    ];
    for damage in damages {
        store.apply(damage).unwrap();
        assert!(!rebuild::verify(&book).unwrap().is_intact());
        rebuild::rebuild(&book).unwrap();
        assert!(rebuild::verify(&book).unwrap().is_intact());
    }
}

#[test]
fn a_store_without_rollups_gets_them_at_its_start() {
    let store = Flaky::over(open_in_memory());
    let mut operations = Operations::new(5);
    let ledger = open(&store, QUICK);
    (0..30).for_each(|_| operations.push_request(&ledger));
    ledger.close();
    let book = LedgerStore::open_read_only(store.clone());
    // Simulates a store of a version without rollups, which writes no rollup rows and does not mark the tip.
    book.clear_rollups().unwrap();
    assert!(!rebuild::verify(&book).unwrap().is_intact());
    let ledger = open(&store, QUICK);
    (0..30).for_each(|_| operations.push_request(&ledger));
    ledger.close();
    assert_equal_to_ledger(&book);
}

#[test]
fn an_unreadable_row_keeps_no_charge_from_being_written() {
    let store = Flaky::over(open_in_memory());
    let mut operations = Operations::new(7);
    operations.step = 1;
    let ledger = open(&store, QUICK);
    operations.push_request(&ledger);
    ledger.close();
    for row in store.scan(StoreTable::Usage, b"", None, 100).unwrap().rows {
        store.apply(Transaction::new().put(StoreTable::Usage, row.key, b"damaged".to_vec())).unwrap();
    }
    let ledger = open(&store, QUICK);
    (0..200).for_each(|_| operations.push_request(&ledger));
    ledger.close();
    assert_eq!(ledger.durability_snapshot().waiting, 0);
    let book = LedgerStore::open_read_only(store.clone());
    assert!(report::verify(&book).unwrap().is_intact());
    assert!(!rebuild::verify(&book).unwrap().is_intact());
    let ledger = open(&store, QUICK);
    operations.push_request(&ledger);
    ledger.close();
    assert_equal_to_ledger(&book);
}

#[test]
fn a_commit_of_a_process_alone_reads_no_rollup_again() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let push = |name: &str| {
        (0..20).for_each(|n| {
            reserve(&ledger, &format!("{name}{n}"), 0).unwrap().settle(charge(0));
        });
        until("all to be written", || ledger.durability_snapshot().waiting == 0);
    };
    push("first");
    let before = (store.reads.load(Ordering::Acquire), store.committed.lock().len());
    push("next");
    let reads = store.reads.load(Ordering::Acquire) - before.0;
    let commits = u32::try_from(store.committed.lock().len() - before.1).unwrap();
    // Each commit reads the length of the month. If a new hour begins meanwhile, two rollups are read too.
    assert!(commits >= 1 && reads <= commits + 2, "{reads} reads in {commits} commits");
}

#[test]
fn hours_of_a_query_are_those_of_its_days() {
    let value = |name: &str| match name {
        "from" => Some("2026-10-31"),
        "to" => Some("2026-11-01"),
        _ => None,
    };
    let query = UsageQuery::parse(value, START).unwrap();
    let (first, end) = query.range.hour_bounds();
    assert_eq!(end.0 - first.0, 48);
    assert!(first < HourNumber::from_unix(START) && HourNumber::from_unix(START) < end);
}
