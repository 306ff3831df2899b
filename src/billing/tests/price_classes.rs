//! Tests of the classes of prices: the amount of an invoice line is the sum of its quantities times their unit
//! prices. Rollups that an earlier version wrote without classes are valid.

use super::rollups::START;
use super::*;
use crate::billing::invoice::{
    InvoiceFigures, InvoiceLineKey, InvoiceSums, PRICE_NAMES, read_invoice_figures,
};
use crate::billing::rollups::rebuild;
use crate::billing::write_op::LedgerAction;
use penstock_ledger::UtcDay;
use penstock_pricing::{BilledWork, BillingMode, PayingWallet, Tariff, compute_charge};
use penstock_usage::{PriceClass, RollupDimensions, UsageRange, decode_row, encode_row_value, row_key};

const TERMS: &str = r#"{"location":"Paris, France","billing":"energy","input":"0.15","cached_input":"0.07","output":"0.6","eur_per_kwh":"0.35","eur_per_credit":"0.01"}"#;

fn tariff() -> Tariff {
    let price = |text: &str| Some(Decimal::from_str_exact(text).unwrap());
    Tariff {
        billing: BillingMode::Energy,
        input: price("0.15"),
        cached_input: price("0.07"),
        output: price("0.6"),
        image: None,
        minute: None,
        eur_per_kwh: price("0.35").unwrap(),
    }
}

/// Pushes a request with the charge of the tariff.
fn push_charge(ledger: &Ledger, number: u64, wallet: Wallet, batch: bool) {
    let usage = TokenUsage {
        input: 1_000 + number,
        cached: 100 * (number % 7),
        output: 31 * number,
        ..TokenUsage::default()
    };
    let kwh = Decimal::new(i64::try_from(number).unwrap() * 12_345 + 1, 9);
    let pays = if wallet == Wallet::Credits { PayingWallet::Credits } else { PayingWallet::Energy };
    let per_credit = Decimal::new(1, 2);
    let charged = compute_charge(&tariff(), &BilledWork::Tokens(usage), pays, batch, kwh, per_credit);
    let amount = if wallet == Wallet::Credits { charged.credits.0 } else { charged.energy.0 };
    let mut sale = charge(0).sale;
    (sale.batch, sale.usage, sale.terms, sale.eur) = (batch, usage, "t9".into(), charged.eur);
    let (request, key): (Arc<str>, Arc<str>) = (format!("r{number}").into(), "k".into());
    let reserve = EntryKind::Reserve { request: request.clone(), key: key.clone(), wallet, amount };
    let footprint = RequestFootprint { kwh, ..RequestFootprint::default() };
    let settle =
        EntryKind::Settle { request, key, wallet, amount, held: amount, sale: Box::new(sale), footprint };
    let terms = Arc::new(SaleTerms { id: "t9".into(), text: TERMS.into() });
    for (act, terms) in [(reserve, None), (settle, Some(terms))] {
        let (at, account) = (START + number * 60, "acme".into());
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

fn with_all_classes() -> (Arc<Flaky>, LedgerStore) {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    for number in 0..200 {
        let wallet = if number % 3 == 0 { Wallet::Energy } else { Wallet::Credits };
        push_charge(&ledger, number, wallet, number % 5 < 2);
    }
    ledger.close();
    let book = LedgerStore::open_read_only(store.clone());
    (store, book)
}

fn figures(store: &LedgerStore) -> InvoiceFigures {
    let from = UtcDay::from_unix(START);
    read_invoice_figures(store, "acme", UsageRange { from, to: from.next().unwrap() }).unwrap()
}

/// Returns the quantities of a line times its unit prices, EUR.
fn priced(unit: &InvoiceLineKey, sums: &InvoiceSums) -> Decimal {
    let price = |name: &str| {
        let index = PRICE_NAMES.iter().position(|known| *known == name).unwrap();
        unit.prices[index].as_deref().map_or(Decimal::ZERO, |text| Decimal::from_str_exact(text).unwrap())
    };
    let of = &sums.usage.billed;
    if matches!(unit.class, Some(PriceClass::Energy | PriceClass::BatchEnergy)) {
        return Decimal::from_i128_with_scale(of.energy, 9) * price("eur_per_kwh");
    }
    let tokens = |count: u64, name: &str| Decimal::from(count) * price(name);
    let full = tokens(of.input - of.cached, "input") + tokens(of.output, "output");
    (full + tokens(of.cached, "cached_input")) / Decimal::from(1_000_000)
}

#[test]
fn quantities_times_unit_prices_are_the_amount_of_each_line() {
    let (_, book) = with_all_classes();
    let lines = figures(&book).lines;
    let classes: Vec<_> = lines.keys().map(|unit| unit.class.unwrap()).collect();
    assert_eq!(classes, PriceClass::ALL);
    for (unit, sums) in &lines {
        // Each charge is rounded to 1e-8 EUR, and each amount of energy to 1e-9 kWh.
        let tolerance = Decimal::new(1, 8) * Decimal::from(sums.usage.billed.requests);
        let off = (priced(unit, sums) - sums.usage.billed.eur).abs();
        assert!(off <= tolerance, "{unit:?}: {off}");
        assert!(sums.usage.billed.eur > tolerance * Decimal::from(100), "the check means something");
    }
}

/// Adds the rows of all classes up in the first one, as an earlier version writes them.
fn merge_classes(store: &Arc<Flaky>) {
    for row in store.scan(StoreTable::Usage, b"", None, 1_000).unwrap().rows {
        let (cell, sums) = decode_row(&row.key, &row.value).unwrap();
        if cell.price == PriceClass::default() {
            continue;
        }
        let first = RollupDimensions { price: PriceClass::default(), ..cell };
        let key = row_key(&first);
        let stored = store.get(StoreTable::Usage, &key).unwrap();
        let mut all = stored.map(|value| decode_row(&key, &value).unwrap().1).unwrap_or_default();
        all.add(&sums);
        let merged = Transaction::new().delete(StoreTable::Usage, row.key).put(
            StoreTable::Usage,
            key,
            encode_row_value(&first, &all),
        );
        store.apply(merged).unwrap();
    }
}

#[test]
fn rollups_without_classes_are_valid_and_a_rebuild_separates_them() {
    let (store, book) = with_all_classes();
    let before = figures(&book);
    merge_classes(&store);
    let check = rebuild::verify(&book).unwrap();
    assert!(check.is_intact(), "{check:?}");
    let merged = figures(&book);
    assert_eq!(merged.lines.keys().map(|unit| unit.class).collect::<Vec<_>>(), [None]);
    assert_eq!(merged.total, before.total);
    rebuild::rebuild(&book).unwrap();
    assert!(rebuild::verify(&book).unwrap().is_intact());
    assert_eq!(figures(&book), before);
    // The verification finds sums that differ from the total of all classes.
    let rows = store.scan(StoreTable::Usage, b"acme\0", None, 1_000).unwrap().rows;
    let classes =
        rows.iter().filter(|row| String::from_utf8_lossy(&row.value).contains("\"price\":\"batch\""));
    for row in classes {
        store.apply(Transaction::new().delete(StoreTable::Usage, row.key.clone())).unwrap();
        assert!(!rebuild::verify(&book).unwrap().is_intact());
        let (cell, sums) = decode_row(&row.key, &row.value).unwrap();
        let mut twice = sums.clone();
        twice.add(&sums);
        let put =
            |value| store.apply(Transaction::new().put(StoreTable::Usage, row.key.clone(), value)).unwrap();
        put(encode_row_value(&cell, &twice));
        assert!(!rebuild::verify(&book).unwrap().is_intact());
        put(row.value.clone());
        assert!(rebuild::verify(&book).unwrap().is_intact());
    }
}

#[test]
fn a_period_with_nothing_but_a_refund_has_no_amount_to_pay() {
    let mut figures = InvoiceFigures::default();
    for (eur, has_amount) in [(0, false), (-1, false), (1, true)] {
        figures.total.usage.billed.eur = Decimal::new(eur, 2);
        assert_eq!(figures.has_amount_to_pay(), has_amount, "{eur}");
    }
}
