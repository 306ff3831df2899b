//! Usage of one key or account: a request passes all limits or changes none.

use crate::budget_lease::BudgetLeases;
use crate::limit_status::RateLimitStatus;
use crate::output_length_stats::OutputLengthStats;
use crate::peers::{LimitAllowances, MeterSharingState, PeerUsage, SharingPhase, UsageTotals};
use crate::spend::SpendTotals;
use crate::token_bucket::{RetryAfter, TokenBucket};
use penstock_core::MicroCredits;
use penstock_core::calendar::BudgetPeriod;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Limits of a key or account. `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageLimits {
    /// Maximum number of requests per minute.
    pub requests: Option<NonZeroU64>,
    /// Tokens per minute, input and output together.
    pub tokens: Option<NonZeroU64>,
    /// Maximum number of requests in flight.
    pub concurrent: Option<NonZeroU32>,
    /// Budget in micro-credits per UTC day.
    pub day: Option<NonZeroU64>,
    /// Budget in micro-credits per UTC month.
    pub month: Option<NonZeroU64>,
}

impl UsageLimits {
    /// Returns the budget of a period; `None` if it is unlimited.
    #[must_use]
    pub const fn budget(&self, period: BudgetPeriod) -> Option<NonZeroU64> {
        match period {
            BudgetPeriod::Day => self.day,
            BudgetPeriod::Month => self.month,
        }
    }
}

/// Kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Requests in flight.
    Concurrent,
    /// Money budget of a day or a month.
    Budget(BudgetPeriod),
}

impl LimitKind {
    /// Returns the name in errors, lists and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_minute",
            Self::Tokens => "tokens_per_minute",
            Self::Concurrent => "concurrent",
            Self::Budget(BudgetPeriod::Day) => "budget_per_day",
            Self::Budget(BudgetPeriod::Month) => "budget_per_month",
        }
    }
}

/// Class of work, which determines the limits that apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkClass {
    /// Request of a waiting client: all limits apply.
    #[default]
    Request,
    /// Line of a batch: only the budgets apply.
    BatchLine,
}

/// Maximum usage of a request, estimated before it is sent to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer: the maximum, or an estimate.
    pub output: u64,
    /// Cost of the prompt and the answer together, in micro-credits.
    pub money: MicroCredits,
}

/// Actual usage of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActualCost {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Charged micro-credits.
    pub money: MicroCredits,
}

/// Reservation of one request; passed to [`UsageMeter::settle`] or [`UsageMeter::void_reservation`] exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a reservation must be settled or voided"]
pub struct LimitReservation {
    tokens: Option<u64>,
    money: u64,
    permit: bool,
}

/// One request and one concurrency permit that a request holds while its cost is not known; passed to
/// [`UsageMeter::release_request_slot`] exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request slot must be released"]
pub struct RequestSlot {
    request: bool,
    permit: bool,
}

/// Exceeded limit. If several are exceeded, the one with the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// Kind of the limit.
    pub limit: LimitKind,
    /// Value of the limit: requests, tokens or micro-credits.
    pub maximum: u64,
    /// Time until the same request would pass.
    pub retry_after: RetryAfter,
}

/// Returns the tokens to take from the bucket for a request: at most the capacity of the bucket.
fn token_amount(limit: NonZeroU64, cost: &CostEstimate) -> u64 {
    cost.input.saturating_add(cost.output).clamp(1, limit.get())
}

/// Converts a charge or an estimate to micro-credits; negative amounts become zero.
pub(crate) fn to_micro_credits(money: MicroCredits) -> u64 {
    u64::try_from(money.0).unwrap_or(0)
}

/// Usage of one key or account. The limits are an argument of every call, so a change of the limits takes effect at
/// once and the recorded usage remains.
#[derive(Clone, Debug, Default)]
pub struct UsageMeter {
    requests: TokenBucket,
    tokens: TokenBucket,
    pub(crate) spend: SpendTotals,
    /// Micro-credits reserved for work that is not settled.
    pub(crate) reserved: u64,
    working: u32,
    /// Total number of admitted requests, without lines of batches.
    passed: u64,
    /// Total number of tokens used, including the estimates of open requests.
    used_tokens: i64,
    /// Tokens reserved by open requests.
    reserved_tokens: u64,
    /// Total numbers of requests and of tokens that clients demanded, whether admitted or refused.
    wanted: (u64, u64),
    /// State of limits that this gateway shares with other gateways; `None` without a fleet.
    pub(crate) shared: Option<Box<MeterSharingState>>,
    /// Parts of the budgets that are leased to this gateway; `None` without a fleet: the whole budgets are its own.
    pub(crate) leases: Option<Box<BudgetLeases>>,
    output_lengths: Option<Box<OutputLengthStats>>,
}

impl UsageMeter {
    /// Returns a meter that continues from stored spending.
    #[must_use]
    pub fn from_stored_spend(spend: SpendTotals) -> Self {
        Self { spend, ..Self::default() }
    }

    /// Checks whether a request would be admitted.
    ///
    /// If prompt and longest answer together exceed the tokens per minute, the request is admitted once the bucket is
    /// full, and the excess becomes debt. A request whose prompt alone exceeds them is never admitted.
    ///
    /// # Errors
    /// Returns the exceeded limit with the longest wait.
    pub fn check_limits(
        &self,
        limits: &UsageLimits,
        cost: &CostEstimate,
        work: WorkClass,
        now: Duration,
    ) -> Result<(), LimitExceeded> {
        let mut worst = self.exceeded_budget(limits, cost, now);
        let (shared, own) = (self.shared.as_deref(), self.usage_totals());
        let in_flight = shared.map_or(0, |shared| shared.in_flight);
        let mut add = |limit, most, wait: Option<RetryAfter>| {
            if let Some(wait) = wait.filter(|wait| worst.is_none_or(|worst| worst.retry_after < *wait)) {
                worst = Some(LimitExceeded { limit, maximum: most, retry_after: wait });
            }
        };
        if work == WorkClass::Request {
            if let Some(most) = limits.requests {
                let wait = match shared {
                    Some(shared) => shared.request_wait(&self.requests, most, &own, now),
                    None => self.requests.retry_after(most, 1, now),
                };
                add(LimitKind::Requests, most.get(), wait);
            }
            if let Some(most) = limits.tokens {
                let amount = token_amount(most, cost);
                let wait = match shared {
                    _ if cost.input > most.get() => Some(RetryAfter::Never),
                    Some(shared) => shared.token_wait(&self.tokens, most, amount, &own, now),
                    None => self.tokens.retry_after(most, amount, now),
                };
                add(LimitKind::Tokens, most.get(), wait);
            }
            if let Some(most) = limits.concurrent {
                let full = self.working.saturating_add(in_flight) >= most.get();
                add(LimitKind::Concurrent, most.get().into(), full.then_some(RetryAfter::OnRelease));
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// Takes one request and one concurrency permit from the limits for a request whose cost is not yet known; nothing
    /// for a line of a batch. The caller must have called [`UsageMeter::check_limits`] with a cost of zero.
    pub fn acquire_request_slot(
        &mut self,
        limits: &UsageLimits,
        work: WorkClass,
        now: Duration,
    ) -> RequestSlot {
        if work == WorkClass::BatchLine {
            return RequestSlot { request: false, permit: false };
        }
        if let Some(limit) = limits.requests {
            self.requests.take(limit, 1, now);
        }
        self.working = self.working.saturating_add(1);
        RequestSlot { request: limits.requests.is_some(), permit: true }
    }

    /// Releases a request slot: before [`UsageMeter::reserve`], or after the request was refused.
    pub fn release_request_slot(&mut self, slot: RequestSlot, limits: &UsageLimits, now: Duration) {
        if let Some(limit) = limits.requests.filter(|_| slot.request) {
            self.requests.settle(limit, 1, 0, now);
        }
        self.working = self.working.saturating_sub(u32::from(slot.permit));
    }

    /// Reserves the maximum usage of a request from every limit. The caller must have called
    /// [`UsageMeter::check_limits`].
    pub fn reserve(
        &mut self,
        limits: &UsageLimits,
        cost: &CostEstimate,
        work: WorkClass,
        now: Duration,
    ) -> LimitReservation {
        let money = to_micro_credits(cost.money);
        self.reserved = self.reserved.saturating_add(money);
        if work == WorkClass::BatchLine {
            return LimitReservation { tokens: None, money, permit: false };
        }
        if let Some(limit) = limits.requests {
            self.requests.take(limit, 1, now);
        }
        let tokens = limits.tokens.map(|limit| {
            let amount = token_amount(limit, cost);
            self.tokens.take(limit, amount, now);
            self.used_tokens = self.used_tokens.wrapping_add_unsigned(amount);
            self.reserved_tokens = self.reserved_tokens.saturating_add(amount);
            amount
        });
        self.record_demand(cost);
        self.working = self.working.saturating_add(1);
        self.passed = self.passed.saturating_add(1);
        LimitReservation { tokens, money, permit: true }
    }

    fn record_demand(&mut self, cost: &CostEstimate) {
        let tokens = cost.input.saturating_add(cost.output).max(1);
        self.wanted = (self.wanted.0.saturating_add(1), self.wanted.1.saturating_add(tokens));
    }

    /// Records the demand of a request that was refused. Gateways divide a shared limit according to their demand.
    pub fn record_refused_demand(&mut self, cost: &CostEstimate) {
        if self.shared.is_some() {
            self.record_demand(cost);
        }
    }

    /// Returns the totals that other gateways need for their [`UsageMeter::apply_peer_usage`].
    #[must_use]
    pub fn usage_totals(&self) -> UsageTotals {
        UsageTotals {
            requests: self.passed,
            tokens: self.used_tokens,
            wanted_requests: self.wanted.0,
            wanted_tokens: self.wanted.1,
            in_flight: self.working,
            reserved: self.reserved,
            reserved_tokens: self.reserved_tokens,
            allowed: self.shared.as_deref().map_or_else(LimitAllowances::default, |shared| shared.allowed),
        }
    }

    /// Applies the usage that other gateways reported since the last synchronization.
    pub fn apply_peer_usage(&mut self, limits: &UsageLimits, peers: &PeerUsage, now: Duration) {
        let own = self.usage_totals();
        let shared = self.shared.get_or_insert_default();
        shared.apply_peer_usage((&mut self.requests, &mut self.tokens), limits, &own, peers, now);
    }

    /// Allows an equal part of each limit until the next synchronization, unless gateways already exchange the usage.
    pub fn begin_limit_sharing(&mut self, limits: &UsageLimits, members: u32, now: Duration) {
        if !self.shared.as_deref().is_some_and(|shared| shared.is_exchanged(now)) {
            let silent_peers = members.saturating_sub(1);
            let unknown = PeerUsage { members, silent_peers, position: silent_peers, ..PeerUsage::default() };
            self.shared.get_or_insert_default().phase = SharingPhase::Begun;
            self.apply_peer_usage(limits, &unknown, now);
            self.shared.get_or_insert_default().phase = SharingPhase::Begun;
        }
    }

    /// Replaces the spending by the spending of all gateways together.
    pub fn replace_with_fleet_spend(&mut self, spend: SpendTotals) {
        self.spend = spend;
    }

    /// Settles a reservation: replaces the reserved usage by the actual usage.
    pub fn settle(&mut self, held: LimitReservation, limits: &UsageLimits, used: &ActualCost, now: Duration) {
        self.release(&held, limits, used.input.saturating_add(used.output), now);
        let money = to_micro_credits(used.money);
        self.spend.add(money, now);
        if let Some(leases) = &mut self.leases {
            leases.spend(limits, money);
        }
    }

    /// Records the length of an answer, as a sample for requests without an output limit.
    pub fn record_output_length(&mut self, output: u64) {
        self.output_lengths.get_or_insert_default().record(output);
    }

    /// Voids a reservation: only the request itself counts as used.
    pub fn void_reservation(&mut self, held: LimitReservation, limits: &UsageLimits, now: Duration) {
        self.release(&held, limits, 0, now);
    }

    fn release(&mut self, held: &LimitReservation, limits: &UsageLimits, tokens: u64, now: Duration) {
        if let (Some(limit), Some(taken)) = (limits.tokens, held.tokens) {
            self.tokens.settle(limit, taken, tokens, now);
            self.used_tokens = self.used_tokens.wrapping_sub_unsigned(taken).wrapping_add_unsigned(tokens);
            self.reserved_tokens = self.reserved_tokens.saturating_sub(taken);
        }
        self.reserved = self.reserved.saturating_sub(held.money);
        self.working = self.working.saturating_sub(u32::from(held.permit));
    }

    /// Returns the expected output tokens of a request without an output limit: the 90th percentile of the key's own
    /// answers.
    #[must_use]
    pub fn p90_output_tokens(&self) -> u64 {
        self.output_lengths
            .as_ref()
            .map_or_else(|| OutputLengthStats::default().p90_tokens(), |outputs| outputs.p90_tokens())
    }

    /// Returns the status of the limits per minute.
    #[must_use]
    pub fn rate_limit_status(&self, limits: &UsageLimits, now: Duration) -> RateLimitStatus {
        RateLimitStatus {
            requests: limits.requests.map(|limit| self.requests.status(limit, now)),
            tokens: limits.tokens.map(|limit| self.tokens.status(limit, now)),
        }
    }

    /// Returns the debt in tokens; 0 without a limit of tokens per minute.
    #[must_use]
    pub fn token_debt(&self, limits: &UsageLimits, now: Duration) -> u64 {
        limits.tokens.map_or(0, |limit| self.tokens.debt(limit, now))
    }

    /// Returns the micro-credits spent in the current day and month.
    #[must_use]
    pub const fn spend_totals(&self) -> &SpendTotals {
        &self.spend
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.working
    }

    /// Returns the number of requests admitted since the meter was created, without lines of batches.
    #[must_use]
    pub const fn admitted_count(&self) -> u64 {
        self.passed
    }
}
