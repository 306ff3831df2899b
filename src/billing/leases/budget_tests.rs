//! Leases of budgets of three members on one store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::auth::key_cache::{KeyCache, Principal};
use crate::auth::limited_owner::LeasedBudget;
use crate::config::settings::{FleetSettings, LedgerSettings, StorageSettings};
use crate::fleet::MemberReport;
use crate::limits::rate_limit::{KeyLimitReservation, acquire_provisional_limits_permit};
use crate::storage::stores::OpenStorage;
use penstock_auth::ApiKey;
use penstock_core::{ApiError, ErrorCode, MicroCredits};
use penstock_limits::{ActualCost, BudgetPeriod, CostEstimate, WorkClass};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::fleet::{Fleet, SharedFleet};
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord};
use penstock_storage::ledger::{ChainClaim, LedgerStore};
use penstock_storage::spend::{SpendAddition, SpendOwner, SpendRecord, SpendStore};
use penstock_storage::{Store, open_in_memory};
use serde_json::json;
use std::time::Duration;

mod contention;
mod heartbeats;
mod restarts;

const DAY: Duration = Duration::from_secs(86_400);

/// Stores of one key, and of the fleet.
struct Database {
    folder: tempfile::TempDir,
    stores: OpenStorage,
    store: Arc<dyn Store>,
    record: KeyRecord,
}

struct Gateway {
    member: Arc<FleetMember>,
    ledger: Arc<Ledger>,
    cache: KeyCache,
    spends: SpendStore,
    clock: ProcessClock,
    principal: Arc<Principal>,
}

fn limits(day: u64) -> KeyLimits {
    KeyLimits { budget_per_day: Some(day), ..KeyLimits::default() }
}

impl Database {
    fn new(limits: KeyLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stores = OpenStorage::open(&StorageSettings::embedded(&folder.path().join("store"))).unwrap();
        let key = ApiKey::generate(&mut |bytes| rand::fill(bytes));
        let record = KeyRecord {
            name: "a key".to_owned(),
            scopes: vec!["inference".to_owned()],
            limits,
            ..KeyRecord::new(
                key.public_id(),
                KeyDigest(penstock_auth::key_digest(&stores.pepper.0, &key)),
                "acme",
                1,
            )
        };
        let (who, what) = ("test".to_owned(), "key.create".to_owned());
        let change = ChangeDescription { at: 5, who, what, target: record.id.clone(), change: json!({}) };
        stores.keys.insert(&record, &change).unwrap();
        Self { folder, stores, store: open_in_memory(), record }
    }

    fn open(&self, name: &str) -> Gateway {
        self.open_at(name, Duration::ZERO)
    }

    /// Starts a gateway whose clock differs from the system clock by `offset`.
    fn open_at(&self, name: &str, offset: Duration) -> Gateway {
        let (store, clock) = (&self.store, ProcessClock::with_offset(offset));
        let settings = FleetSettings {
            name: None,
            claim: Duration::from_secs(15),
            lease: Duration::from_secs(600),
            advance: Duration::from_secs(60),
            stale: None,
        };
        let fleet = SharedFleet::new(store.clone());
        let member = FleetMember::join(fleet, &settings, &self.folder.path().join(name)).unwrap();
        let claim = ChainClaim::take(&**store, member.member_number()).unwrap();
        let book = LedgerStore::open_member(store.clone(), None, claim).unwrap();
        let terms = LedgerSettings {
            window: Duration::ZERO,
            answers_wait_for_disk: true,
            debt: i64::MAX,
            backlog: usize::MAX,
            slow: Duration::from_secs(5),
            max_clock_lead: Duration::MAX,
        };
        let ledger = Ledger::open_for_member(Arc::new(book), &terms, clock, &member).unwrap();
        let cache = KeyCache::load(&self.stores, clock).unwrap();
        ledger.restore_budget_leases(&cache);
        let principal = cache.find_principal(&self.record.id).unwrap();
        let spends = SpendStore::with_incarnation(store.clone(), member.member_number());
        Gateway { member, ledger, cache, spends, clock, principal }
    }

    /// Changes the budget in the key caches of these gateways.
    fn change(&self, gateways: &[&Gateway], limits: &KeyLimits) {
        let record = KeyRecord { limits: *limits, ..self.record.clone() };
        gateways.iter().for_each(|gateway| gateway.cache.set_key(&record));
    }

    /// Returns the sum of the leases of all members.
    fn leased(&self) -> i64 {
        let pool = BudgetPoolId { owner: SpendOwner::Key(self.record.id.clone()), period: BudgetPeriod::Day };
        -SharedFleet::new(self.store.clone()).available_amount(&pool.name()).unwrap()
    }
}

impl Gateway {
    async fn reserve(&self, most: i64) -> Result<KeyLimitReservation, ApiError> {
        self.reserve_cost(&CostEstimate { input: 1, output: 1, money: MicroCredits(most) }).await
    }

    async fn reserve_cost(&self, cost: &CostEstimate) -> Result<KeyLimitReservation, ApiError> {
        self.cache.start_limit_sharing(&self.principal, &self.member);
        let entered = acquire_provisional_limits_permit(&self.principal, WorkClass::Request, self.clock);
        let (entry, _) = entered.map_err(|(_, refusal)| refusal)?;
        self.ledger.reserve_limits_with_draw(entry, cost).await.map_err(|(_, refusal)| refusal)
    }

    fn settle(&self, mut reserved: KeyLimitReservation, charged: i64) {
        reserved.settle(&ActualCost { input: 1, output: 1, money: MicroCredits(charged) });
        self.cache.mark_spend_dirty(&self.principal);
    }

    /// Serves one request; returns false if the budget refuses it.
    async fn serve(&self, most: i64, charged: i64) -> bool {
        match self.reserve(most).await {
            Ok(reserved) => {
                self.settle(reserved, charged);
                true
            }
            Err(refusal) => {
                assert_eq!(refusal.code, ErrorCode::BudgetExceeded, "{}", refusal.message);
                false
            }
        }
    }

    /// Work of each second.
    fn beat(&self, wanted: &[(u32, String)]) {
        let is_written = self.cache.flush_spends(&self.spends);
        let leases = self.ledger.leases().unwrap();
        let returning = leases.mark_returns_sent();
        self.member.write_heartbeat(&MemberReport::default(), returning, Instant::now()).unwrap();
        leases.on_returns_accepted();
        let incarnation = self.member.member_number();
        let wanted = wanted.iter().filter(|(member, _)| *member != incarnation);
        leases.set_pools_wanted_by_peers(wanted.cloned());
        self.ledger.mark_late_draws_uncertain(&self.cache);
        self.ledger.adjust_leases(is_written);
    }

    /// Returns the pools that this gateway wants, each with the number of its member.
    fn wanted_pools(&self) -> Vec<(u32, String)> {
        let pools = self.ledger.leases().unwrap().pools_wanted_from_peers();
        pools.into_iter().map(|pool| (self.member.member_number(), pool)).collect()
    }

    /// Returns the number of draws for which a request had to wait.
    fn total_request_draws(&self) -> u64 {
        self.ledger.leases().unwrap().total_request_draws()
    }

    fn available(&self) -> i64 {
        let lacking = LeasedBudget::uncovered_budgets(&self.principal, u64::MAX);
        lacking.iter().map(LeasedBudget::unreserved_amount).sum()
    }
}

/// Serves requests at all gateways until all of them refuse; returns the number of served requests.
async fn spend_all(gateways: &[Gateway], most: i64, charged: i64) -> i64 {
    let (mut served, mut idle_rounds) = (0, 0);
    while idle_rounds < 4 {
        let before = served;
        for gateway in gateways {
            served += i64::from(gateway.serve(most, charged).await);
        }
        let is_idle = served == before;
        // If all gateways refuse, waits for four heartbeats, within which the other members return a wanted amount.
        for _ in 0..if is_idle { 4 } else { 1 } {
            let wanted: Vec<(u32, String)> = gateways.iter().flat_map(Gateway::wanted_pools).collect();
            gateways.iter().for_each(|gateway| gateway.beat(&wanted));
        }
        idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
        for gateway in gateways.iter().filter(|_| is_idle) {
            // Ends the short time for which a gateway treats the pool as empty without reading it.
            let mut pools = gateway.ledger.leases().unwrap().pools.lock();
            pools.values_mut().for_each(LeaseState::forget_empty_pool);
        }
    }
    served
}

#[tokio::test]
async fn a_budget_is_spent_once_and_to_its_end_at_whichever_member() {
    let database = Database::new(limits(10_000));
    let gateways = ["1", "2", "3"].map(|name| database.open(name));
    let served = spend_all(&gateways, 20, 10).await;
    // The last request needs 20.
    assert!((998..=1_000).contains(&served), "{served}");
    assert!(!gateways[0].serve(20, 10).await);
}

#[tokio::test]
async fn members_that_are_asked_at_once_do_not_exceed_a_budget() {
    let database = Database::new(limits(1_000));
    let gateways = ["1", "2", "3"].map(|name| database.open(name));
    let mut held = Vec::new();
    for gateway in gateways.iter().cycle().take(300) {
        held.extend(gateway.reserve(10).await.ok().map(|reserved| (gateway, reserved)));
    }
    assert!((1..=100).contains(&held.len()), "{}", held.len());
    let mut served = 0;
    for (gateway, reserved) in held {
        gateway.settle(reserved, 10);
        served += 1;
    }
    served += spend_all(&gateways, 10, 10).await;
    assert_eq!(served, 100);
}

#[tokio::test]
async fn spending_of_gateways_without_leases_counts_in_the_next_draw() {
    let database = Database::new(limits(1_000));
    let (now, key) = (database.open("1"), SpendOwner::Key(database.record.id.clone()));
    let at = now.clock.unix_seconds();
    let earlier = SpendRecord { day: 940, month: 940, at };
    SpendStore::new(database.store.clone()).add(&[SpendAddition::from((key, earlier))]).unwrap();
    let mut served = 0;
    while now.serve(10, 10).await {
        served += 1;
    }
    assert_eq!(served, 6);
}

#[tokio::test]
async fn a_request_that_exceeds_the_rest_of_a_budget_draws_nothing() {
    let database = Database::new(limits(100));
    let owner = SpendOwner::Key(database.record.id.clone());
    let spent = SpendRecord { day: 95, month: 95, at: ProcessClock::start().unix_seconds() };
    let spent = SpendAddition::from((owner, spent));
    SpendStore::new(database.store.clone()).add(std::slice::from_ref(&spent)).unwrap();
    let [large, small] = ["1", "2"].map(|name| database.open(name));
    assert!(!large.serve(10, 10).await && !large.serve(101, 101).await);
    assert_eq!(database.leased(), 0, "5 are left, at whichever member");
    assert!(small.serve(1, 1).await && large.serve(1, 1).await);
    // A member whose key cache has loaded the spending refuses the request without a draw.
    database.stores.spends.add(std::slice::from_ref(&spent)).unwrap();
    let informed = database.open("3");
    assert!(!informed.serve(10, 10).await);
    assert_eq!(informed.total_request_draws(), 0);
}

#[tokio::test]
async fn a_request_that_another_limit_refuses_draws_nothing() {
    let database = Database::new(KeyLimits { tokens_per_minute: Some(1_000), ..limits(100) });
    let gateway = database.open("1");
    let cost = CostEstimate { input: 1_001, output: 1, money: MicroCredits(10) };
    assert_eq!(gateway.reserve_cost(&cost).await.unwrap_err().code, ErrorCode::RateLimited);
    assert_eq!((gateway.total_request_draws(), database.leased()), (0, 0));
    assert!(gateway.serve(10, 10).await);
    assert_eq!(gateway.total_request_draws(), 1);
}

#[tokio::test]
async fn a_lowered_budget_holds_at_once_where_it_is_known_and_a_raised_one_too() {
    let database = Database::new(limits(1_000));
    let gateways = ["1", "2"].map(|name| database.open(name));
    let mut charged = 0;
    for gateway in &gateways {
        assert!(gateway.serve(20, 20).await);
        charged += 20;
    }
    assert!(gateways.iter().all(|gateway| gateway.available() > 100), "both have parts");
    database.change(&[&gateways[0], &gateways[1]], &limits(100));
    // The spending is not in the store yet, but the leases in memory include it.
    for gateway in gateways.iter().cycle().take(20) {
        charged += if gateway.serve(20, 20).await { 20 } else { 0 };
    }
    charged += 20 * spend_all(&gateways, 20, 20).await;
    assert_eq!(charged, 100);
    database.change(&[&gateways[0], &gateways[1]], &limits(200));
    charged += 20 * spend_all(&gateways, 20, 20).await;
    assert_eq!(charged, 200);
    // Without a budget nothing is leased any more.
    database.change(&[&gateways[0], &gateways[1]], &KeyLimits::default());
    assert!(gateways[0].serve(5_000, 5_000).await);
    for _ in 0..3 {
        gateways.iter().for_each(|gateway| gateway.beat(&[]));
    }
    assert_eq!(database.leased(), 0);
}

#[tokio::test]
async fn the_part_of_a_dead_member_returns() {
    let database = Database::new(limits(1_000));
    let gateways = ["1", "2"].map(|name| database.open(name));
    assert!(gateways[0].serve(50, 50).await);
    gateways[0].beat(&[]);
    let leased = database.leased();
    assert!(leased > 0, "{leased}");
    let fleet = SharedFleet::new(database.store.clone());
    let dead = fleet
        .incarnations()
        .unwrap()
        .into_iter()
        .find(|peer| peer.id == gateways[0].member.member_number())
        .unwrap();
    assert!(fleet.evict(&dead).unwrap());
    assert_eq!(database.leased(), 0);
    let mut served = 0;
    while gateways[1].serve(50, 50).await {
        served += 1;
    }
    assert_eq!(served, 19, "all but the charge of the dead one");
}

#[tokio::test]
async fn a_process_continues_with_the_parts_of_the_one_before_also_on_the_next_day() {
    let database = Database::new(limits(1_000));
    let first = database.open("1");
    assert!(first.serve(10, 10).await && first.cache.flush_spends(&first.spends));
    first.ledger.close();
    let leased = database.leased();
    let second = database.open("1");
    assert_eq!((second.available(), second.total_request_draws()), (leased, 0));
    assert!(second.serve(10, 10).await);
    second.beat(&[]);
    second.ledger.close();
    let third = database.open_at("1", DAY);
    let mut served = 0;
    while third.serve(10, 10).await {
        served += 1;
    }
    assert_eq!(served, 100, "the whole budget of the new day");
}

#[tokio::test]
async fn what_a_lease_has_besides_open_and_unwritten_amounts_returns_to_the_pool() {
    let database = Database::new(limits(100_000));
    let gateway = database.open("1");
    let held = gateway.reserve(100).await.unwrap();
    assert!(gateway.serve(100, 60).await);
    for _ in 0..200 {
        gateway.beat(&[]);
    }
    assert_eq!(database.leased(), 100, "a request in flight holds it");
    drop(held);
    gateway.beat(&[]);
    gateway.beat(&[]);
    assert_eq!((database.leased(), gateway.available()), (0, 0));
}

#[tokio::test]
async fn a_draw_with_an_unknown_outcome_is_found_in_the_store() {
    let database = Database::new(limits(100_000));
    let gateway = database.open("1");
    assert!(gateway.serve(100, 60).await);
    let before = gateway.available();
    // Simulates a draw that the store has applied, but whose result was lost.
    let pool = BudgetPoolId { owner: SpendOwner::Key(database.record.id.clone()), period: BudgetPeriod::Day };
    let at = gateway.clock.unix_seconds();
    let request = BudgetRequest { pool, limit: 100_000, wanted: 500, least: 1, returned: 0, at };
    assert_eq!(gateway.member.draw_from_budget(&request).unwrap().drawn, 500);
    let leases = gateway.ledger.leases().unwrap();
    leases.pools.lock().values_mut().for_each(|state| state.uncertain = true);
    for (is_written, expected) in [(false, before), (true, before + 500), (true, before + 500)] {
        gateway.ledger.resolve_uncertain_draws(leases, is_written).unwrap();
        assert_eq!(gateway.available(), expected);
    }
}

#[tokio::test]
async fn an_account_without_budgets_causes_no_draws() {
    let database = Database::new(KeyLimits { tokens_per_minute: Some(1_000_000), ..KeyLimits::default() });
    let gateway = database.open("1");
    for _ in 0..10 {
        assert!(gateway.serve(100, 60).await);
        gateway.beat(&[]);
    }
    let leases = gateway.ledger.leases().unwrap();
    assert_eq!((leases.total_request_draws(), leases.pools.lock().len()), (0, 0));
}
