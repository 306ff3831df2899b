//! Tests of fairness: accounts are treated alike, no waiter is lost, and the capacity is respected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_limits::{Ceiling, Crowd, Fair, Joined, LONG, Queued};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn account(number: usize) -> Arc<str> {
    format!("account-{number}").into()
}

#[test]
fn accounts_take_turns_however_many_each_has_waiting() {
    let mut queue = Fair::default();
    let (greedy, modest) = (account(0), account(1));
    for number in 0..100 {
        queue.join(&greedy, ("greedy", number), 1_000);
    }
    queue.join(&modest, ("modest", 0), 1_000);
    queue.join(&modest, ("modest", 1), 1_000);
    let order: Vec<_> = std::iter::from_fn(|| queue.take(|_, _| true)).take(5).collect();
    assert_eq!(order, [("greedy", 0), ("modest", 0), ("greedy", 1), ("modest", 1), ("greedy", 2)]);
}

#[test]
fn a_full_queue_sends_the_youngest_of_the_greediest_away() {
    let mut queue = Fair::default();
    let (greedy, modest) = (account(0), account(1));
    for number in 0..4 {
        assert!(matches!(queue.join(&greedy, number, 4), Joined::Waits(_, None)));
    }
    assert_eq!(queue.join(&greedy, 4, 4), Joined::Full);
    assert!(matches!(queue.join(&modest, 10, 4), Joined::Waits(_, Some(3))));
    assert!(matches!(queue.join(&modest, 11, 4), Joined::Waits(_, Some(2))));
    assert_eq!(queue.join(&modest, 12, 4), Joined::Full, "both are alike");
    assert_eq!(queue.len(), 4);
}

#[test]
fn who_leaves_is_passed_over_and_who_may_not_go_holds_up_its_own_account_alone() {
    let mut queue = Fair::default();
    let (one, two) = (account(1), account(2));
    let Joined::Waits(first, None) = queue.join(&one, 'a', 9) else { panic!() };
    queue.join(&one, 'b', 9);
    queue.join(&two, 'c', 9);
    assert_eq!(queue.take(|_, waiter| *waiter != 'a'), Some('c'), "b waits behind a");
    assert_eq!(queue.leave(&one, first), Some('a'));
    assert_eq!(queue.leave(&one, first), None);
    assert_eq!((queue.take(|_, _| true), queue.take(|_, _| true), queue.len()), (Some('b'), None, 0));
}

const SMALL: Ceiling = Ceiling { requests: 16, bytes: 8 * LONG, queue: 8 };

#[test]
fn the_last_eighth_is_for_those_who_have_little() {
    let mut house: Crowd<()> = Crowd::new(SMALL);
    let (greedy, modest) = (account(0), account(1));
    assert_eq!((0..20).filter(|_| house.enter(&greedy, 10)).count(), 14);
    assert!(house.is_crowded());
    assert_eq!((0..20).filter(|_| house.enter(&modest, 10)).count(), 2);
    house.leave(&greedy, 10);
    assert!(!house.enter(&greedy, 10), "fifteen are taken");
    assert!(house.enter(&account(2), 10));
}

#[test]
fn long_bodies_leave_a_quarter_of_the_bytes_to_short_ones() {
    let mut house: Crowd<&str> = Crowd::new(SMALL);
    let (long, short) = (account(0), account(1));
    assert_eq!((0..9).filter(|_| house.enter(&long, LONG + 1)).count(), 5);
    assert!(matches!(house.join(&long, LONG + 1, "long"), Queued::Waits(_, None)));
    assert_eq!((0..9).filter(|_| house.enter(&short, LONG)).count(), 2, "they pass who would not fit anyway");
    assert!(!house.grow(LONG) && house.admit().is_none());
    house.leave(&short, LONG);
    assert!(house.admit().is_none(), "the long one still does not fit");
    house.leave(&long, LONG + 1);
    house.leave(&long, LONG + 1);
    assert_eq!(house.admit().map(|(_, bytes, who)| (bytes, who)), Some((LONG + 1, "long")));
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
        4 => (0..5_usize, 0..3 * LONG).prop_map(|(who, bytes)| Step::Come(who, bytes)),
        3 => any::<usize>().prop_map(Step::Go),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => (1..LONG).prop_map(Step::Grow),
    ]
}

proptest! {
    /// Comparison with a plain list of admitted and waiting requests: the capacity is respected, every waiter gets
    /// exactly one result, and no request that fits stays queued.
    #[test]
    fn nobody_is_lost_and_nothing_is_over_the_ceiling(steps in prop::collection::vec(step(), 1..300)) {
        let mut house: Crowd<u64> = Crowd::new(SMALL);
        let mut inside: Vec<(Arc<str>, usize)> = Vec::new();
        let mut waiting: BTreeMap<u64, (Arc<str>, usize, u64)> = BTreeMap::new();
        for (name, step) in (0_u64..).zip(steps) {
            match step {
                Step::Come(who, bytes) => {
                    let whose = account(who);
                    if house.enter(&whose, bytes) {
                        inside.push((whose, bytes));
                    } else {
                        match house.join(&whose, bytes, name) {
                            Queued::Waits(number, gone) => {
                                if let Some(gone) = gone {
                                    let (theirs, ..) = waiting.remove(&gone).expect("it waited");
                                    prop_assert!(theirs != whose);
                                }
                                waiting.insert(name, (whose, bytes, number));
                            }
                            Queued::Full => prop_assert_eq!(waiting.len(), SMALL.queue),
                        }
                    }
                }
                Step::Go(which) if !inside.is_empty() => {
                    let (whose, bytes) = inside.swap_remove(which % inside.len());
                    house.leave(&whose, bytes);
                }
                Step::GiveUp(which) if !waiting.is_empty() => {
                    let name = *waiting.keys().nth(which % waiting.len()).unwrap();
                    let (whose, _, number) = waiting.remove(&name).unwrap();
                    house.forget(&whose, number);
                }
                Step::Grow(bytes) => if let Some(last) = inside.last_mut() && house.grow(bytes) {
                    last.1 += bytes;
                },
                Step::Go(_) | Step::GiveUp(_) => {}
            }
            while let Some((whose, bytes, name)) = house.admit() {
                let (theirs, asked, _) = waiting.remove(&name).expect("it waited");
                prop_assert_eq!((&theirs, asked), (&whose, bytes));
                inside.push((whose, bytes));
            }
            prop_assert_eq!(house.requests(), inside.len());
            prop_assert_eq!(house.bytes(), inside.iter().map(|(_, bytes)| bytes).sum::<usize>());
            prop_assert_eq!(house.waiting(), waiting.len());
            prop_assert!(house.requests() <= SMALL.requests && house.bytes() <= SMALL.bytes);
            prop_assert!(house.waiting() <= SMALL.queue);
        }
        for (whose, bytes) in inside.drain(..) {
            house.leave(&whose, bytes);
            while let Some((whose, bytes, name)) = house.admit() {
                waiting.remove(&name).expect("it waited");
                house.leave(&whose, bytes);
            }
        }
        prop_assert_eq!((house.requests(), house.bytes(), house.waiting()), (0, 0, waiting.len()));
        prop_assert_eq!(waiting.len(), 0, "an empty house leaves nobody outside");
    }
}
