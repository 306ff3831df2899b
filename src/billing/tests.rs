//! Tests of the ledger on a store with injected faults: limits, refusals, and that nothing is lost or written twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod audits;
mod chains;
mod days;
mod exports;
mod fenced;
mod flaky;
mod forwarding;
mod history;
mod journal;
mod lines;
mod price_classes;
mod proof;
mod rebuilds;
mod rollup_checks;
mod rollups;
mod starts;
mod waits;

use super::*;
use crate::config::settings::Settings;
use crate::config::{ResolveEnv, load_text};
use flaky::Flaky;
use penstock_core::{ApiError, ErrorCode, TokenUsage};
use penstock_ledger::{RequestFootprint, SaleDetails};
use penstock_storage::{Store, StoreTable, Transaction, open_in_memory};
use rust_decimal::Decimal;
use std::time::Instant;

fn settings(text: &str) -> Settings {
    let none = ResolveEnv { env: &|_| None };
    load_text("test.toml", text, none).unwrap().settings
}

fn open(store: &Arc<Flaky>, text: &str) -> Arc<Ledger> {
    let book = LedgerStore::open_read_only(store.clone());
    Ledger::open(Arc::new(book), &settings(text).ledger, ProcessClock::start()).unwrap()
}

const QUICK: &str = "[ledger]\nwindow = \"0\"\ndebt = 0.001\n";

fn need(credits: i64) -> ReserveAmounts {
    ReserveAmounts { credits, energy: None, eur: credits }
}

fn reserve(ledger: &Arc<Ledger>, request: &str, credits: i64) -> Result<Hold, ApiError> {
    ledger.reserve("acme", &"key".into(), request, need(credits), true)
}

fn charge(amount: i64) -> Settlement {
    Settlement {
        amount,
        eur: amount,
        sale: SaleDetails {
            model: "m".into(),
            provider: "p".into(),
            terms: "t".into(),
            batch: false,
            usage: TokenUsage { input: 1, output: 2, ..TokenUsage::default() },
            images: 0,
            seconds: Decimal::ZERO,
            billable_kwh: None,
            eur: Decimal::new(amount, 8),
        },
        terms: Arc::new(SaleTerms { id: "t".into(), text: "{}".into() }),
        footprint: RequestFootprint::default(),
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn grant(ledger: &Ledger, id: &str, amount: i64) -> Result<u64, AdjustmentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(ledger.grant("acme", id, Wallet::Credits, amount, ("test", "me")))
}

/// Checks that all operations are in the store, and that the ledger is valid.
fn settled(ledger: &Ledger) -> report::LedgerVerification {
    until("the queue to be written", || ledger.durability_snapshot().waiting == 0);
    let proof = report::verify(&ledger.store).unwrap();
    assert!(proof.is_intact(), "{proof:?}");
    proof
}

#[test]
fn a_grant_is_spent_exactly_once() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    assert_eq!(
        reserve(&ledger, "r0", 1).err().map(|refusal| refusal.code),
        Some(ErrorCode::InsufficientCredits)
    );
    grant(&ledger, "g1", 100).unwrap();
    let hold = reserve(&ledger, "r1", 60).unwrap();
    let refused = reserve(&ledger, "r2", 41).err().unwrap();
    assert_eq!(refused.details["wallet"], "credits");
    assert_eq!(refused.details["required"].as_f64(), Some(0.000_041));
    assert_eq!(refused.details["available"].as_f64(), Some(0.000_04));
    assert!(refused.is_caused_by_reservations, "40 are held and may come back");
    assert!(
        !reserve(&ledger, "r2", 101).err().unwrap().is_caused_by_reservations,
        "no end of a hold makes so much of it"
    );
    hold.settle(charge(25));
    reserve(&ledger, "r3", 75).unwrap().void("failed", RequestFootprint::default());
    drop(reserve(&ledger, "r4", 75).unwrap());
    let proof = settled(&ledger);
    // Grant, three reserves, terms, settle, two voids.
    assert_eq!((proof.entries, proof.open_reservations), (8, 0));
    assert_eq!(ledger.balance("acme").credits.amount, 75);
}

#[test]
fn a_grant_is_recorded_once_per_id() {
    let ledger = open(&Flaky::over(open_in_memory()), QUICK);
    let first = grant(&ledger, "invoice-7", 100).unwrap();
    assert_eq!(grant(&ledger, "invoice-7", 100), Err(AdjustmentError::Duplicate(first)));
    assert_eq!(grant(&ledger, "invoice-8", i64::MAX), Err(AdjustmentError::InvalidAmount));
    assert_eq!(grant(&ledger, "invoice-9", 0), Err(AdjustmentError::InvalidAmount));
    assert_eq!(ledger.balance("acme").credits.amount, 100);
    assert_eq!(settled(&ledger).entries, 1);
}

#[test]
fn while_the_store_is_full_requests_continue_up_to_the_debt_limit_and_grants_are_refused() {
    let store = Flaky::over(open_in_memory());
    // The setting `debt = 0.001` EUR is 100,000 units of 1e-8 EUR.
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 10_000_000).unwrap();
    store.full.store(true, Ordering::Release);
    reserve(&ledger, "first", 1_000).unwrap().settle(charge(1_000));
    until("the failure to be known", || ledger.is_failing());
    assert_eq!(grant(&ledger, "g2", 5), Err(AdjustmentError::StoreFailing));
    let mut served = 1_000;
    let refused = loop {
        match reserve(&ledger, &format!("r{served}"), 1_000) {
            Ok(hold) => {
                hold.settle(charge(700));
                served += 700;
            }
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refused.code, refused.retry_after), (ErrorCode::Unavailable, Some(5)));
    assert!(served <= 100_000 && served + 1_000 > 100_000, "{served} of 100000");
    let state = ledger.durability_snapshot();
    assert!(state.failing && state.exhausted && state.exposed_eur_units == served, "{state:?}");
    // Charges from the time of the full disk are written later, each once.
    store.full.store(false, Ordering::Release);
    until("the store to be back", || !ledger.is_failing());
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 10_000_000 - served);
    assert_eq!(ledger.durability_snapshot().exposed_eur_units, 0);
    assert!(reserve(&ledger, "later", 1_000).is_ok());
    assert!(grant(&ledger, "g2", 5).is_ok());
}

#[test]
fn a_slow_store_counts_as_failing_and_delays_no_request() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000_000).unwrap();
    store.stalls.store(true, Ordering::Release);
    let began = Instant::now();
    for n in 0..50 {
        reserve(&ledger, &format!("r{n}"), 10).unwrap().settle(charge(10));
    }
    assert!(began.elapsed() < ledger.slow(), "requests waited for the disk");
    until("slowness to show", || ledger.is_failing());
    assert_eq!(grant(&ledger, "g2", 5), Err(AdjustmentError::StoreFailing));
    store.stalls.store(false, Ordering::Release);
    until("the store to be back", || !ledger.is_failing());
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 1_000_000 - 500);
}

#[test]
fn a_commit_whose_answer_is_lost_is_not_written_twice() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000_000).unwrap();
    store.lies.store(3, Ordering::Release);
    for n in 0..20 {
        reserve(&ledger, &format!("r{n}"), 10).unwrap().settle(charge(10));
        until("it to be written", || ledger.durability_snapshot().waiting == 0);
    }
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 1_000_000 - 200);
    // If the response of a grant is lost, its caller does not know the outcome, but the grant is recorded once.
    store.lies.store(1, Ordering::Release);
    assert_eq!(grant(&ledger, "g2", 7), Err(AdjustmentError::OutcomeUnknown));
    until("it to be written", || ledger.durability_snapshot().waiting == 0 && !ledger.is_failing());
    assert!(matches!(grant(&ledger, "g2", 7), Err(AdjustmentError::Duplicate(_))));
    assert_eq!(ledger.balance("acme").credits.amount, 1_000_000 - 200 + 7);
    settled(&ledger);
}

#[test]
fn sixty_four_concurrent_requests_spend_exactly_the_balance() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, "[ledger]\nwindow = \"1ms\"\n");
    grant(&ledger, "g1", 64_000).unwrap();
    let served: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|thread| {
                let ledger = &ledger;
                scope.spawn(move || {
                    let try_one = |n: &i32| match reserve(ledger, &format!("r{thread}-{n}"), 30) {
                        Ok(hold) => hold.settle(charge(30)) > 0,
                        Err(_) => false,
                    };
                    (0..50).filter(try_one).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(served, 64_000 / 30);
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 64_000 % 30);
}

#[test]
fn the_energy_wallet_pays_first_and_then_credits() {
    let ledger = open(&Flaky::over(open_in_memory()), QUICK);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(ledger.grant("acme", "kwh", Wallet::Energy, 100, ("", "me"))).unwrap();
    let need = ReserveAmounts { credits: 7, energy: Some(80), eur: 7 };
    let ask = |request: &str| ledger.reserve("acme", &"key".into(), request, need, true);
    let first = ask("r1").unwrap();
    assert_eq!(first.wallet(), Wallet::Energy);
    let refused = ask("r2").err().unwrap();
    assert_eq!(refused.details["energy"]["available_kwh"].as_f64(), Some(0.000_000_02));
    grant(&ledger, "g1", 7).unwrap();
    let second = ask("r3").unwrap();
    assert_eq!(second.wallet(), Wallet::Credits);
    first.settle(charge(80));
    second.settle(charge(5));
    settled(&ledger);
    let balance = ledger.balance("acme");
    assert_eq!((balance.energy.amount, balance.credits.amount), (20, 2));
}

#[test]
fn an_adjustment_is_answered_while_the_store_hangs_and_recorded_once() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    store.stalls.store(true, Ordering::Release);
    assert_eq!(grant(&ledger, "g1", 7), Err(AdjustmentError::OutcomeUnknown));
    store.stalls.store(false, Ordering::Release);
    settled(&ledger);
    until("the store to be back", || !ledger.is_failing());
    assert!(matches!(grant(&ledger, "g1", 7), Err(AdjustmentError::Duplicate(_))));
    assert_eq!(ledger.balance("acme").credits.amount, 7);
}

#[test]
fn a_charge_that_overflows_the_balance_ends_its_reservation_without_a_charge() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let charges = ["r1", "r2"].map(|request| {
        let hold = ledger.reserve("acme", &"key".into(), request, need(10), false).unwrap();
        hold.settle(Settlement { eur: 10, ..charge(i64::MAX) })
    });
    assert!(charges[0] < charges[1]);
    let proof = settled(&ledger);
    assert_eq!((proof.open_reservations, ledger.durability_snapshot().open), (0, 0));
    let (text, _) = report::read_text_page(&ledger.store, &[]).unwrap().unwrap();
    let text = String::from_utf8(text).unwrap();
    let of = |act: &str| text.lines().filter(|line| line.contains(&format!("\"act\":\"{act}\""))).count();
    assert_eq!((of("reserve"), of("settle"), of("void")), (2, 1, 1), "{text}");
    assert!(text.contains("unwritable"), "{text}");
    ledger.close();
    assert_eq!(settled(&open(&store, QUICK)).entries, proof.entries, "nothing is left to void");
}
