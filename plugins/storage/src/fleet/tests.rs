//! Tests of the parts of the fleet protocol that need no I/O.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::{MAX_PAGE_ROWS, RowScan, StoreTable, Transaction, open_in_memory};
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn drawn_parts_get_smaller_and_the_last_amount_can_be_drawn() {
    assert_eq!(amount_to_draw(4_000, 1_000, 10), 1_000);
    assert_eq!(amount_to_draw(3_999, 1_000, 10), 999);
    assert_eq!(amount_to_draw(40, 1_000, 10), 10);
    assert_eq!(amount_to_draw(3, 1_000, 10), 3);
    for nothing in [0, -5, i64::MIN] {
        assert_eq!(amount_to_draw(nothing, 1_000, 10), 0);
    }
    assert_eq!(amount_to_draw(i64::MAX, i64::MAX, i64::MAX), i64::MAX);
    assert_eq!(amount_to_draw(100, -1, -1), 0);
    let (mut rest, mut draws) = (10_000, 0);
    while rest > 0 {
        rest -= amount_to_draw(rest, 2_000, 1);
        draws += 1;
    }
    assert!(draws < 40, "{draws}");
}

#[test]
fn a_peer_is_dead_only_after_its_beat_was_unchanged_for_the_whole_time() {
    let peer = |id, beat| PeerIncarnation { id, beat, name: Some("a".to_owned()) };
    let mut watch = PeerWatch::new(seconds(10));
    let mut dead = |peers: &[PeerIncarnation], at| {
        watch.observe_and_find_dead(1, peers, seconds(at)).iter().map(|peer| peer.id).collect::<Vec<_>>()
    };
    assert!(dead(&[peer(1, 0), peer(2, 0), peer(3, 0)], 100).is_empty());
    assert!(dead(&[peer(1, 0), peer(2, 0), peer(3, 1)], 109).is_empty());
    assert_eq!(dead(&[peer(1, 0), peer(2, 0), peer(3, 1)], 111), [2]);
    assert!(dead(&[peer(1, 0), peer(2, 1), peer(3, 2)], 130).is_empty());
    let unfinished = PeerIncarnation { name: None, ..peer(4, 9) };
    assert_eq!(dead(&[unfinished], 131), [4]);
    watch.observe_and_find_dead(1, &[peer(2, 1)], seconds(132));
    watch.reset();
    assert!(
        watch.observe_and_find_dead(1, &[peer(2, 1)], seconds(999)).is_empty(),
        "it was not seen in between"
    );
}

#[test]
fn a_lease_ends_before_others_may_bury_the_incarnation() {
    let mut term = LeaseTerm::new(seconds(20));
    assert!(!term.is_valid(Duration::ZERO));
    term.renew(seconds(100));
    assert!(term.is_valid(seconds(114)) && !term.is_valid(seconds(115)));
}

#[test]
fn alone_everything_is_granted() {
    let incarnation = SoloFleet.join("a").unwrap();
    let request = PoolRequest { pool: "acme".to_owned(), wanted: 7, least: 1 };
    assert_eq!(SoloFleet.draw_from_pool(incarnation, &request), Ok(7));
    assert_eq!(SoloFleet.heartbeat(incarnation, &HeartbeatReport::default()).map(|next| next.beat), Ok(1));
    assert_eq!((SoloFleet.incarnations(), SoloFleet.pool_parts(incarnation)), (Ok(vec![]), Ok(vec![])));
}

#[test]
fn a_buried_incarnation_draws_and_reports_nothing_more() {
    let store = open_in_memory();
    let fleet = SharedFleet::new(store.clone());
    let amount = |amount| PoolAmount { pool: "acme".to_owned(), amount };
    store.apply(SharedFleet::credit_pool_operations(&amount(1_000))).unwrap();
    let (one, other) = (fleet.join("one").unwrap(), fleet.join("other").unwrap());
    assert_ne!(one.id, other.id);
    let request = PoolRequest { pool: "acme".to_owned(), wanted: 100, least: 1 };
    assert_eq!(fleet.draw_from_pool(one, &request), Ok(100));
    let report =
        HeartbeatReport { spent: vec![amount(30)], returned: vec![amount(20)], ..HeartbeatReport::default() };
    let next = fleet.heartbeat(one, &report).unwrap();
    assert_eq!(fleet.heartbeat(one, &report), Ok(next), "a repetition is applied once");
    assert_eq!((fleet.pool_parts(next), fleet.available_amount("acme")), (Ok(vec![amount(50)]), Ok(920)));
    let seen = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == one.id).unwrap();
    let next = fleet.heartbeat(next, &HeartbeatReport::default()).unwrap();
    assert_eq!(fleet.evict(&seen), Ok(false), "it has beaten since");
    let seen = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == one.id).unwrap();
    assert_eq!((fleet.evict(&seen), fleet.evict(&seen)), (Ok(true), Ok(false)));
    assert_eq!(fleet.available_amount("acme"), Ok(970));
    assert_eq!(fleet.heartbeat(next, &report), Err(FleetError::Evicted));
    assert_eq!(fleet.draw_from_pool(next, &request), Err(FleetError::Evicted));
    assert_eq!(fleet.incarnations().unwrap().len(), 1);
    let third = fleet.join("third").unwrap();
    assert!(third.id > other.id, "numbers are not used again");
}

#[test]
fn a_report_over_its_limits_is_refused_and_changes_nothing() {
    let fleet = SharedFleet::new(open_in_memory());
    let incarnation = fleet.join("a").unwrap();
    let pools = (0..=MAX_HEARTBEAT_POOLS).map(|n| PoolAmount { pool: n.to_string(), amount: 1 });
    let large = HeartbeatReport { spent: pools.collect(), ..HeartbeatReport::default() };
    let Err(FleetError::Store(error)) = fleet.heartbeat(incarnation, &large) else {
        panic!("it is too large")
    };
    let text = "the number of pools of a heartbeat is 1001, over the store's limit of 1000";
    assert_eq!(error.to_string(), text);
    let more = HeartbeatReport {
        returned: vec![PoolAmount { pool: "a".to_owned(), amount: 1 }],
        ..HeartbeatReport::default()
    };
    assert!(matches!(fleet.heartbeat(incarnation, &more), Err(FleetError::Store(StoreError::Guard { .. }))));
    assert_eq!((fleet.pool_parts(incarnation), fleet.available_amount("a")), (Ok(vec![]), Ok(0)));
}

#[test]
fn an_observation_has_all_incarnations_their_reports_and_the_further_pages() {
    let store = open_in_memory();
    let fleet = SharedFleet::new(store.clone());
    // More incarnations than fit into one page of a scan.
    let incarnations: Vec<Incarnation> =
        (0..=MAX_PAGE_ROWS).map(|n| fleet.join(&format!("m{n}")).unwrap()).collect();
    let with =
        SharedFleet::peer_report_operations(incarnations[1].id, vec![b"one".to_vec(), b"two".to_vec()]);
    fleet.heartbeat(incarnations[1], &HeartbeatReport { with, ..HeartbeatReport::default() }).unwrap();
    let further = RowScan::of_prefix(StoreTable::Batches, b"o/");
    store.apply(Transaction::new().put(StoreTable::Batches, b"o/a", b"")).unwrap();
    let observed = fleet.read_incarnations(std::slice::from_ref(&further)).unwrap();
    assert_eq!(observed.peers.len(), incarnations.len());
    assert!(observed.peers.iter().zip(&incarnations).all(|(peer, incarnation)| peer.id == incarnation.id));
    let names = observed.peers.iter().map(|peer| peer.name.clone().unwrap());
    assert!(names.eq((0..incarnations.len()).map(|n| format!("m{n}"))));
    let report = PeerReport { incarnation: incarnations[1].id, rows: vec![b"one".to_vec(), b"two".to_vec()] };
    assert_eq!(observed.reports, [report]);
    assert_eq!(observed.further_pages, [store.scan(further.table, b"o/", None, 10).unwrap()]);
}

#[test]
fn an_adopted_incarnation_is_not_buried_for_the_silence_of_the_earlier_process() {
    let fleet = SharedFleet::new(open_in_memory());
    let incarnation = fleet.join("earlier").unwrap();
    let silent = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == incarnation.id).unwrap();
    assert_eq!(fleet.resume_incarnation(incarnation.id, &["another's".to_owned()], "later"), Ok(None));
    let adopted = fleet.resume_incarnation(incarnation.id, &[], "later").unwrap().unwrap();
    assert_eq!(fleet.evict(&silent), Ok(false), "a peer that saw only the earlier beat");
    assert!(fleet.heartbeat(adopted, &HeartbeatReport::default()).is_ok());
    assert_eq!(fleet.incarnations().unwrap()[0].name.as_deref(), Some("later"));
    let seen = fleet.incarnations().unwrap().remove(0);
    assert_eq!(fleet.evict(&seen), Ok(true));
    assert_eq!(
        fleet.resume_incarnation(incarnation.id, &["later".to_owned()], "last"),
        Ok(None),
        "it was evicted"
    );
}

#[test]
fn a_draw_that_lost_to_others_was_not_applied_and_one_without_an_answer_may_have_been() {
    let unreachable = StoreError::Unreachable { what: "test".to_owned() };
    for error in [StoreError::Guard { step: 2 }, unreachable] {
        assert!(FleetError::Store(error).is_unapplied());
    }
    for error in [StoreError::Stuck, StoreError::Full] {
        assert!(!FleetError::Store(error).is_unapplied());
    }
    assert!(FleetError::Evicted.is_unapplied());
}
