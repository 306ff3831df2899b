//! Rate limits and budgets of a key and its account: reserved before the work and settled after it, in memory, under
//! two short locks.
//!
//! Time is the calendar's, because budgets end at midnight. Where the calendar is set forward, a limit per minute
//! refills early, once.

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

/// Provisional permit of a request before its cost is known, so that no other request takes its share while it is
/// examined, which may take long. Released when dropped, or exchanged for the reservation.
#[derive(Debug)]
pub struct Entry {
    grant: Arc<Grant>,
    work: Work,
    /// Charges of the key and of the account.
    held: Option<(Entered, Entered)>,
    clock: Clock,
}

/// Reservation of a request; released with the exchange, settled or not.
#[derive(Debug)]
pub struct Pass {
    grant: Arc<Grant>,
    held: Option<Admitted>,
    clock: Clock,
}

/// Limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Name of the limit.
    pub limit: Limit,
    /// Owner of the limit.
    pub whose: Whose,
}

/// Reserves the possible cost of a request from its key and account, in exchange for the provisional permit.
///
/// # Errors
/// Returns 429 for a limit and 402 for a budget, with the wait after which the same request passes if there is no
/// other.
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

/// Releases the provisional permit.
fn leave(entered: Option<(Entered, Entered)>, account: &mut Inner, key: &mut Inner, now: Duration) {
    let Some((own, shared)) = entered else { return };
    key.meter.leave(own, &key.limits, now);
    account.meter.leave(shared, &account.limits, now);
}

fn refused((whose, denied): (Whose, Denied), now: Duration) -> (Hit, Refusal) {
    (Hit { limit: denied.limit, whose }, refusal(whose, &denied, now))
}

/// Usage of a key before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Tokens of a response without a cap: the ninetieth percentile of the key's responses.
    pub output: u64,
    /// True if the key or its account has a budget, so that the price matters.
    pub budgeted: bool,
}

/// Counts a charge of another process.
pub fn charge(grant: &Grant, money: MicroCredits, clock: Clock) {
    let (now, used) = (clock.date(), Used { money, ..Used::default() });
    let (mut account, mut key) = locked(grant);
    for inner in [&mut *account, &mut *key] {
        let Inner { limits, meter } = inner;
        let held = meter.take(limits, &Cost::default(), Work::BatchLine, now);
        meter.settle(held, limits, &used, now);
    }
}

/// Acquires a provisional permit, or refuses what no request could pass, so that a key beyond its limits costs little.
/// Returns the usage of the key too.
///
/// # Errors
/// Same as for [`pass`].
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

/// Returns true if there is a budget.
const fn budgeted(limits: &Limits) -> bool {
    limits.day.is_some() || limits.month.is_some()
}

/// Returns true if the length of responses without a cap matters.
const fn learns(limits: &Limits) -> bool {
    limits.tokens.is_some() || budgeted(limits)
}

/// Returns the status of the limits of a key and its account: of each limit the tighter one.
#[must_use]
pub fn standing(grant: &Grant, now: Duration) -> Standing {
    let (account, key) = locked(grant);
    key.meter.standing(&key.limits, now).tighter(account.meter.standing(&account.limits, now))
}

/// Takes both locks, always in this order.
fn locked(grant: &Grant) -> (MutexGuard<'_, Inner>, MutexGuard<'_, Inner>) {
    let account = grant.account.tally.0.lock();
    (account, grant.tally().0.lock())
}

impl Pass {
    /// Settles the reservation with the actual use. Only the first call has an effect.
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

/// Returns the whole seconds until the limit admits the same request, rounded up.
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

/// Longest wait that is stated in seconds; a longer one is stated as a time.
const SHORT: u32 = 60;

/// Formats the end of a wait by RFC 3339. `None` if it has no end.
fn resets_at(wait: Wait, now: Duration) -> Option<String> {
    let Wait::For(wait) = wait else { return None };
    Some(moment(now.saturating_add(wait.min(Duration::from_secs(u64::from(u32::MAX))))))
}

/// Returns the advice for the client.
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
                "The budget of {} credits per {} of {of} does not cover this request with those in flight; \
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
