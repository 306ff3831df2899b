//! Tests of fairness: accounts are treated alike, no waiter is lost, and the capacity is respected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_limits::{
    AdmissionCapacity, AdmissionController, AdmissionEnqueueOutcome, EnqueueOutcome, FairQueue,
    LARGE_BODY_BYTES,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn account(number: usize) -> Arc<str> {
    format!("account-{number}").into()
}

#[test]
fn accounts_are_served_round_robin_for_any_queue_lengths() {
    let mut queue = FairQueue::default();
    let (greedy, modest) = (account(0), account(1));
    for number in 0..100 {
        queue.enqueue(&greedy, ("greedy", number), 1_000);
    }
    queue.enqueue(&modest, ("modest", 0), 1_000);
    queue.enqueue(&modest, ("modest", 1), 1_000);
    let order: Vec<_> = std::iter::from_fn(|| queue.pop_first_match(|_, _| true)).take(5).collect();
    assert_eq!(order, [("greedy", 0), ("modest", 0), ("greedy", 1), ("modest", 1), ("greedy", 2)]);
}

#[test]
fn a_full_queue_sends_the_youngest_of_the_greediest_away() {
    let mut queue = FairQueue::default();
    let (greedy, modest) = (account(0), account(1));
    for number in 0..4 {
        assert!(matches!(queue.enqueue(&greedy, number, 4), EnqueueOutcome::Waiting(_, None)));
    }
    assert_eq!(queue.enqueue(&greedy, 4, 4), EnqueueOutcome::Full);
    assert!(matches!(queue.enqueue(&modest, 10, 4), EnqueueOutcome::Waiting(_, Some(3))));
    assert!(matches!(queue.enqueue(&modest, 11, 4), EnqueueOutcome::Waiting(_, Some(2))));
    assert_eq!(queue.enqueue(&modest, 12, 4), EnqueueOutcome::Full, "both are alike");
    assert_eq!(queue.len(), 4);
}

#[test]
fn a_cancelled_waiter_is_skipped_and_a_blocked_one_delays_only_its_account() {
    let mut queue = FairQueue::default();
    let (one, two) = (account(1), account(2));
    let EnqueueOutcome::Waiting(first, None) = queue.enqueue(&one, 'a', 9) else { panic!() };
    queue.enqueue(&one, 'b', 9);
    queue.enqueue(&two, 'c', 9);
    assert_eq!(queue.pop_first_match(|_, waiter| *waiter != 'a'), Some('c'), "b waits behind a");
    assert_eq!(queue.remove(&one, first), Some('a'));
    assert_eq!(queue.remove(&one, first), None);
    assert_eq!(
        (queue.pop_first_match(|_, _| true), queue.pop_first_match(|_, _| true), queue.len()),
        (Some('b'), None, 0)
    );
}

const SMALL: AdmissionCapacity = AdmissionCapacity { requests: 16, bytes: 8 * LARGE_BODY_BYTES, queue: 8 };

#[test]
fn the_last_eighth_is_reserved_for_accounts_with_few_requests() {
    let mut app: AdmissionController<()> = AdmissionController::new(SMALL);
    let (greedy, modest) = (account(0), account(1));
    assert_eq!((0..20).filter(|_| app.try_admit(&greedy, 10)).count(), 14);
    assert!(app.is_under_pressure());
    assert_eq!((0..20).filter(|_| app.try_admit(&modest, 10)).count(), 2);
    app.release(&greedy, 10);
    assert!(!app.try_admit(&greedy, 10), "fifteen are taken");
    assert!(app.try_admit(&account(2), 10));
}

#[test]
fn large_bodies_leave_a_quarter_of_the_bytes_to_small_ones() {
    let mut app: AdmissionController<&str> = AdmissionController::new(SMALL);
    let (long, small) = (account(0), account(1));
    assert_eq!((0..9).filter(|_| app.try_admit(&long, LARGE_BODY_BYTES + 1)).count(), 5);
    assert!(matches!(
        app.enqueue(&long, LARGE_BODY_BYTES + 1, "long"),
        AdmissionEnqueueOutcome::Waiting(_, None)
    ));
    assert_eq!(
        (1..9).filter(|number| app.try_admit(&account(*number), LARGE_BODY_BYTES)).count(),
        2,
        "they pass who would not fit anyway"
    );
    assert!(!app.try_add_bytes(&small, LARGE_BODY_BYTES) && app.admit_next().is_none());
    app.release(&small, LARGE_BODY_BYTES);
    assert!(app.admit_next().is_none(), "the long one still does not fit");
    app.release(&long, LARGE_BODY_BYTES + 1);
    app.release(&long, LARGE_BODY_BYTES + 1);
    assert_eq!(app.admit_next().map(|(_, bytes, who)| (bytes, who)), Some((LARGE_BODY_BYTES + 1, "long")));
}

#[test]
fn the_last_eighth_of_the_bytes_is_reserved_for_accounts_with_few_bytes() {
    const LARGE: usize = LARGE_BODY_BYTES + 1;
    let capacity = AdmissionCapacity { requests: 1_000, bytes: 80 * LARGE, queue: 8 };
    let mut app: AdmissionController<&str> = AdmissionController::new(capacity);
    let (greedy, modest) = (account(0), account(1));
    // Three quarters are for large bodies, and seven eighths of those for one account.
    assert_eq!((0..99).filter(|_| app.try_admit(&greedy, LARGE)).count(), 52);
    assert!(!app.try_grow_body(&greedy, LARGE, 2 * LARGE), "a body that grows is no way around");
    assert!(matches!(app.enqueue(&greedy, LARGE, "greedy"), AdmissionEnqueueOutcome::Waiting(_, None)));
    assert!(app.admit_next().is_none());
    assert_eq!((0..99).filter(|_| app.try_admit(&modest, LARGE)).count(), 8);
    let small = LARGE_BODY_BYTES / 2;
    let admitted = (0..99).filter(|_| app.try_admit(&greedy, small)).count();
    assert!(app.bytes_in_flight() <= 70 * LARGE && admitted == 20, "{admitted} of one account");
    assert!(!app.try_add_bytes(&greedy, small) && app.try_add_bytes(&modest, small));
    assert!(app.try_admit(&greedy, 0), "a request without bytes is not in the way");
}

#[derive(Clone, Debug)]
enum Step {
    Come(usize, usize),
    Go(usize),
    GiveUp(usize),
    Grow(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5_usize, 0..3 * LARGE_BODY_BYTES).prop_map(|(who, bytes)| Step::Come(who, bytes)),
        3 => any::<usize>().prop_map(Step::Go),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => (1..LARGE_BODY_BYTES).prop_map(Step::Grow),
    ]
}

proptest! {
    /// Compares with a plain list of admitted and waiting requests: the capacity is respected, every waiter gets
    /// exactly one result, and no request that fits the capacity stays queued.
    #[test]
    fn no_waiter_is_lost_and_the_limit_is_never_exceeded(steps in prop::collection::vec(step(), 1..300)) {
        let mut app: AdmissionController<u64> = AdmissionController::new(SMALL);
        let mut inside: Vec<(Arc<str>, usize)> = Vec::new();
        let mut waiting: BTreeMap<u64, (Arc<str>, usize, u64)> = BTreeMap::new();
        for (name, step) in (0_u64..).zip(steps) {
            match step {
                Step::Come(who, bytes) => {
                    let owner = account(who);
                    if app.try_admit(&owner, bytes) {
                        inside.push((owner, bytes));
                    } else {
                        match app.enqueue(&owner, bytes, name) {
                            AdmissionEnqueueOutcome::Waiting(number, gone) => {
                                if let Some(gone) = gone {
                                    let (theirs, ..) = waiting.remove(&gone).expect("it waited");
                                    prop_assert!(theirs != owner);
                                }
                                waiting.insert(name, (owner, bytes, number));
                            }
                            AdmissionEnqueueOutcome::Full => prop_assert_eq!(waiting.len(), SMALL.queue),
                        }
                    }
                }
                Step::Go(which) if !inside.is_empty() => {
                    let (owner, bytes) = inside.swap_remove(which % inside.len());
                    app.release(&owner, bytes);
                }
                Step::GiveUp(which) if !waiting.is_empty() => {
                    let name = *waiting.keys().nth(which % waiting.len()).unwrap();
                    let (owner, _, number) = waiting.remove(&name).unwrap();
                    app.cancel(&owner, number);
                }
                Step::Grow(bytes) => if let Some(last) = inside.last_mut() && app.try_add_bytes(&last.0, bytes) {
                    last.1 += bytes;
                },
                Step::Go(_) | Step::GiveUp(_) => {}
            }
            while let Some((owner, bytes, name)) = app.admit_next() {
                let (theirs, asked, _) = waiting.remove(&name).expect("it waited");
                prop_assert_eq!((&theirs, asked), (&owner, bytes));
                inside.push((owner, bytes));
            }
            prop_assert_eq!(app.in_flight(), inside.len());
            prop_assert_eq!(app.bytes_in_flight(), inside.iter().map(|(_, bytes)| bytes).sum::<usize>());
            prop_assert_eq!(app.queued_count(), waiting.len());
            prop_assert!(app.in_flight() <= SMALL.requests && app.bytes_in_flight() <= SMALL.bytes);
            prop_assert!(app.queued_count() <= SMALL.queue);
        }
        for (owner, bytes) in inside.drain(..) {
            app.release(&owner, bytes);
            while let Some((owner, bytes, name)) = app.admit_next() {
                waiting.remove(&name).expect("it waited");
                app.release(&owner, bytes);
            }
        }
        prop_assert_eq!((app.in_flight(), app.bytes_in_flight(), app.queued_count()), (0, 0, waiting.len()));
        prop_assert_eq!(waiting.len(), 0, "a free resource leaves no request waiting");
    }
}
