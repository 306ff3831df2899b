//! Leases of two members on one store.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::state::EMPTY_POOL_CACHE_TIME;
use super::*;
use crate::billing::{ReserveAmounts, SaleTerms, Settlement};
use crate::config::settings::{FleetSettings, LedgerSettings};
use crate::time::clock::ProcessClock;
use penstock_core::TokenUsage;
use penstock_ledger::{RequestFootprint, SaleDetails};
use penstock_storage::fleet::{SharedFleet, credit_pool_name};
use penstock_storage::ledger::{ChainClaim, LedgerStore};
use penstock_storage::{Store, open_in_memory};
use rust_decimal::Decimal;
use std::time::Duration;

mod contention;
mod terms;

fn settings() -> FleetSettings {
    FleetSettings {
        name: None,
        claim: Duration::from_secs(15),
        lease: Duration::from_secs(600),
        advance: Duration::from_secs(60),
        stale: None,
    }
}

struct Gateways {
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
}

impl Gateways {
    fn new() -> Self {
        Self { store: open_in_memory(), folder: tempfile::tempdir().unwrap() }
    }

    fn open(&self, name: &str) -> (Arc<FleetMember>, Arc<Ledger>) {
        self.open_with(name, &settings())
    }

    fn open_with(&self, name: &str, settings: &FleetSettings) -> (Arc<FleetMember>, Arc<Ledger>) {
        let fleet = SharedFleet::new(self.store.clone());
        let member = FleetMember::join(fleet, settings, &self.folder.path().join(name)).unwrap();
        let claim = ChainClaim::take(&*self.store, member.member_number()).unwrap();
        let book = LedgerStore::open_member(self.store.clone(), None, claim).unwrap();
        let terms = LedgerSettings {
            window: Duration::ZERO,
            answers_wait_for_disk: true,
            debt: i64::MAX,
            backlog: usize::MAX,
            slow: Duration::from_secs(5),
            max_clock_lead: Duration::MAX,
        };
        let ledger = Ledger::open_for_member(Arc::new(book), &terms, ProcessClock::start(), &member);
        (member, ledger.unwrap())
    }

    fn pool(&self, account: &str) -> i64 {
        SharedFleet::new(self.store.clone()).available_amount(&credit_pool_name(account)).unwrap()
    }
}

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

const fn need(credits: i64) -> ReserveAmounts {
    ReserveAmounts { credits, energy: None, eur: 0 }
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
            usage: TokenUsage::default(),
            images: 0,
            seconds: Decimal::ZERO,
            billable_kwh: None,
            eur: Decimal::new(amount, 8),
        },
        terms: Arc::new(SaleTerms { id: "t".into(), text: "{}".into() }),
        footprint: RequestFootprint::default(),
    }
}

/// Serves one request; returns false if its price is not covered.
async fn serve(ledger: &Arc<Ledger>, request: &str, held: i64, charged: i64) -> bool {
    if ledger.ensure_funded("acme", need(held), deadline()).await.is_err() {
        return false;
    }
    let hold = ledger.reserve("acme", &"key".into(), request, need(held), true).unwrap();
    let ticket = hold.settle(charge(charged));
    ledger.wait_durable(ticket).await
}

async fn grant(ledger: &Ledger, amount: i64) {
    ledger.grant("acme", "g", Wallet::Credits, amount, ("", "test")).await.unwrap();
}

#[tokio::test]
async fn every_unit_of_a_balance_is_spent_once_by_whichever_member() {
    let gateways = Gateways::new();
    let ((_one, first), (_two, second)) = (gateways.open("1"), gateways.open("2"));
    grant(&second, 10_000).await;
    let (mut served, mut n) = (0, 0);
    loop {
        let mut any = false;
        for ledger in [&first, &second] {
            n += 1;
            let one = serve(ledger, &format!("r{n}"), 10, 10).await;
            served += i64::from(one);
            any |= one;
        }
        if !any {
            break;
        }
    }
    // The remaining amount is split between the leases, each less than the price of a request.
    assert!((995..=1_000).contains(&served), "{served}");
    let left = first.current_balance("acme").await.unwrap().credits.amount;
    assert_eq!(left, 10_000 - 10 * served);
    let refusal = first.ensure_funded("acme", need(10), deadline()).await.unwrap_err();
    assert_eq!(refusal.code, penstock_core::ErrorCode::InsufficientCredits);
}

/// Returns unused amounts to the pool, as a member does each second.
fn return_unused(member: &FleetMember, ledger: &Ledger) {
    ledger.adjust_leases(true);
    let leases = ledger.leases().unwrap();
    let returning = leases.mark_returns_sent();
    member.write_heartbeat(&crate::fleet::MemberReport::default(), returning, Instant::now()).unwrap();
    leases.on_returns_accepted();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_refused_because_others_took_or_returned_its_credits() {
    let gateways = Gateways::new();
    let (member, ledger) = gateways.open("1");
    grant(&ledger, 1_000_000_000).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let ledger = ledger.clone();
        tasks.spawn(async move {
            for n in 0..40 {
                let name = format!("r{task}-{n}");
                let hold = ledger.reserve_prepaid("acme", &"key".into(), &name, need(1_000)).await;
                let hold = hold.unwrap_or_else(|refusal| panic!("{name}: {}", refusal.message));
                tokio::task::yield_now().await;
                drop(hold);
            }
        });
    }
    let mut checks = 0;
    while !tasks.is_empty() {
        tokio::task::block_in_place(|| return_unused(&member, &ledger));
        checks += 1;
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
    }
    assert!(checks > 1);
    ledger.adjust_leases(true);
    return_unused(&member, &ledger);
    assert_eq!(gateways.pool("acme"), 1_000_000_000);
}

#[tokio::test]
async fn a_refusal_states_the_balance_of_all_members_and_that_others_hold_it() {
    let gateways = Gateways::new();
    let ((_one, first), (_two, second)) = (gateways.open("1"), gateways.open("2"));
    grant(&first, 100).await;
    first.ensure_funded("acme", need(90), deadline()).await.unwrap();
    let refusal = second.ensure_funded("acme", need(50), deadline()).await.unwrap_err();
    assert!(
        refusal.message.contains("0.0001 are available while other requests are in flight"),
        "{}",
        refusal.message
    );
}

#[tokio::test]
async fn a_refusal_after_a_heartbeat_without_credits_states_that_others_hold_the_balance() {
    let gateways = Gateways::new();
    let ((_one, first), (_two, second)) = (gateways.open("1"), gateways.open("2"));
    grant(&first, 2_000).await;
    assert!(serve(&second, "r", 100, 100).await);
    first.ensure_funded("acme", need(1_500), deadline()).await.unwrap();
    let _hold = second.reserve("acme", &"key".into(), "h", need(350), true).unwrap();
    second.adjust_leases(true);
    let leases = second.leases().unwrap();
    let balance = LeasedBalance::Wallet(second.account_balance("acme"), Wallet::Credits);
    assert!(!leases.with_state(&balance, |state| state.may_refill(Instant::now())), "the heartbeat drew");
    let refusal = second.ensure_funded("acme", need(100), deadline()).await.unwrap_err();
    assert!(
        refusal.message.contains("0.0019 are available while other requests are in flight"),
        "{}",
        refusal.message
    );
}

#[tokio::test]
async fn what_is_not_needed_returns_to_the_pool() {
    let gateways = Gateways::new();
    let (member, ledger) = gateways.open("1");
    grant(&ledger, 100_000).await;
    assert!(serve(&ledger, "r", 100, 60).await);
    assert_eq!(gateways.pool("acme"), 100_000 - 1_600);
    for _ in 0..200 {
        return_unused(&member, &ledger);
    }
    assert_eq!(gateways.pool("acme"), 100_000 - 60, "all but the charge");
    assert!(serve(&ledger, "again", 100, 40).await);
    assert_eq!(ledger.current_balance("acme").await.unwrap().credits.amount, 100_000 - 100);
}

#[tokio::test]
async fn a_lease_grows_with_the_spending() {
    let gateways = Gateways::new();
    let (_member, ledger) = gateways.open("1");
    grant(&ledger, 10_000_000).await;
    for n in 0..20 {
        assert!(serve(&ledger, &format!("r{n}"), 100, 100).await);
        ledger.adjust_leases(true);
    }
    let leased = 10_000_000 - 2_000 - gateways.pool("acme");
    assert!((2_000..=100 * 60 * 2).contains(&leased), "{leased}");
}

#[tokio::test]
async fn what_a_refused_request_of_another_member_needs_returns_at_once() {
    let gateways = Gateways::new();
    let ((member, first), (_two, second)) = (gateways.open("1"), gateways.open("2"));
    grant(&first, 40_000).await;
    for n in 0..20 {
        assert!(serve(&first, &format!("r{n}"), 1_000, 1_000).await);
        return_unused(&member, &first);
    }
    assert_eq!(second.leases().unwrap().pools_wanted_from_peers(), [""; 0]);
    let refused = second.ensure_funded("acme", need(18_000), deadline()).await.unwrap_err();
    assert!(refused.message.contains("while other requests are in flight"), "{}", refused.message);
    let wanted = second.leases().unwrap().pools_wanted_from_peers();
    assert_eq!(wanted, [credit_pool_name("acme")]);
    first.leases().unwrap().set_pools_wanted_by_peers(wanted.into_iter().map(|pool| (2, pool)));
    // A lease that was drawn in the same second returns with the next heartbeat.
    return_unused(&member, &first);
    first.adjust_leases(true);
    assert_eq!(first.account_balance("acme").available(Wallet::Credits), 0);
    assert!(serve(&first, "between", 500, 500).await, "it takes back what no heartbeat has sent");
    for _ in 0..3 {
        return_unused(&member, &first);
    }
    assert_eq!(first.account_balance("acme").available(Wallet::Credits), 0, "nothing was spent since");
    // For a short time, the member treats the pool as empty without reading it.
    let begun = Instant::now();
    while second.ensure_funded("acme", need(18_000), deadline()).await.is_err() {
        assert!(begun.elapsed() < EMPTY_POOL_CACHE_TIME * 40);
        tokio::task::yield_now().await;
    }
    first.leases().unwrap().set_pools_wanted_by_peers(std::iter::empty());
    assert!(serve(&first, "more", 500, 500).await);
}

#[tokio::test]
async fn a_process_continues_with_the_leases_of_the_one_before() {
    let gateways = Gateways::new();
    let (_member, ledger) = gateways.open("1");
    grant(&ledger, 100_000).await;
    assert!(serve(&ledger, "r", 100, 60).await);
    ledger.close();
    let (_member, ledger) = gateways.open("1");
    assert_eq!(ledger.account_balance("acme").available(Wallet::Credits), 1_600 - 60);
    assert!(serve(&ledger, "s", 100, 60).await);
    assert_eq!(gateways.pool("acme"), 100_000 - 1_600, "without a draw");
}

#[tokio::test]
async fn a_draw_with_an_unknown_outcome_is_found_in_the_store() {
    let gateways = Gateways::new();
    let (member, ledger) = gateways.open("1");
    grant(&ledger, 100_000).await;
    assert!(serve(&ledger, "r", 100, 60).await);
    // Simulates a draw that the store has applied, but whose result was lost.
    let request = PoolRequest { pool: credit_pool_name("acme"), wanted: 500, least: 1 };
    assert_eq!(member.draw_from_pool(&request), Ok(500));
    let leases = ledger.leases().unwrap();
    leases.pools.lock().values_mut().for_each(|state| state.uncertain = true);
    ledger.resolve_uncertain_draws(leases, true).unwrap();
    assert_eq!(ledger.account_balance("acme").total(Wallet::Credits), 1_600 - 60 + 500);
    ledger.resolve_uncertain_draws(leases, true).unwrap();
    assert_eq!(ledger.account_balance("acme").total(Wallet::Credits), 1_600 - 60 + 500, "once");
}

#[tokio::test]
async fn a_busy_gateway_finds_a_draw_with_an_unknown_outcome() {
    let gateways = Gateways::new();
    let (member, ledger) = gateways.open("1");
    grant(&ledger, 100_000).await;
    ledger.grant("other", "g2", Wallet::Credits, 100_000, ("", "test")).await.unwrap();
    assert!(serve(&ledger, "r", 100, 60).await);
    let request = PoolRequest { pool: credit_pool_name("acme"), wanted: 500, least: 1 };
    assert_eq!(member.draw_from_pool(&request), Ok(500));
    let leases = ledger.leases().unwrap();
    leases.pools.lock().values_mut().for_each(|state| state.uncertain = true);
    let total = || ledger.account_balance("acme").total(Wallet::Credits);
    ledger.ensure_funded("other", need(1_000), deadline()).await.unwrap();
    // At each heartbeat, a charge of another account waits for the writer.
    for (heartbeat, expected) in [(1, 1_540), (2, 1_540), (3, 2_040)] {
        ledger.stop_writer();
        let name = format!("o{heartbeat}");
        let hold = ledger.reserve("other", &"key".into(), &name, need(10), true).unwrap();
        let ticket = hold.settle(charge(10));
        ledger.resolve_uncertain_draws(leases, true).unwrap();
        assert_eq!(total(), expected, "heartbeat {heartbeat}");
        ledger.restart_writer().unwrap();
        assert!(ledger.wait_durable(ticket).await);
    }
}

#[test]
fn a_lease_changes_at_half_and_at_twice_of_what_is_wanted() {
    for (available, wanted, expected) in [
        (0, 0, LeaseChange::Nothing),
        (1, 0, LeaseChange::Return(1)),
        (49, 100, LeaseChange::Draw(51)),
        (50, 100, LeaseChange::Nothing),
        (200, 100, LeaseChange::Nothing),
        (201, 100, LeaseChange::Return(101)),
        (-5, 100, LeaseChange::Draw(105)),
        (i64::MIN, i64::MAX, LeaseChange::Draw(i64::MAX)),
        (i64::MAX, i64::MAX, LeaseChange::Nothing),
    ] {
        assert_eq!(lease_change(available, wanted), expected, "{available} {wanted}");
    }
}

#[test]
fn a_draw_that_was_granted_nothing_leaves_a_fresh_lease_fresh() {
    let gateways = Gateways::new();
    let (_member, ledger) = gateways.open("1");
    let leases = ledger.leases().unwrap();
    let balance = LeasedBalance::Wallet(ledger.account_balance("acme"), Wallet::Credits);
    let is_fresh_after = |amount| {
        let drawn = leases.record_draw(&balance, 10, Ok(DrawnAmount { amount, rest: 0 }), |_| {});
        assert_eq!(drawn, Ok(amount == 10));
        leases.with_state(&balance, |state| state.is_fresh)
    };
    assert_eq!([0, 10, 0].map(is_fresh_after), [false, true, true]);
}

#[test]
fn only_a_draw_without_an_answer_makes_a_lease_uncertain() {
    for (error, expected) in [(StoreError::Guard { step: 2 }, false), (StoreError::Stuck, true)] {
        let gateways = Gateways::new();
        let (_member, ledger) = gateways.open("1");
        let leases = ledger.leases().unwrap();
        let balance = LeasedBalance::Wallet(ledger.account_balance("acme"), Wallet::Credits);
        let draw = leases.record_draw(&balance, 10, Err(FleetError::Store(error.clone())), |_| {});
        assert_eq!(draw, Err(FleetError::Store(error)));
        assert_eq!(leases.with_state(&balance, |state| state.uncertain), expected);
    }
}

#[test]
fn an_empty_pool_is_read_less_and_less_often() {
    let (mut state, found_at) = (LeaseState::default(), Instant::now());
    for pause in [2, 4, 8, 16, 16].map(Duration::from_secs) {
        state.record_draw(1, DrawnAmount { amount: 0, rest: 0 }, found_at);
        assert!(!state.is_pool_known_insufficient(1, found_at), "the total is not read yet");
        state.record_fleet_total(0);
        assert!(!state.may_refill(found_at + pause - Duration::from_millis(1)), "{pause:?}");
        assert!(state.may_refill(found_at + pause), "{pause:?}");
        assert!(state.is_pool_known_insufficient(1, found_at), "a request waits only for a moment");
        assert!(!state.is_pool_known_insufficient(1, found_at + EMPTY_POOL_CACHE_TIME));
    }
    state.record_draw(1, DrawnAmount { amount: 5, rest: 0 }, found_at);
    assert!(state.may_refill(found_at) && !state.is_pool_known_insufficient(1, found_at));
    state.record_draw(10, DrawnAmount { amount: 0, rest: 5 }, found_at);
    state.record_fleet_total(5);
    assert!(state.may_refill(found_at) && state.is_pool_known_insufficient(6, found_at));
    assert!(!state.is_pool_known_insufficient(5, found_at), "the pool has enough for a smaller request");
}
