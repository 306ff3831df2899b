//! Leases that a process takes over from an earlier one of the same member.

use super::*;
use crate::billing::ReserveAmounts;
use crate::billing::handover::BudgetCharge;
use crate::limits::rate_limit::apply_charge_of_other_process;
use penstock_storage::fleet::credit_pool_name;
use rust_decimal::Decimal;

#[tokio::test]
async fn a_restored_part_of_a_budget_that_was_lowered_meanwhile_is_recalled() {
    let database = Database::new(limits(1_000));
    let [first, other] = ["1", "2"].map(|name| database.open(name));
    assert!(first.serve(20, 20).await && other.serve(20, 20).await);
    assert!(first.cache.flush_spends(&first.spends));
    let part = first.available();
    first.ledger.close();
    let (who, what) = ("test".to_owned(), "key.change".to_owned());
    let entry = ChangeDescription { at: 6, who, what, target: database.record.id.clone(), change: json!({}) };
    let lowered = database.stores.keys.change(&database.record.id, |key| {
        key.limits = limits(100);
        Some(entry.clone())
    });
    assert_eq!(lowered.unwrap().unwrap().limits, limits(100));
    let second = database.open("1");
    assert_eq!(second.available(), part);
    assert!(!second.serve(20, 20).await, "the other member has more than the lowered budget");
    assert_eq!(second.available(), 0, "its part went back");
    database.change(&[&other], &limits(100));
    let mut charged = 40;
    charged += 20 * spend_all(&[second, other], 20, 20).await;
    assert_eq!(charged, 100);
}

#[tokio::test]
async fn what_a_drained_process_has_drawn_returns_after_its_end() {
    let database = Database::new(limits(100_000));
    let old = database.open("1");
    old.ledger.grant("acme", "g", Wallet::Credits, 100_000, ("", "test")).await.unwrap();
    old.ledger.close();
    let new = database.open("1");
    let pool =
        || SharedFleet::new(database.store.clone()).available_amount(&credit_pool_name("acme")).unwrap();
    let credits = || new.ledger.account_balance("acme").available(Wallet::Credits);
    // The old process still serves requests.
    drop(old.reserve(100).await.unwrap());
    let (need, deadline) = (ReserveAmounts { credits: 100, energy: None, eur: 0 }, Duration::from_secs(60));
    old.ledger.ensure_funded("acme", need, tokio::time::Instant::now() + deadline).await.unwrap();
    let drawn = old.available();
    assert_eq!((database.leased(), pool()), (drawn, 100_000 - 1_600));
    for _ in 0..3 {
        new.beat(&[]);
    }
    assert_eq!((new.available(), credits()), (0, 0), "the old one may still spend it");
    new.ledger.record_predecessor_end();
    new.ledger.mark_late_draws_uncertain(&new.cache);
    new.ledger.resolve_uncertain_draws(new.ledger.leases().unwrap(), true).unwrap();
    assert_eq!((new.available(), credits()), (drawn, 1_600));
    for _ in 0..3 {
        new.beat(&[]);
    }
    assert_eq!((database.leased(), pool()), (0, 100_000), "nobody needs it");
}

#[tokio::test]
async fn charges_that_a_start_replays_are_no_spending_of_its_first_second() {
    let database = Database::new(limits(100_000));
    let first = database.open("1");
    assert!(first.serve(100, 60).await && first.cache.flush_spends(&first.spends));
    first.ledger.close();
    let second = database.open("1");
    let key = Arc::from(database.record.id.as_str());
    let replayed = BudgetCharge { key, wallet: Wallet::Credits, amount: 500, eur: Decimal::ZERO };
    second.ledger.replayed_charges.lock().push(replayed);
    let before = second.available();
    second.ledger.drain_replayed_charges(|charge| {
        apply_charge_of_other_process(&second.principal, MicroCredits(charge.amount), second.clock);
    });
    assert_eq!(second.available(), before - 500);
    let leases = second.ledger.leases().unwrap();
    assert_eq!(leases.pools.lock().len(), 1);
    second.ledger.adjust_leases(false);
    assert!(leases.pools.lock().values().all(|state| state.spent_last_second == 0 && state.rate == 0));
}

#[tokio::test]
async fn an_amount_that_was_spent_before_its_lease_had_a_state_is_no_spending_of_a_second() {
    let database = Database::new(limits(100_000));
    let gateway = database.open("1");
    gateway.cache.start_limit_sharing(&gateway.principal, &gateway.member);
    apply_charge_of_other_process(&gateway.principal, MicroCredits(500), gateway.clock);
    assert!(gateway.serve(100, 60).await);
    gateway.ledger.adjust_leases(false);
    let leases = gateway.ledger.leases().unwrap();
    assert!(leases.pools.lock().values().all(|state| state.spent_last_second == 60));
}
