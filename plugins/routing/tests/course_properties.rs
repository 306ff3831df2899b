//! Properties of every retry planner, for any sequence of failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_contract::{Fault, FaultKind};
use penstock_routing::{Course, Entry, Next, Policy, RetryBudget};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);

fn any_fault() -> impl Strategy<Value = Fault> {
    let kinds = prop_oneof![
        Just(FaultKind::Connect),
        Just(FaultKind::Reset),
        Just(FaultKind::FirstByte),
        Just(FaultKind::FirstToken),
        Just(FaultKind::Idle),
        Just(FaultKind::Status(500)),
        Just(FaultKind::Status(503)),
        Just(FaultKind::Status(429)),
        Just(FaultKind::Credentials(401)),
        Just(FaultKind::Truncated),
        Just(FaultKind::Malformed),
        Just(FaultKind::Caller),
        Just(FaultKind::Diverged),
    ];
    (kinds, proptest::option::weighted(0.4, 0..20_u64))
        .prop_map(|(kind, rest)| Fault { retry_after: rest.map(Duration::from_secs), ..Fault::new(kind) })
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (0..4_usize, proptest::option::weighted(0.2, 0..10_u64), any::<bool>());
    proptest::collection::vec(one, 0..7).prop_map(|all| {
        let entry = |(offer, (provider, rest, good_standing)): (usize, (usize, Option<u64>, bool))| Entry {
            resting_until: rest.map(|seconds| NOW + Duration::from_secs(seconds)),
            good_standing,
            ..Entry::new(offer, provider)
        };
        all.into_iter().enumerate().map(entry).collect()
    })
}

proptest! {
    #[test]
    fn the_promises_hold(
        entries in any_entries(),
        faults in proptest::collection::vec((any_fault(), 0..3_000_u64, any::<bool>(), any::<bool>()), 40),
        attempts in 1..6_u32,
        patience in 0..4_u64,
        limit in 1..60_u64,
        seed: u64,
    ) {
        let deadline = NOW + Duration::from_secs(limit);
        let policy = Policy { attempts, patience: Duration::from_secs(patience), deadline, ..Policy::default() };
        let mut course = Course::new(entries.clone(), policy, seed);
        let mut budget = RetryBudget::new();
        let mut now = NOW;
        let (mut tries, mut steps) = (0, 0);
        let mut silent = HashSet::new();
        let mut gone = HashSet::new();
        let mut rests: HashMap<usize, Duration> = HashMap::new();
        let mut quick: HashMap<usize, u32> = HashMap::new();
        let mut last = None;
        let mut may_repeat = false;
        let mut asked: HashSet<usize> = HashSet::new();
        let mut next = course.start(now);
        for (fault, gap, after_commit, pass) in faults {
            steps += 1;
            match next {
                Next::Try(offer) => {
                    let entry = entries[offer];
                    prop_assert!(now < deadline, "no attempt past the deadline");
                    prop_assert!(!silent.contains(&offer), "asked a silent offer again");
                    prop_assert!(!gone.contains(&entry.provider), "asked a provider that cannot be reached");
                    prop_assert!(rests.get(&entry.provider).is_none_or(|until| *until <= now), "asked before its rest was over");
                    prop_assert!(entry.resting_until.is_none_or(|until| until <= now), "asked before its rest was over");
                    if asked.contains(&offer) {
                        let named_a_time = rests.contains_key(&entry.provider);
                        prop_assert!(named_a_time || (may_repeat && last == Some(offer)), "asked twice without a reason");
                    }
                    last = Some(offer);
                    may_repeat = false;
                    if pass && !asked.contains(&offer) {
                        next = if gap % 2 == 0 { course.pass(now) } else { course.passed_full(now) };
                        continue;
                    }
                    tries += 1;
                    asked.insert(offer);
                    prop_assert!(tries <= attempts, "too many attempts");
                    now += Duration::from_millis(gap);
                    if matches!(fault.kind, FaultKind::FirstByte | FaultKind::FirstToken | FaultKind::Idle) {
                        silent.insert(offer);
                    } else if fault.kind.is_of_provider() {
                        gone.insert(entry.provider);
                    } else if let (Some(rest), true) = (fault.retry_after, fault.kind != FaultKind::Caller) {
                        let until = rests.entry(entry.provider).or_default();
                        *until = (*until).max(now + rest);
                    }
                    next = if after_commit {
                        course.rescue(&fault, now, &mut budget)
                    } else {
                        course.after(&fault, now, &mut budget)
                    };
                    prop_assert_eq!(next == Next::Refuse, fault.kind == FaultKind::Caller);
                }
                Next::RetrySame { offer, after } => {
                    prop_assert_eq!(Some(offer), last);
                    prop_assert!(entries[offer].good_standing);
                    let count = quick.entry(entries[offer].provider).or_default();
                    *count += 1;
                    prop_assert!(*count <= 1, "one quick retry per provider");
                    may_repeat = true;
                    now += after;
                    next = course.resume(now);
                    prop_assert_eq!(next, Next::Try(offer));
                }
                Next::WaitUntil(until) => {
                    prop_assert!(until < deadline, "waits past the deadline");
                    now = now.max(until);
                    next = course.resume(now);
                }
                Next::Queue => {
                    let full: Vec<usize> = course.full(now).collect();
                    prop_assert!(!full.is_empty(), "waits for nobody");
                    now += Duration::from_millis(gap);
                    next = match full.get(steps % (full.len() + 1)) {
                        Some(offer) => course.seated(*offer, now),
                        None => course.unseated(now),
                    };
                }
                Next::Refuse => break,
                Next::GiveUp { retry_after } => {
                    prop_assert!((1..=5).contains(&retry_after));
                    break;
                }
            }
        }
        prop_assert!(steps < 40, "it comes to an end");
        prop_assert_eq!(course.attempts().len(), tries as usize);
        prop_assert_eq!(course.asked(), tries);
    }
}
