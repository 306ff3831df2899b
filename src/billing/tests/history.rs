//! Tests of charges of the past.

use super::*;
use crate::billing::BackdatedCharge;
use crate::billing::rollups::rebuild;
use penstock_ledger::UtcMonth;

/// 2026-10-31T23:00:00Z.
const START: u64 = 1_793_487_600;

fn history() -> Vec<BackdatedCharge> {
    let charge = |number: u64| BackdatedCharge {
        at: START + number * 60,
        request: format!("r{number}").into(),
        settlement: charge(3),
    };
    (0..600).map(charge).collect()
}

#[test]
fn a_history_is_charged_at_its_times_and_only_in_an_empty_ledger() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let record = || runtime.block_on(ledger.import_backdated_charges("acme", &"key".into(), history()));
    assert!(record());
    assert!(!record(), "the ledger has entries");
    let proof = settled(&ledger);
    assert_eq!((proof.open_reservations, ledger.durability_snapshot().exposed_eur_units), (0, 0));
    assert_eq!(ledger.balance("acme").credits.amount, -1_800);
    assert!(rebuild::verify(&ledger.store).unwrap().is_intact());
    let october = UtcMonth::from_unix(START);
    for (month, charges) in [(october, 60), (october.next().unwrap(), 540)] {
        let statement = report::statement_of_entries(
            &ledger.store,
            report::StatementPeriod::of_month(month),
            Some("acme"),
        )
        .unwrap()
        .statement;
        assert_eq!(statement.rows().map(|row| row.sums.requests).sum::<u64>(), charges, "{month}");
    }
}
