//! Comparison of meters with a simple model, for any order of admitting, settling and voiding requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::MicroCredits;
use penstock_limits::{
    ActualCost, BudgetPeriod, CostEstimate, LimitExceeded, LimitKind, LimitOwner, LimitedMeter,
    OutputLengthStats, ReservationPair, RetryAfter, SpendTotals, UsageLimits, UsageMeter, WorkClass,
    reserve_key_and_account,
};
use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Noon of 2025-11-22, UTC.
const NOON: Duration = Duration::from_secs(1_763_812_800);

fn some(n: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(n)
}

fn cost(input: u64, output: u64, money: i64) -> CostEstimate {
    CostEstimate { input, output, money: MicroCredits(money) }
}

fn ask(
    key: &mut UsageMeter,
    limits: &UsageLimits,
    cost: &CostEstimate,
    now: Duration,
) -> Result<ReservationPair, (LimitOwner, LimitExceeded)> {
    ask_as(key, limits, cost, WorkClass::Request, now)
}

fn ask_as(
    key: &mut UsageMeter,
    limits: &UsageLimits,
    cost: &CostEstimate,
    work: WorkClass,
    now: Duration,
) -> Result<ReservationPair, (LimitOwner, LimitExceeded)> {
    let (mut account, free) = (UsageMeter::default(), UsageLimits::default());
    let account = LimitedMeter { meter: &mut account, limits: &free };
    reserve_key_and_account(LimitedMeter { meter: key, limits }, account, cost, work, now)
}

/// Reference model: plain sums of tokens and money. The tests of the bucket cover request limits and time.
#[derive(Default)]
struct Sums {
    open: Vec<(ReservationPair, CostEstimate)>,
    spent: u64,
    /// Tokens reserved and not released.
    tokens: i128,
}

proptest! {
    /// While no time passes, tokens, permits and money are conserved, and limits hold exactly.
    #[test]
    fn sums_are_conserved(
        steps in proptest::collection::vec((0..4_u8, 0..400_u64, 0..400_u64, 0..50_i64, any::<prop::sample::Index>()), 1..120),
        tokens in 200..5_000_u64,
        max_concurrent in 1..12_u32,
        budget in 50..600_u64,
    ) {
        let limits = UsageLimits {
            tokens: some(tokens), concurrent: NonZeroU32::new(max_concurrent), day: some(budget), ..UsageLimits::default()
        };
        let (mut meter, mut sums) = (UsageMeter::default(), Sums::default());
        for (what, input, output, money, which) in steps {
            if what < 2 || sums.open.is_empty() {
                let cost = cost(input, output, money);
                let held: u64 = sums.open.iter().map(|(_, cost)| u64::try_from(cost.money.0).unwrap()).sum();
                let needed = (input + output).clamp(1, tokens);
                let fits_concurrent = sums.open.len() < usize::try_from(max_concurrent).unwrap();
                let fits_tokens = i128::from(tokens) - sums.tokens >= i128::from(needed) && input <= tokens;
                let money = sums.spent + held + u64::try_from(money).unwrap().max(1) <= budget;
                let found = ask(&mut meter, &limits, &cost, NOON);
                prop_assert_eq!(found.is_ok(), fits_concurrent && fits_tokens && money, "{:?}", found);
                if let Ok(admitted) = found {
                    sums.tokens += i128::from(needed);
                    sums.open.push((admitted, cost));
                }
            } else {
                let (admitted, cost) = sums.open.swap_remove(which.index(sums.open.len()));
                sums.tokens -= i128::from((cost.input + cost.output).clamp(1, tokens));
                if what == 2 {
                    // The actual usage is lower or higher than the reservation.
                    let used = ActualCost { input: cost.input, output, money: MicroCredits(money) };
                    meter.settle(admitted.key, &limits, &used, NOON);
                    sums.tokens += i128::from(cost.input + output);
                    sums.spent += u64::try_from(money).unwrap();
                } else {
                    meter.void_reservation(admitted.key, &limits, NOON);
                }
            }
            prop_assert_eq!(meter.in_flight(), u32::try_from(sums.open.len()).unwrap());
            prop_assert_eq!(meter.spend_totals().spent_in(BudgetPeriod::Day, NOON), sums.spent);
            let owed = u64::try_from((sums.tokens - i128::from(tokens)).max(0)).unwrap();
            prop_assert_eq!(meter.token_debt(&limits, NOON), owed);
        }
    }

    /// The returned wait is exact: the request passes after it, and not a nanosecond before.
    #[test]
    fn the_wait_is_true(
        asks in proptest::collection::vec((1..300_u64, 0..300_u64, 0..700_u64, 0..40_i64, 0..20_u64), 1..60),
        requests in 1..30_u64,
        tokens in 100..900_u64,
        shared in 1..30_u64,
        budget in 40..400_u64,
    ) {
        let own = UsageLimits { requests: some(requests), tokens: some(tokens), day: some(budget), ..UsageLimits::default() };
        let all = UsageLimits { requests: some(shared), month: some(budget), ..UsageLimits::default() };
        let (mut key, mut account) = (UsageMeter::default(), UsageMeter::default());
        let mut now = NOON;
        for (input, output, used, money, pause) in asks {
            now += Duration::from_secs(pause);
            let cost = cost(input, output, money);
            let passes = |key: &UsageMeter, account: &UsageMeter, at| {
                let (mut key, mut account) = (key.clone(), account.clone());
                reserve_key_and_account(
                    LimitedMeter { meter: &mut key, limits: &own },
                    LimitedMeter { meter: &mut account, limits: &all },
                    &cost, WorkClass::Request, at,
                )
            };
            match passes(&key, &account, now) {
                Ok(_) => {
                    let taken = reserve_key_and_account(
                        LimitedMeter { meter: &mut key, limits: &own },
                        LimitedMeter { meter: &mut account, limits: &all },
                        &cost, WorkClass::Request, now,
                    ).unwrap();
                    let used = ActualCost { input, output: used, money: cost.money };
                    key.settle(taken.key, &own, &used, now);
                    account.settle(taken.account, &all, &used, now);
                }
                Err((_, denied)) => match denied.retry_after {
                    RetryAfter::After(wait) => {
                        prop_assert!(passes(&key, &account, now + wait).is_ok());
                        prop_assert!(passes(&key, &account, now + wait - Duration::from_nanos(1)).is_err());
                    }
                    RetryAfter::Never => {
                        let years = now + Duration::from_secs(200_000_000);
                        prop_assert!(passes(&key, &account, years).is_err());
                    }
                    RetryAfter::OnLease | RetryAfter::OnRelease => {
                        prop_assert!(false, "there is no limit of seats here, and no lease");
                    }
                },
            }
        }
    }

    /// The 90th percentile equals the result of sorting.
    #[test]
    fn the_percentile_is_that_of_the_last_answers(lengths in proptest::collection::vec(0..9_000_u64, 0..200)) {
        let mut outputs = OutputLengthStats::default();
        for length in &lengths {
            outputs.record(*length);
        }
        let mut last: Vec<u64> = lengths.iter().rev().take(64).copied().collect();
        last.sort_unstable();
        let expected = if last.len() < 8 { 1_024 } else { last[(last.len() * 9).div_ceil(10) - 1] };
        prop_assert_eq!(outputs.p90_tokens(), expected);
    }
}

#[test]
fn a_refused_ask_takes_from_neither_the_key_nor_the_account() {
    let own = UsageLimits { requests: some(10), tokens: some(1_000), ..UsageLimits::default() };
    let all = UsageLimits { requests: some(1), ..UsageLimits::default() };
    let (mut key, mut account) = (UsageMeter::default(), UsageMeter::default());
    let mut ask = |key: &mut UsageMeter| {
        reserve_key_and_account(
            LimitedMeter { meter: key, limits: &own },
            LimitedMeter { meter: &mut account, limits: &all },
            &cost(10, 90, 5),
            WorkClass::Request,
            NOON,
        )
    };
    let first = ask(&mut key).unwrap();
    let (owner, denied) = ask(&mut key).unwrap_err();
    assert_eq!(
        (owner, denied.limit, denied.retry_after),
        (LimitOwner::Account, LimitKind::Requests, RetryAfter::After(Duration::from_secs(60)))
    );
    let status = key.rate_limit_status(&own, NOON);
    assert_eq!((status.requests.unwrap().remaining, status.tokens.unwrap().remaining), (9, 900));
    assert_eq!((key.in_flight(), key.admitted_count(), account.admitted_count()), (1, 1, 1));
    key.void_reservation(first.key, &own, NOON);
    // The request still counts toward the request limit, although it was voided.
    let status = key.rate_limit_status(&own, NOON);
    assert_eq!((status.requests.unwrap().remaining, status.tokens.unwrap().remaining), (9, 1_000));
}

#[test]
fn a_validated_request_takes_and_releases_its_permits() {
    let limits = UsageLimits { requests: some(2), concurrent: NonZeroU32::new(1), ..UsageLimits::default() };
    let remaining = |key: &UsageMeter| key.rate_limit_status(&limits, NOON).requests.unwrap().remaining;
    let mut key = UsageMeter::default();
    let entered = key.acquire_request_slot(&limits, WorkClass::Request, NOON);
    assert_eq!((key.in_flight(), key.admitted_count(), remaining(&key)), (1, 0, 1));
    let (_, denied) = ask(&mut key, &limits, &cost(1, 1, 0), NOON).unwrap_err();
    assert_eq!((denied.limit, denied.retry_after), (LimitKind::Concurrent, RetryAfter::OnRelease));
    key.release_request_slot(entered, &limits, NOON);
    assert_eq!((key.in_flight(), remaining(&key)), (0, 2));
    let taken = ask(&mut key, &limits, &cost(1, 1, 0), NOON).unwrap();
    key.void_reservation(taken.key, &limits, NOON);
    // A limit added in the meantime gets nothing back, because nothing was taken from it; a removed limit is ignored.
    let entered = key.acquire_request_slot(&UsageLimits::default(), WorkClass::Request, NOON);
    key.release_request_slot(entered, &limits, NOON);
    assert_eq!((key.in_flight(), remaining(&key)), (0, 1));
    let entered = key.acquire_request_slot(&limits, WorkClass::Request, NOON);
    key.release_request_slot(entered, &UsageLimits::default(), NOON);
    assert_eq!((key.in_flight(), remaining(&key)), (0, 0));
    let line = key.acquire_request_slot(&limits, WorkClass::BatchLine, NOON);
    assert_eq!((key.in_flight(), remaining(&key)), (0, 0));
    key.release_request_slot(line, &limits, NOON);
    assert_eq!((key.in_flight(), remaining(&key)), (0, 0));
}

#[test]
fn a_long_ask_passes_when_the_bucket_is_full_and_leaves_debt() {
    let limits = UsageLimits { tokens: some(1_000), ..UsageLimits::default() };
    let mut key = UsageMeter::default();
    let taken = ask(&mut key, &limits, &cost(500, 32_000, 0), NOON).unwrap();
    key.settle(taken.key, &limits, &ActualCost { input: 500, output: 2_500, money: MicroCredits(0) }, NOON);
    assert_eq!(key.token_debt(&limits, NOON), 2_000);
    let (_, denied) = ask(&mut key, &limits, &cost(500, 32_000, 0), NOON).unwrap_err();
    assert_eq!(denied.retry_after, RetryAfter::After(Duration::from_secs(180)));
    let (_, denied) = ask(&mut key, &limits, &cost(1_001, 0, 0), NOON).unwrap_err();
    assert_eq!((denied.limit, denied.retry_after), (LimitKind::Tokens, RetryAfter::Never));
}

#[test]
fn a_batch_line_meets_the_budgets_alone() {
    let limits = UsageLimits {
        requests: some(1),
        tokens: some(1),
        concurrent: NonZeroU32::new(1),
        day: some(100),
        ..UsageLimits::default()
    };
    let mut key = UsageMeter::default();
    let lines: Vec<_> =
        (0..4).map(|_| ask_as(&mut key, &limits, &cost(900, 900, 25), WorkClass::BatchLine, NOON)).collect();
    assert!(lines.iter().all(Result::is_ok));
    assert_eq!(key.rate_limit_status(&limits, NOON).requests.unwrap().remaining, 1);
    let (_, denied) = ask_as(&mut key, &limits, &cost(1, 1, 1), WorkClass::BatchLine, NOON).unwrap_err();
    assert_eq!(denied.limit, LimitKind::Budget(BudgetPeriod::Day));
    for line in lines {
        key.settle(
            line.unwrap().key,
            &limits,
            &ActualCost { input: 1, output: 1, money: MicroCredits(10) },
            NOON,
        );
    }
    assert_eq!(key.spend_totals().spent_in(BudgetPeriod::Day, NOON), 40);
    assert_eq!((key.in_flight(), key.rate_limit_status(&limits, NOON).tokens.unwrap().remaining), (0, 1));
}

#[test]
fn a_budget_that_only_open_work_holds_is_no_wait_until_midnight() {
    let limits = UsageLimits { day: some(100), month: some(500), ..UsageLimits::default() };
    let mut key = UsageMeter::default();
    let open = ask(&mut key, &limits, &cost(1, 1, 90), NOON).unwrap();
    let wait = |key: &UsageMeter, money| {
        let denied = ask(&mut key.clone(), &limits, &cost(1, 1, money), NOON).unwrap_err().1;
        (denied.limit, denied.retry_after)
    };
    assert_eq!(wait(&key, 100), (LimitKind::Budget(BudgetPeriod::Day), RetryAfter::OnRelease));
    assert_eq!(wait(&key, 101).1, RetryAfter::Never);
    key.settle(open.key, &limits, &ActualCost { input: 1, output: 1, money: MicroCredits(30) }, NOON);
    let open = ask(&mut key, &limits, &cost(1, 1, 70), NOON).unwrap();
    assert_eq!(wait(&key, 70).1, RetryAfter::OnRelease);
    assert_eq!(wait(&key, 71).1, RetryAfter::After(Duration::from_secs(43_200)), "what is spent is spent");
    assert_eq!(wait(&key, 0).1, RetryAfter::OnRelease);
    // The longest wait is returned, that of the month's budget: for the day's budget, the end of open requests would
    // suffice.
    let spent = UsageLimits { month: some(40), ..limits };
    let denied = ask(&mut key.clone(), &spent, &cost(1, 1, 20), NOON).unwrap_err().1;
    assert!(
        matches!(
            (denied.limit, denied.retry_after),
            (LimitKind::Budget(BudgetPeriod::Month), RetryAfter::After(_))
        ),
        "{denied:?}"
    );
    key.void_reservation(open.key, &limits, NOON);
    assert!(ask(&mut key, &limits, &cost(1, 1, 70), NOON).is_ok());
}

#[test]
fn a_budget_begins_anew_when_its_window_ends() {
    let limits = UsageLimits { day: some(100), month: some(150), ..UsageLimits::default() };
    let mut key = UsageMeter::default();
    let spend = |key: &mut UsageMeter, money, now| {
        let taken = ask(key, &limits, &cost(1, 1, money), now)?;
        key.settle(taken.key, &limits, &ActualCost { input: 1, output: 1, money: MicroCredits(money) }, now);
        Ok::<_, (LimitOwner, LimitExceeded)>(())
    };
    spend(&mut key, 100, NOON).unwrap();
    let (_, denied) = spend(&mut key, 1, NOON).unwrap_err();
    assert_eq!(
        (denied.limit, denied.retry_after),
        (LimitKind::Budget(BudgetPeriod::Day), RetryAfter::After(Duration::from_secs(43_200)))
    );
    let tomorrow = NOON + Duration::from_secs(43_200);
    spend(&mut key, 50, tomorrow).unwrap();
    // Eight days of November are left, so the month's budget has a longer wait than the day's.
    let (_, denied) = spend(&mut key, 1, tomorrow).unwrap_err();
    assert_eq!(
        (denied.limit, denied.retry_after),
        (LimitKind::Budget(BudgetPeriod::Month), RetryAfter::After(Duration::from_secs(8 * 86_400)))
    );
    spend(&mut key, 100, tomorrow + Duration::from_secs(8 * 86_400)).unwrap();
    assert_eq!(
        spend(&mut key, 101, NOON + Duration::from_secs(40 * 86_400)).unwrap_err().1.retry_after,
        RetryAfter::Never
    );
}

#[test]
fn a_leased_budget_admits_its_part_and_the_part_lasts_over_midnight() {
    let limits = UsageLimits { day: some(100), ..UsageLimits::default() };
    let mut key = UsageMeter::default();
    key.enable_budget_leases();
    let wait = |key: &UsageMeter, money, now| {
        let asked = ask(&mut key.clone(), &limits, &cost(1, 1, money), now);
        asked.err().map(|(_, denied)| (denied.limit, denied.retry_after))
    };
    let dry = Some((LimitKind::Budget(BudgetPeriod::Day), RetryAfter::OnLease));
    assert_eq!((wait(&key, 1, NOON), wait(&key, 0, NOON)), (dry, None), "no cost needs no part");
    assert_eq!(wait(&key, 101, NOON).unwrap().1, RetryAfter::Never);
    key.add_lease(BudgetPeriod::Day, 30);
    let open = ask(&mut key, &limits, &cost(1, 1, 20), NOON).unwrap();
    assert_eq!((wait(&key, 10, NOON), wait(&key, 11, NOON)), (None, dry));
    assert!(!key.try_reduce_lease(BudgetPeriod::Day, 11) && key.try_reduce_lease(BudgetPeriod::Day, 5));
    key.settle(open.key, &limits, &ActualCost { input: 1, output: 1, money: MicroCredits(22) }, NOON);
    let lease =
        |key: &UsageMeter| (key.unspent_lease(BudgetPeriod::Day), key.stored_lease(BudgetPeriod::Day));
    assert_eq!((lease(&key), wait(&key, 4, NOON)), ((3, 25), dry));
    assert_eq!((key.take_unwritten_spending().covered, lease(&key)), ((22, 0), (3, 3)));
    let tomorrow = NOON + Duration::from_secs(86_400);
    key.add_lease(BudgetPeriod::Day, 97);
    assert_eq!((wait(&key, 100, tomorrow), wait(&key, 78, NOON)), (None, None));
    assert!(matches!(wait(&key, 79, NOON), Some((_, RetryAfter::After(_)))), "22 are spent today");
}

#[test]
fn a_part_of_a_lowered_budget_is_drawn_again_before_it_is_spent() {
    let of_day = |budget| UsageLimits { day: some(budget), ..UsageLimits::default() };
    let (before, lowered, day) = (of_day(100), of_day(60), BudgetPeriod::Day);
    let mut key = UsageMeter::default();
    key.add_lease(day, 50);
    key.mark_lowered_leases_recalled(&before, &of_day(200));
    assert!(key.is_cost_covered(&before, day, 50) && !key.is_lease_recalled(&before, day));
    assert_eq!(key.take_recalled_lease(day), 0);
    let open = ask(&mut key, &before, &cost(1, 1, 10), NOON).unwrap();
    key.mark_lowered_leases_recalled(&before, &lowered);
    assert!(!key.is_cost_covered(&lowered, day, 1) && key.is_lease_recalled(&lowered, day));
    assert_eq!((key.take_recalled_lease(day), key.unspent_lease(day)), (40, 10), "a request has reserved 10");
    key.add_drawn_lease(&lowered, day, 0, 60);
    assert!(
        key.is_lease_recalled(&lowered, day),
        "nothing was granted, so other parts may exceed the budget"
    );
    key.add_drawn_lease(&lowered, day, 20, 60);
    assert!(!key.is_lease_recalled(&lowered, day));
    assert!(key.is_cost_covered(&lowered, day, 20) && !key.is_cost_covered(&lowered, day, 21));
    key.add_drawn_lease(&of_day(50), day, 20, 60);
    assert!(!key.is_cost_covered(&of_day(50), day, 1), "it was lowered again meanwhile");
    assert!(
        key.is_cost_covered(&UsageLimits::default(), day, 1)
            && key.is_lease_recalled(&UsageLimits::default(), day)
    );
    key.void_reservation(open.key, &lowered, NOON);
    let mut restored = UsageMeter::default();
    restored.add_lease(day, 30);
    restored.mark_lease_recalled(day);
    assert!(!restored.is_cost_covered(&lowered, day, 1) && restored.is_lease_recalled(&lowered, day));
    assert_eq!(restored.take_recalled_lease(day), 30);
}

#[test]
fn spending_before_a_restart_counts_within_its_window_only() {
    let spend = SpendTotals::from_stored(70, 900, NOON);
    assert_eq!(
        (spend.spent_in(BudgetPeriod::Day, NOON), spend.spent_in(BudgetPeriod::Month, NOON)),
        (70, 900)
    );
    let tomorrow = NOON + Duration::from_secs(86_400);
    assert_eq!(
        (spend.spent_in(BudgetPeriod::Day, tomorrow), spend.spent_in(BudgetPeriod::Month, tomorrow)),
        (0, 900)
    );
    let december = NOON + Duration::from_secs(9 * 86_400);
    assert_eq!(spend.spent_in(BudgetPeriod::Month, december), 0);
    let mut spend = spend;
    spend.add(5, december);
    // If the clock goes back, the spending counts in the current windows of December.
    spend.add(5, NOON);
    assert_eq!(
        (spend.spent_in(BudgetPeriod::Day, december), spend.spent_in(BudgetPeriod::Month, december)),
        (10, 10)
    );
}

#[test]
fn windows_end_at_midnight_and_on_the_first() {
    let end = |period: BudgetPeriod, at| period.end(Duration::from_secs(at)).as_secs();
    assert_eq!(end(BudgetPeriod::Day, 1_763_812_800), 1_763_856_000);
    // 2024-02-29T23:59:59, whose month ends on the first of March; the last second of 2024; the first second of 2025;
    // 1970.
    assert_eq!(end(BudgetPeriod::Month, 1_709_251_199), 1_709_251_200);
    assert_eq!(end(BudgetPeriod::Month, 1_735_689_599), 1_735_689_600);
    assert_eq!(end(BudgetPeriod::Month, 1_735_689_600), 1_738_368_000);
    assert_eq!(end(BudgetPeriod::Month, 0), 31 * 86_400);
}
