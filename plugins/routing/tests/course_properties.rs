//! Properties of every retry planner, for any sequence of failures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{UpstreamError, UpstreamErrorKind};
use penstock_routing::{AttemptPolicy, PlannedOffer, RetryAction, RetryBudget, RetryPlanner};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);

fn any_fault() -> impl Strategy<Value = UpstreamError> {
    let kinds = prop_oneof![
        Just(UpstreamErrorKind::Connect),
        Just(UpstreamErrorKind::Reset),
        Just(UpstreamErrorKind::FirstByteTimeout),
        Just(UpstreamErrorKind::FirstTokenTimeout),
        Just(UpstreamErrorKind::IdleTimeout),
        Just(UpstreamErrorKind::Status(500)),
        Just(UpstreamErrorKind::Status(503)),
        Just(UpstreamErrorKind::Status(429)),
        Just(UpstreamErrorKind::Credentials(401)),
        Just(UpstreamErrorKind::Truncated),
        Just(UpstreamErrorKind::Malformed),
        Just(UpstreamErrorKind::Caller),
        Just(UpstreamErrorKind::Diverged),
    ];
    (kinds, proptest::option::weighted(0.4, 0..20_u64)).prop_map(|(kind, rest)| UpstreamError {
        retry_after: rest.map(Duration::from_secs),
        ..UpstreamError::new(kind)
    })
}

fn any_entries() -> impl Strategy<Value = Vec<PlannedOffer>> {
    let one = (0..4_usize, proptest::option::weighted(0.2, 0..10_u64), any::<bool>());
    proptest::collection::vec(one, 0..7).prop_map(|all| {
        let entry =
            |(offer, (provider, rest, is_stable)): (usize, (usize, Option<u64>, bool))| PlannedOffer {
                cooldown_until: rest.map(|seconds| NOW + Duration::from_secs(seconds)),
                is_stable,
                ..PlannedOffer::new(offer, provider)
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
        let policy = AttemptPolicy { max_attempts: attempts, max_retry_after: Duration::from_secs(patience), deadline, ..AttemptPolicy::default() };
        let mut course = RetryPlanner::new(entries.clone(), policy, seed);
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
        let mut next = course.first_step(now);
        for (fault, gap, after_commit, pass) in faults {
            steps += 1;
            match next {
                RetryAction::Attempt(offer) => {
                    let entry = entries[offer];
                    prop_assert!(now < deadline, "no attempt past the deadline");
                    prop_assert!(!silent.contains(&offer), "asked a silent offer again");
                    prop_assert!(!gone.contains(&entry.provider), "asked a provider that cannot be reached");
                    prop_assert!(rests.get(&entry.provider).is_none_or(|until| *until <= now), "asked before its rest was over");
                    prop_assert!(entry.cooldown_until.is_none_or(|until| until <= now), "asked before its rest was over");
                    if asked.contains(&offer) {
                        let named_a_time = rests.contains_key(&entry.provider);
                        prop_assert!(named_a_time || (may_repeat && last == Some(offer)), "asked twice without a reason");
                    }
                    last = Some(offer);
                    may_repeat = false;
                    if pass && !asked.contains(&offer) {
                        next = if gap % 2 == 0 { course.on_skipped(now) } else { course.on_provider_full(now) };
                        continue;
                    }
                    tries += 1;
                    asked.insert(offer);
                    prop_assert!(tries <= attempts, "too many attempts");
                    now += Duration::from_millis(gap);
                    if matches!(fault.kind, UpstreamErrorKind::FirstByteTimeout | UpstreamErrorKind::FirstTokenTimeout | UpstreamErrorKind::IdleTimeout) {
                        silent.insert(offer);
                    } else if fault.kind.is_provider_wide() {
                        gone.insert(entry.provider);
                    } else if let (Some(rest), true) = (fault.retry_after, fault.kind != UpstreamErrorKind::Caller) {
                        let until = rests.entry(entry.provider).or_default();
                        *until = (*until).max(now + rest);
                    }
                    next = if after_commit {
                        course.on_stream_failure(&fault, now, &mut budget)
                    } else {
                        course.on_failure(&fault, now, &mut budget)
                    };
                    prop_assert_eq!(next == RetryAction::ReturnError, fault.kind == UpstreamErrorKind::Caller);
                }
                RetryAction::RetrySame { offer, after } => {
                    prop_assert_eq!(Some(offer), last);
                    prop_assert!(entries[offer].is_stable);
                    let count = quick.entry(entries[offer].provider).or_default();
                    *count += 1;
                    prop_assert!(*count <= 1, "one quick retry per provider");
                    may_repeat = true;
                    now += after;
                    next = course.on_sleep_elapsed(now);
                    prop_assert_eq!(next, RetryAction::Attempt(offer));
                }
                RetryAction::WaitUntil(until) => {
                    prop_assert!(until < deadline, "waits past the deadline");
                    now = now.max(until);
                    next = course.on_sleep_elapsed(now);
                }
                RetryAction::WaitForPermit => {
                    let full: Vec<usize> = course.full_offers(now).collect();
                    prop_assert!(!full.is_empty(), "waits for nobody");
                    now += Duration::from_millis(gap);
                    next = match full.get(steps % (full.len() + 1)) {
                        Some(offer) => course.on_permit(*offer, now),
                        None => course.on_permit_timeout(now),
                    };
                }
                RetryAction::ReturnError => break,
                RetryAction::GiveUp { retry_after } => {
                    prop_assert!((1..=5).contains(&retry_after));
                    break;
                }
            }
        }
        prop_assert!(steps < 40, "it comes to an end");
        prop_assert_eq!(course.failed_attempts().len(), tries as usize);
        prop_assert_eq!(course.started_attempt_count(), tries);
    }
}
