//! Two members on one store.
#![allow(clippy::unwrap_used)]

use super::*;
use penstock_storage::fleet::credit_pool_name;
use penstock_storage::{Store, StoreTable, open_in_memory};

fn settings() -> FleetSettings {
    FleetSettings {
        name: Some("a".to_owned()),
        claim: Duration::from_secs(15),
        lease: Duration::from_secs(600),
        advance: Duration::from_secs(300),
        stale: None,
    }
}

struct Folders(tempfile::TempDir);

impl Folders {
    fn join(&self, store: &Arc<dyn Store>, name: &str) -> Arc<FleetMember> {
        FleetMember::join(SharedFleet::new(store.clone()), &settings(), &self.0.path().join(name)).unwrap()
    }
}

fn folders() -> Folders {
    Folders(tempfile::tempdir().unwrap())
}

fn beat(member: &FleetMember, at: Instant) {
    member.write_heartbeat(&MemberReport::default(), Vec::new(), at).unwrap();
}

#[test]
fn the_member_with_the_lowest_number_leads_and_another_follows_once_it_is_silent() {
    let (store, folders, start) = (open_in_memory(), folders(), Instant::now());
    let (first, second) = (folders.join(&store, "1"), folders.join(&store, "2"));
    let at = |seconds| start + Duration::from_secs(seconds);
    first.refresh_members(at(1)).unwrap();
    assert_eq!((first.live_members(), second.live_members()), (Arc::from([1, 2]), Arc::from([1, 2])));
    assert!(first.is_leader() && !second.is_leader());
    for seconds in 1..=30 {
        beat(&second, at(seconds));
        second.refresh_members(at(seconds)).unwrap();
    }
    assert!(second.is_leader(), "{:?}", second.live_members());
    assert!(
        first.commit_fence().is_some_and(|fence| store.get(fence.table, &fence.key).unwrap() == fence.value)
    );
    beat(&first, at(31));
    second.refresh_members(at(31)).unwrap();
    assert!(!second.is_leader(), "the first was only slow");
}

#[test]
fn a_buried_member_learns_it_from_its_next_heartbeat_and_its_credits_return() {
    let (store, folders, start) = (open_in_memory(), folders(), Instant::now());
    let (first, second) = (folders.join(&store, "1"), folders.join(&store, "2"));
    let grant = PoolAmount { pool: credit_pool_name("acme"), amount: 1_000 };
    store.apply(pool_credit_operations(&[grant])).unwrap();
    let request = PoolRequest { pool: credit_pool_name("acme"), wanted: 200, least: 1 };
    assert_eq!(first.draw_from_pool(&request), Ok(200));
    assert_eq!(first.leased_amounts().unwrap(), [PoolAmount { pool: credit_pool_name("acme"), amount: 200 }]);
    let fleet = SharedFleet::new(store.clone());
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")), Ok(800));
    second.refresh_members(start + Duration::from_secs(1)).unwrap();
    second.refresh_members(start + Duration::from_secs(602)).unwrap();
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")), Ok(1_000));
    let fence = first.commit_fence().unwrap();
    assert_eq!(store.get(fence.table, &fence.key), Ok(None));
    assert!(first.may_spend_leases(start));
    assert_eq!(first.write_heartbeat(&MemberReport::default(), Vec::new(), start), Err(FleetError::Evicted));
    assert!(!first.may_spend_leases(start));
    assert_eq!(second.status(start).map(|figures| (figures.evictions, figures.members)), Some((1, 1)));
}

#[test]
fn a_lease_ends_before_others_may_bury_the_member() {
    let (store, folders) = (open_in_memory(), folders());
    let member = folders.join(&store, "1");
    let start = Instant::now();
    assert!(member.may_spend_leases(start + Duration::from_secs(440)));
    assert!(!member.may_spend_leases(start + Duration::from_secs(451)));
    beat(&member, start + Duration::from_secs(500));
    assert!(member.may_spend_leases(start + Duration::from_secs(940)));
}

#[test]
fn a_process_continues_the_membership_of_its_folder_and_a_departed_one_is_gone() {
    let (store, folders) = (open_in_memory(), folders());
    let before = folders.join(&store, "1").member_number();
    assert_eq!(folders.join(&store, "1").member_number(), before, "a crash");
    let member = folders.join(&store, "1");
    beat(&member, Instant::now());
    member.leave_fleet();
    assert_ne!(folders.join(&store, "1").member_number(), before);
    let fence = member.commit_fence().unwrap();
    assert_eq!(store.get(fence.table, &fence.key), Ok(None));
}

#[test]
fn reports_reach_the_other_members_only() {
    let (store, folders) = (open_in_memory(), folders());
    let (first, second) = (folders.join(&store, "1"), folders.join(&store, "2"));
    let report =
        MemberReport { process_number: 9, config_version: "c".to_owned(), ..MemberReport::default() };
    first.write_heartbeat(&report, Vec::new(), Instant::now()).unwrap();
    assert_eq!(second.refresh_members(Instant::now()).unwrap(), [(first.member_number(), report)]);
    assert_eq!(first.refresh_members(Instant::now()).unwrap(), []);
}

#[test]
fn pools_are_filled_from_balances_once_and_removed_by_a_gateway_that_is_alone() {
    let (store, folders) = (open_in_memory(), folders());
    let balance = |credits| {
        let row = format!(r#"{{"v":1,"credits":{credits},"energy":7}}"#);
        store.apply(Transaction::new().put(StoreTable::Balances, "acme", row)).unwrap();
    };
    let fleet = SharedFleet::new(store.clone());
    balance(500);
    folders.join(&store, "1");
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")), Ok(500));
    balance(400);
    folders.join(&store, "2");
    assert_eq!(
        fleet.available_amount(&credit_pool_name("acme")),
        Ok(500),
        "the pools agree while there is a fleet"
    );
    fleet.remove_fleet_rows().unwrap();
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")), Ok(0));
    folders.join(&store, "3");
    assert_eq!(fleet.available_amount(&credit_pool_name("acme")), Ok(400));
}

#[test]
fn a_member_continues_to_fill_the_pools_that_a_dead_one_left() {
    let (store, folders) = (open_in_memory(), folders());
    let row = r#"{"v":1,"credits":5,"energy":7}"#;
    store.apply(Transaction::new().put(StoreTable::Balances, "acme", row)).unwrap();
    let opening = penstock_storage::counter_row(77);
    store.apply(Transaction::new().put(StoreTable::Meta, "fleet/opening", opening)).unwrap();
    folders.join(&store, "1");
    assert_eq!(SharedFleet::new(store).available_amount(&credit_pool_name("acme")), Ok(5));
}

#[test]
fn a_folder_continues_its_incarnation_only_under_the_names_that_it_knows() {
    let (store, folders) = (open_in_memory(), folders());
    let first = folders.join(&store, "1").member_number();
    assert_eq!(folders.join(&store, "1").member_number(), first, "its own");
    // Simulates a database that lost commits, and then gave the number to another process.
    let live = SharedFleet::liveness_row(first);
    store.apply(Transaction::new().put(live.0, live.1, "another")).unwrap();
    assert_ne!(folders.join(&store, "1").member_number(), first);
}
