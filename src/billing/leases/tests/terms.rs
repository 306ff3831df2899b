//! Requests of a member whose lease term has ended.

use super::*;
use penstock_core::ErrorCode;

#[tokio::test]
async fn a_member_whose_term_has_ended_reserves_nothing_from_its_leases() {
    let gateways = Gateways::new();
    let (_member, ledger) = gateways.open_with("1", &FleetSettings { lease: Duration::ZERO, ..settings() });
    grant(&ledger, 1_000).await;
    let lease = LeasedBalance::Wallet(ledger.account_balance("acme"), Wallet::Credits);
    assert_eq!(ledger.leases().unwrap().draw(&lease, 100, 100), Ok(true));
    let key: Arc<str> = "key".into();
    let covered = ledger.reserve("acme", &key, "r1", need(10), true);
    let drawn = ledger.reserve_prepaid("acme", &key, "r2", need(10)).await;
    let free = ledger.reserve("acme", &key, "r3", need(0), true);
    for refused in [covered, drawn, free] {
        assert_eq!(refused.err().map(|refusal| refusal.code), Some(ErrorCode::Unavailable));
    }
    assert_eq!(ledger.balance("acme").credits.held, 0);
    // A postpaid request spends no lease.
    assert!(ledger.reserve("acme", &key, "r4", need(10), false).is_ok());
}
