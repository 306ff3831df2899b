//! Rate limits and budgets of a key and its account. The possible cost of a request is reserved before the work and
//! settled after it, in memory and under two brief locks.
//!
//! Times are those of the calendar clock, because budgets end at midnight. If the calendar clock is set forward,
//! limits per minute refill early, but only once.

use crate::auth::principal::Principal;
use crate::auth::usage_limiter::LimiterState;
use crate::time::clock::ProcessClock;
use crate::time::format::format_rfc3339_rounded_up;
use parking_lot::MutexGuard;
use penstock_core::{ApiError, ErrorCode, MicroCredits};
use penstock_limits::{
    ActualCost, CostEstimate, LimitExceeded, LimitKind, LimitOwner, LimitedMeter, RateLimitStatus,
    RequestSlot, ReservationPair, RetryAfter, UsageLimits, WorkClass, reserve_key_and_account,
};
use std::sync::Arc;
use std::time::Duration;

/// Provisional permit of a request whose cost is not known yet. The examination of a request may take long; until its
/// end, the permit holds a part of each limit, so that no other request can use this part. The permit is released
/// when dropped, or replaced by the reservation.
#[derive(Debug)]
pub struct ProvisionalPermit {
    principal: Arc<Principal>,
    work: WorkClass,
    /// Request slots of the key and of the account.
    held: Option<(RequestSlot, RequestSlot)>,
    clock: ProcessClock,
}

/// Reservation of a request in the limits of its key and account. It is released when dropped, unless it was settled.
#[derive(Debug)]
pub struct KeyLimitReservation {
    principal: Arc<Principal>,
    held: Option<ReservationPair>,
    clock: ProcessClock,
}

/// Limit that refused a request, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitViolation {
    /// Kind of the limit that refused the request.
    pub limit: LimitKind,
    /// Owner of the limit.
    pub owner: LimitOwner,
    /// True if the budget itself covers the request, but the part of it that this gateway has leased does not.
    pub is_lease: bool,
}

/// Reserves the possible cost of a request in the limits of its key and account, in exchange for the provisional
/// permit. If only the leased part of a budget does not cover the request, the provisional permit stays valid.
///
/// # Errors
/// Returns 429 for a limit and 402 for a budget, with the time after which the same request would be admitted if no
/// other request came before.
pub fn reserve_limits(
    entry: &mut ProvisionalPermit,
    cost: &CostEstimate,
) -> Result<KeyLimitReservation, (LimitViolation, ApiError)> {
    let (now, entered) = (entry.clock.calendar_now(), entry.held.take());
    let (mut account, mut key) = lock_meters(&entry.principal);
    let taken = {
        let (account, key) = (&mut *account, &mut *key);
        release_request_slots(entered, account, key, now);
        reserve_key_and_account(
            LimitedMeter { meter: &mut key.meter, limits: &key.limits },
            LimitedMeter { meter: &mut account.meter, limits: &account.limits },
            cost,
            entry.work,
            now,
        )
    };
    match &taken {
        Ok(_) => {}
        Err((_, denied)) if denied.retry_after == RetryAfter::OnLease => {
            entry.held = Some(acquire_request_slots(&mut account, &mut key, entry.work, now));
        }
        Err(_) => record_refusal(&mut account, &mut key, cost, entry.work),
    }
    drop((account, key));
    match taken {
        Ok(held) => Ok(KeyLimitReservation {
            principal: entry.principal.clone(),
            held: Some(held),
            clock: entry.clock,
        }),
        Err(denied) => Err(limit_refusal(denied, now)),
    }
}

fn acquire_request_slots(
    account: &mut LimiterState,
    key: &mut LimiterState,
    work: WorkClass,
    now: Duration,
) -> (RequestSlot, RequestSlot) {
    (
        key.meter.acquire_request_slot(&key.limits, work, now),
        account.meter.acquire_request_slot(&account.limits, work, now),
    )
}

/// Releases the request slots of a provisional permit.
fn release_request_slots(
    slots: Option<(RequestSlot, RequestSlot)>,
    account: &mut LimiterState,
    key: &mut LimiterState,
    now: Duration,
) {
    let Some((own, shared)) = slots else { return };
    key.meter.release_request_slot(own, &key.limits, now);
    account.meter.release_request_slot(shared, &account.limits, now);
}

fn limit_refusal((owner, denied): (LimitOwner, LimitExceeded), now: Duration) -> (LimitViolation, ApiError) {
    let is_lease = denied.retry_after == RetryAfter::OnLease;
    (LimitViolation { limit: denied.limit, owner, is_lease }, refusal(owner, &denied, now))
}

/// Usual usage of a key, from its earlier requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypicalKeyUsage {
    /// Tokens of a response without a cap: the ninetieth percentile of the key's responses.
    pub usual_output_tokens: u64,
    /// True if the key or its account has a budget, so that the price matters.
    pub has_budget: bool,
}

/// Counts a charge that was made elsewhere, by another process or before a restart, against the budgets of the key and
/// its account.
pub fn apply_charge_of_other_process(principal: &Principal, money: MicroCredits, clock: ProcessClock) {
    let (now, used) = (clock.calendar_now(), ActualCost { money, ..ActualCost::default() });
    let (mut account, mut key) = lock_meters(principal);
    for inner in [&mut *account, &mut *key] {
        let LimiterState { limits, meter, .. } = inner;
        let held = meter.reserve(limits, &CostEstimate::default(), WorkClass::BatchLine, now);
        meter.settle(held, limits, &used, now);
    }
}

/// Acquires a provisional permit. Refuses the request if a limit is already reached, so that even a request without
/// cost would exceed it. So a key beyond its limits causes little work. Also returns the usual usage of the key.
///
/// # Errors
/// Same as for [`reserve_limits`].
pub fn acquire_provisional_limits_permit(
    principal: &Arc<Principal>,
    work: WorkClass,
    clock: ProcessClock,
) -> Result<(ProvisionalPermit, TypicalKeyUsage), (LimitViolation, ApiError)> {
    let now = clock.calendar_now();
    let (mut account, mut key) = lock_meters(principal);
    let nothing = CostEstimate::default();
    let own =
        key.meter.check_limits(&key.limits, &nothing, work, now).map_err(|denied| (LimitOwner::Key, denied));
    let shared = account.meter.check_limits(&account.limits, &nothing, work, now);
    let habits = TypicalKeyUsage {
        usual_output_tokens: key.meter.p90_output_tokens(),
        has_budget: has_budget(&account.limits) || has_budget(&key.limits),
    };
    let entered = own
        .and(shared.map_err(|denied| (LimitOwner::Account, denied)))
        .map(|()| acquire_request_slots(&mut account, &mut key, work, now));
    if entered.is_err() {
        record_refusal(&mut account, &mut key, &nothing, work);
    }
    drop((account, key));
    let held = Some(entered.map_err(|denied| limit_refusal(denied, now))?);
    Ok((ProvisionalPermit { principal: principal.clone(), work, held, clock }, habits))
}

/// Records the demand of a refused request. The gateways of a fleet divide a limit by demand.
fn record_refusal(account: &mut LimiterState, key: &mut LimiterState, cost: &CostEstimate, work: WorkClass) {
    if work == WorkClass::Request {
        account.meter.record_refused_demand(cost);
        key.meter.record_refused_demand(cost);
    }
}

/// Returns true if there is a budget.
const fn has_budget(limits: &UsageLimits) -> bool {
    limits.day.is_some() || limits.month.is_some()
}

/// Returns true if a limit depends on the length of responses, so that this length has to be measured.
const fn tracks_output_length(limits: &UsageLimits) -> bool {
    limits.tokens.is_some() || has_budget(limits)
}

/// Returns the status of the limits of a key and its account; for each limit, the status of the stricter one.
#[must_use]
pub fn limit_status(principal: &Principal, now: Duration) -> RateLimitStatus {
    let (account, key) = lock_meters(principal);
    key.meter
        .rate_limit_status(&key.limits, now)
        .most_restrictive(account.meter.rate_limit_status(&account.limits, now))
}

/// Locks the usage of the account and of the key, always in this order.
fn lock_meters(principal: &Principal) -> (MutexGuard<'_, LimiterState>, MutexGuard<'_, LimiterState>) {
    let account = principal.account.limiter.0.lock();
    (account, principal.limiter().0.lock())
}

impl ProvisionalPermit {
    /// Returns the principal of the request.
    #[must_use]
    pub const fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }
}

impl KeyLimitReservation {
    /// Settles the reservation with the actual use. Only the first call has an effect.
    pub fn settle(&mut self, used: &ActualCost) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.calendar_now();
        let (mut account, mut key) = lock_meters(&self.principal);
        if tracks_output_length(&key.limits) || tracks_output_length(&account.limits) {
            key.meter.record_output_length(used.output);
        }
        let LimiterState { limits, meter, .. } = &mut *key;
        meter.settle(held.key, limits, used, now);
        let LimiterState { limits, meter, .. } = &mut *account;
        meter.settle(held.account, limits, used, now);
    }
}

impl Drop for KeyLimitReservation {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.calendar_now();
        let (mut account, mut key) = lock_meters(&self.principal);
        let LimiterState { limits, meter, .. } = &mut *key;
        meter.void_reservation(held.key, limits, now);
        let LimiterState { limits, meter, .. } = &mut *account;
        meter.void_reservation(held.account, limits, now);
    }
}

impl Drop for ProvisionalPermit {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let now = self.clock.calendar_now();
        let (mut account, mut key) = lock_meters(&self.principal);
        release_request_slots(Some(held), &mut account, &mut key, now);
    }
}

/// Returns the whole seconds until the limit admits the same request, rounded up. Returns 1 if the request waits for a
/// lease or for the end of other requests, and `None` if the limit never admits it.
fn retry_after_seconds(wait: RetryAfter) -> Option<u32> {
    match wait {
        RetryAfter::OnLease | RetryAfter::OnRelease => Some(1),
        RetryAfter::After(wait) => {
            let late = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
            Some(u32::try_from(late.max(1)).unwrap_or(u32::MAX))
        }
        RetryAfter::Never => None,
    }
}

/// Longest wait that is stated in seconds; a longer one is stated as a time.
const MAX_STATED_SECONDS: u32 = 60;

/// Formats the end of a wait by RFC 3339; `None` if its time is unknown or the wait never ends.
fn resets_at(wait: RetryAfter, now: Duration) -> Option<String> {
    let RetryAfter::After(wait) = wait else { return None };
    Some(format_rfc3339_rounded_up(now.saturating_add(wait.min(Duration::from_secs(u64::from(u32::MAX))))))
}

/// Returns the advice for the client when to retry.
fn retry_advice(denied: &LimitExceeded, seconds: Option<u32>, resets_at: Option<&str>) -> String {
    match (denied.limit, resets_at, seconds) {
        (_, None, _) | (_, _, None) => String::new(),
        (LimitKind::Budget(_), Some(time), _) => format!(" It begins anew at {time}."),
        (_, Some(_), Some(seconds)) if seconds <= MAX_STATED_SECONDS => format!(" Try again in {seconds} s."),
        (_, Some(time), _) => format!(" Try again at {time}."),
    }
}

fn refusal(owner: LimitOwner, denied: &LimitExceeded, now: Duration) -> ApiError {
    let most = denied.maximum;
    let credits = || MicroCredits(i64::try_from(most).unwrap_or(i64::MAX)).credits().normalize();
    let seconds = retry_after_seconds(denied.retry_after);
    let resets_at = resets_at(denied.retry_after, now);
    let when = retry_advice(denied, seconds, resets_at.as_deref());
    let (code, message) = refusal_message(owner, denied, &when);
    let refusal = ApiError::with_message(code, message)
        .with_details_member("limit", denied.limit.name())
        .with_details_member("of", owner.name());
    let refusal = match denied.limit {
        LimitKind::Budget(_) => refusal.with_details_member("credits", credits().to_string()),
        _ => refusal.with_details_member("value", most),
    };
    let refusal = match resets_at {
        Some(time) => refusal.with_details_member("resets_at", time),
        None => refusal,
    };
    match (seconds, denied.retry_after) {
        (Some(_), RetryAfter::OnLease | RetryAfter::OnRelease) => refusal.caused_by_reservations(),
        (Some(seconds), _) => refusal.with_retry_after(seconds),
        (None, _) => refusal,
    }
}

/// Returns code and sentence of a refusal; `when` is the advice on a retry.
fn refusal_message(owner: LimitOwner, denied: &LimitExceeded, when: &str) -> (ErrorCode, String) {
    let of = if owner == LimitOwner::Key { "this API key" } else { "this account" };
    let most = denied.maximum;
    let credits = || MicroCredits(i64::try_from(most).unwrap_or(i64::MAX)).credits().normalize();
    match (denied.limit, denied.retry_after) {
        (LimitKind::Requests, _) => (
            ErrorCode::RateLimited,
            format!("The limit of {most} requests per minute of {of} is reached.{when}"),
        ),
        (LimitKind::Tokens, RetryAfter::Never) => (
            ErrorCode::RateLimited,
            format!("The input alone is over the limit of {most} tokens per minute of {of}; shorten it."),
        ),
        (LimitKind::Tokens, _) => (
            ErrorCode::RateLimited,
            format!("The limit of {most} tokens per minute of {of} is reached.{when}"),
        ),
        (LimitKind::Concurrent, _) => (
            ErrorCode::RateLimited,
            format!("The limit of {most} requests at the same time of {of} is reached; wait for one to end."),
        ),
        (LimitKind::Budget(period), RetryAfter::Never) => (
            ErrorCode::BudgetExceeded,
            format!(
                "This request may cost more than the budget of {} credits per {} of {of}; \
                 shorten its input, or lower the maximum number of its output tokens.",
                credits(),
                period.name()
            ),
        ),
        (LimitKind::Budget(period), RetryAfter::OnLease | RetryAfter::OnRelease) => (
            ErrorCode::BudgetExceeded,
            format!(
                "The budget of {} credits per {} of {of} does not cover this request with those in flight; \
                 wait for one to end.",
                credits(),
                period.name()
            ),
        ),
        (LimitKind::Budget(period), _) => (
            ErrorCode::BudgetExceeded,
            format!(
                "The budget of {} credits per {} of {of} does not cover this request.{when}",
                credits(),
                period.name()
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
