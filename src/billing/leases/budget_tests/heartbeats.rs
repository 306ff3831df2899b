//! Refill of leases of budgets by heartbeats.

use super::*;

/// Returns the leased amount of each budget that no request has reserved.
fn parts(gateway: &Gateway) -> Vec<i64> {
    LeasedBudget::uncovered_budgets(&gateway.principal, u64::MAX)
        .iter()
        .map(LeasedBudget::unreserved_amount)
        .collect()
}

/// Serves requests until the leases of both budgets are smaller than the expected spending; returns the rest of each
/// lease.
async fn gateway_in_need(database: &Database) -> (Gateway, Vec<i64>) {
    let gateway = database.open("1");
    for _ in 0..10 {
        assert!(gateway.serve(100, 100).await);
    }
    let left = parts(&gateway);
    assert_eq!(left, [600, 600]);
    (gateway, left)
}

fn two_budgets() -> KeyLimits {
    KeyLimits { budget_per_month: Some(1_000_000), ..limits(1_000_000) }
}

#[tokio::test]
async fn a_heartbeat_draws_for_as_long_as_it_has_time() {
    let database = Database::new(two_budgets());
    let (gateway, left) = gateway_in_need(&database).await;
    gateway.ledger.adjust_leases_while(false, || false);
    assert_eq!(parts(&gateway), left);
    let mut once = [true].into_iter();
    gateway.ledger.adjust_leases_while(false, || once.next().unwrap_or(false));
    assert_eq!(parts(&gateway).iter().filter(|part| **part > 600).count(), 1);
    gateway.ledger.adjust_leases(false);
    assert!(parts(&gateway).iter().all(|part| *part > 600), "{:?}", parts(&gateway));
}

#[tokio::test]
async fn a_lease_that_a_heartbeat_had_no_time_for_comes_first_in_the_next() {
    let database = Database::new(two_budgets());
    let (gateway, _) = gateway_in_need(&database).await;
    let budgets = LeasedBudget::uncovered_budgets(&gateway.principal, u64::MAX);
    let draw = |budget: &LeasedBudget, skipped| {
        let balance = LeasedBalance::Budget(budget.clone());
        PendingRefill { balance, amount: 50, skipped }
    };
    let mut once = [true].into_iter();
    let draws = vec![draw(&budgets[0], 0), draw(&budgets[1], 1)];
    gateway.ledger.leases().unwrap().refill(draws, || once.next().unwrap_or(false));
    assert_eq!(parts(&gateway), [600, 650]);
    let pools = gateway.ledger.leases().unwrap().pools.lock();
    let skipped = |budget: &LeasedBudget| pools[&LeasedPool::Budget(budget.clone())].skipped_draws;
    assert_eq!((skipped(&budgets[0]), skipped(&budgets[1])), (1, 0));
}

#[tokio::test]
async fn a_heartbeat_leaves_a_pool_alone_that_was_just_found_empty() {
    let database = Database::new(limits(1_000_000));
    let gateway = database.open("1");
    for _ in 0..10 {
        assert!(gateway.serve(100, 100).await);
    }
    let leases = gateway.ledger.leases().unwrap();
    // Later than the end of the test, so that the pool counts as just found empty.
    let found_at = Instant::now() + DAY;
    let nothing = DrawnAmount { amount: 0, rest: 0 };
    leases.pools.lock().values_mut().for_each(|state| state.record_draw(1, nothing, found_at));
    gateway.ledger.adjust_leases(false);
    assert_eq!(parts(&gateway), [600]);
    leases.pools.lock().values_mut().for_each(LeaseState::forget_empty_pool);
    gateway.ledger.adjust_leases(false);
    assert!(parts(&gateway).iter().all(|part| *part > 600));
}

#[tokio::test]
async fn what_one_budget_got_returns_at_once_if_another_budget_refuses_the_request() {
    let database = Database::new(KeyLimits { budget_per_month: Some(1_000), ..limits(100_000) });
    let gateways = ["1", "2"].map(|name| database.open(name));
    let _held = gateways[0].reserve(600).await.unwrap();
    let second = &gateways[1];
    assert!(!second.serve(600, 10).await, "the other gateway has the month's budget");
    let (draws, drawn) = (second.total_request_draws(), second.available());
    assert!(drawn > 0, "the day's budget was drawn first");
    assert!(!second.serve(2_000, 10).await);
    assert_eq!(
        (second.total_request_draws(), second.available()),
        (draws, drawn),
        "the month's pool is known to be empty"
    );
    second.beat(&[]);
    assert_eq!(parts(second)[0], 0, "of the day");
}
