//! What is let through: the limits of a key and of its account, taken before
//! the work and settled after it. All in memory, under two short locks.
//!
//! Time here is the calendar's, since budgets end at midnight. Where that is set
//! forward, a limit per minute is whole again a little early, once.

use crate::auth::key_limiter::Inner;
use crate::auth::principal::Grant;
use crate::time::clock::Clock;
use crate::time::format::moment;
use parking_lot::MutexGuard;
use penstock_contract::{Code, MicroCredits, Refusal};
use penstock_limits::{
    Admitted, Cost, Denied, Entered, Limit, Limits, Metered, Standing, Used, Wait, Whose, Work, admit,
};
use std::sync::Arc;
use std::time::Duration;

/// A request that has come in: nobody else has its seat while it is looked at, which may take long. All of it goes back
/// at its end, or when it passes.
#[derive(Debug)]
pub struct Entry {
    grant: Arc<Grant>,
    work: Work,
    /// Of the key and of the account.
    held: Option<(Entered, Entered)>,
    clock: Clock,
}

/// Leave to work; ends with the exchange, settled or not.
#[derive(Debug)]
pub struct Pass {
    grant: Arc<Grant>,
    held: Option<Admitted>,
    clock: Clock,
}

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its name.
    pub limit: Limit,
    /// Whose it is.
    pub whose: Whose,
}

/// Takes what an ask may use from a key and its account, instead of what it took by coming in; or nothing.
///
/// # Errors
/// The refusal: 429 for limits, 402 for budgets, with the wait after which the
/// same ask passes if nobody else asks meanwhile.
pub fn pass(mut entry: Entry, cost: &Cost) -> Result<Pass, (Hit, Refusal)> {
    let (now, entered) = (entry.clock.date(), entry.held.take());
    let (mut account, mut key) = locked(&entry.grant);
    let taken = {
        let (account, key) = (&mut *account, &mut *key);
        leave(entered, account, key, now);
        admit(
            Metered { meter: &mut key.meter, limits: &key.limits },
            Metered { meter: &mut account.meter, limits: &account.limits },
            cost,
            entry.work,
            now,
        )
    };
    drop((account, key));
    match taken {
        Ok(held) => Ok(Pass { grant: entry.grant.clone(), held: Some(held), clock: entry.clock }),
        Err(denied) => Err(refused(denied, now)),
    }
}

/// Gives back what was taken by coming in.
fn leave(entered: Option<(Entered, Entered)>, account: &mut Inner, key: &mut Inner, now: Duration) {
    let Some((own, shared)) = entered else { return };
    key.meter.leave(own, &key.limits, now);
    account.meter.leave(shared, &account.limits, now);
}

fn refused((whose, denied): (Whose, Denied), now: Duration) -> (Hit, Refusal) {
    (Hit { limit: denied.limit, whose }, refusal(whose, &denied, now))
}

/// What is known of a key before it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Tokens of an answer without a cap: the ninetieth percentile of its own.
    pub output: u64,
    /// It or its account has a budget, so that the price matters.
    pub budgeted: bool,
}

/// What another process let through and charged counts here too.
pub fn charge(grant: &Grant, money: MicroCredits, clock: Clock) {
    let (now, used) = (clock.date(), Used { money, ..Used::default() });
    let (mut account, mut key) = locked(grant);
    for inner in [&mut *account, &mut *key] {
        let Inner { limits, meter } = inner;
        let held = meter.take(limits, &Cost::default(), Work::BatchLine, now);
        meter.settle(held, limits, &used, now);
    }
}

/// Lets a request in, or refuses what no ask could pass, so that a key that is over its limits costs little. With
/// what is known of the key.
///
/// # Errors
/// As [`pass`].
pub fn enter(grant: &Arc<Grant>, work: Work, clock: Clock) -> Result<(Entry, Habits), (Hit, Refusal)> {
    let now = clock.date();
    let (mut account, mut key) = locked(grant);
    let nothing = Cost::default();
    let own = key.meter.check(&key.limits, &nothing, work, now).map_err(|denied| (Whose::Key, denied));
    let shared = account.meter.check(&account.limits, &nothing, work, now);
    let habits = Habits {
        output: key.meter.usual_output(),
        budgeted: budgeted(&account.limits) || budgeted(&key.limits),
    };
    let entered = own.and(shared.map_err(|denied| (Whose::Account, denied))).map(|()| {
        let (account, key) = (&mut *account, &mut *key);
        (key.meter.enter(&key.limits, work, now), account.meter.enter(&account.limits, work, now))
    });
    drop((account, key));
    let held = Some(entered.map_err(|denied| refused(denied, now))?);
    Ok((Entry { grant: grant.clone(), work, held, clock }, habits))
}

/// Whether money counts.
const fn budgeted(limits: &Limits) -> bool {
    limits.day.is_some() || limits.month.is_some()
}

/// Whether it matters how long answers are that nobody caps.
const fn learns(limits: &Limits) -> bool {
    limits.tokens.is_some() || budgeted(limits)
}

/// How a key and its account stand: of each limit the tighter one.
#[must_use]
pub fn standing(grant: &Grant, now: Duration) -> Standing {
    let (account, key) = locked(grant);
    key.meter.standing(&key.limits, now).tighter(account.meter.standing(&account.limits, now))
}

/// Both locks, always in this order.
fn locked(grant: &Grant) -> (MutexGuard<'_, Inner>, MutexGuard<'_, Inner>) {
    let account = grant.account.tally.0.lock();
    (account, grant.tally().0.lock())
}

impl Pass {
    /// The work is done: what it used counts. Only the first call does anything.
    pub fn settle(&mut self, used: &Used) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.date();
        let (mut account, mut key) = locked(&self.grant);
        if learns(&key.limits) || learns(&account.limits) {
            key.meter.observe(used.output);
        }
        let Inner { limits, meter } = &mut *key;
        meter.settle(held.key, limits, used, now);
        let Inner { limits, meter } = &mut *account;
        meter.settle(held.account, limits, used, now);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.date();
        let (mut account, mut key) = locked(&self.grant);
        let Inner { limits, meter } = &mut *key;
        meter.void(held.key, limits, now);
        let Inner { limits, meter } = &mut *account;
        meter.void(held.account, limits, now);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.date();
        let (mut account, mut key) = locked(&self.grant);
        leave(Some(held), &mut account, &mut key, now);
    }
}

/// Whole seconds until a limit lets the same through: a little late rather than too early.
fn seconds(wait: Wait) -> Option<u32> {
    match wait {
        Wait::Seat => Some(1),
        Wait::For(wait) => {
            let late = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
            Some(u32::try_from(late.max(1)).unwrap_or(u32::MAX))
        }
        Wait::Never => None,
    }
}

/// Longest wait that is told in seconds; of a longer one the end is told.
const SHORT: u32 = 60;

/// The end of a wait, RFC 3339. `None` where there is no such time.
fn resets_at(wait: Wait, now: Duration) -> Option<String> {
    let Wait::For(wait) = wait else { return None };
    Some(moment(now.saturating_add(wait.min(Duration::from_secs(u64::from(u32::MAX))))))
}

/// What a client can do about it, in words.
fn when(denied: &Denied, seconds: Option<u32>, resets_at: Option<&str>) -> String {
    match (denied.limit, resets_at, seconds) {
        (_, None, _) | (_, _, None) => String::new(),
        (Limit::Budget(_), Some(time), _) => format!(" It begins anew at {time}."),
        (_, Some(_), Some(seconds)) if seconds <= SHORT => format!(" Try again in {seconds} s."),
        (_, Some(time), _) => format!(" Try again at {time}."),
    }
}

fn refusal(whose: Whose, denied: &Denied, now: Duration) -> Refusal {
    let (of, most) = (if whose == Whose::Key { "this API key" } else { "this account" }, denied.most);
    let credits = || MicroCredits(i64::try_from(most).unwrap_or(i64::MAX)).credits().normalize();
    let seconds = seconds(denied.wait);
    let resets_at = resets_at(denied.wait, now);
    let when = when(denied, seconds, resets_at.as_deref());
    let (code, message) = match (denied.limit, denied.wait) {
        (Limit::Requests, _) => {
            (Code::RateLimited, format!("The limit of {most} requests per minute of {of} is reached.{when}"))
        }
        (Limit::Tokens, Wait::Never) => (
            Code::RateLimited,
            format!("The input alone is over the limit of {most} tokens per minute of {of}; shorten it."),
        ),
        (Limit::Tokens, _) => {
            (Code::RateLimited, format!("The limit of {most} tokens per minute of {of} is reached.{when}"))
        }
        (Limit::Concurrent, _) => (
            Code::RateLimited,
            format!("The limit of {most} requests at the same time of {of} is reached; wait for one to end."),
        ),
        (Limit::Budget(period), Wait::Never) => (
            Code::BudgetExceeded,
            format!(
                "This request may cost more than the budget of {} credits per {} of {of}; lower its max_tokens.",
                credits(),
                period.name()
            ),
        ),
        (Limit::Budget(period), Wait::Seat) => (
            Code::BudgetExceeded,
            format!(
                "The budget of {} credits per {} of {of} does not cover this request beside those at work; \
                 wait for one to end.",
                credits(),
                period.name()
            ),
        ),
        (Limit::Budget(period), _) => (
            Code::BudgetExceeded,
            format!(
                "The budget of {} credits per {} of {of} does not cover this request.{when}",
                credits(),
                period.name()
            ),
        ),
    };
    let refusal = Refusal::because(code, message).with("limit", denied.limit.name()).with("of", whose.name());
    let refusal = match denied.limit {
        Limit::Budget(_) => refusal.with("credits", credits().to_string()),
        _ => refusal.with("value", most),
    };
    let refusal = match resets_at {
        Some(time) => refusal.with("resets_at", time),
        None => refusal,
    };
    match (seconds, denied.wait) {
        (Some(_), Wait::Seat) => refusal.held(),
        (Some(seconds), _) => refusal.retry_after(seconds),
        (None, _) => refusal,
    }
}

#[cfg(test)]
mod tests;
