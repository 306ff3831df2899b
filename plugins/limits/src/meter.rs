//! Usage of one key or account: a request passes all limits or changes none.

use crate::bucket::{Bucket, Gauge, Wait};
use crate::outputs::Outputs;
use crate::spend::{Period, Spend};
use penstock_contract::MicroCredits;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Limits of a key or account. `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute.
    pub requests: Option<NonZeroU64>,
    /// Tokens per minute, input and output together.
    pub tokens: Option<NonZeroU64>,
    /// Requests in flight.
    pub concurrent: Option<NonZeroU32>,
    /// Micro-credits per day.
    pub day: Option<NonZeroU64>,
    /// Micro-credits per month.
    pub month: Option<NonZeroU64>,
}

/// Kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Requests in flight.
    Concurrent,
    /// Money budget of a day or a month.
    Budget(Period),
}

impl Limit {
    /// Name in errors, lists and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_minute",
            Self::Tokens => "tokens_per_minute",
            Self::Concurrent => "concurrent",
            Self::Budget(Period::Day) => "budget_per_day",
            Self::Budget(Period::Month) => "budget_per_month",
        }
    }
}

/// Class of work, which determines the limits that apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Request of a waiting client: all limits apply.
    #[default]
    Request,
    /// Line of a batch: only the budgets apply.
    BatchLine,
}

/// Maximum usage of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Tokens of the prompt, as far as known.
    pub input: u64,
    /// Tokens of the answer: the maximum, or an estimate.
    pub output: u64,
    /// Cost of both in micro-credits.
    pub money: MicroCredits,
}

/// Actual usage of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Charged micro-credits.
    pub money: MicroCredits,
}

/// Reservation of one request; passed to [`Meter::settle`] or [`Meter::void`] exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a reservation must be settled or voided"]
pub struct Held {
    tokens: Option<u64>,
    money: u64,
    seat: bool,
}

/// Provisional charge of a request whose maximum usage is not known yet; passed to [`Meter::leave`] exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a provisional charge must be released"]
pub struct Entered {
    request: bool,
    seat: bool,
}

/// Exceeded limit with the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Kind of the limit.
    pub limit: Limit,
    /// Value of the limit: requests, tokens or micro-credits.
    pub most: u64,
    /// Time until the same request would pass.
    pub wait: Wait,
}

/// Status of the limits per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Requests per minute.
    pub requests: Option<Gauge>,
    /// Tokens per minute.
    pub tokens: Option<Gauge>,
}

impl Standing {
    /// Combines two statuses: of each limit, the one with less remaining.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        let of = |a: Option<Gauge>, b: Option<Gauge>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.remaining < a.remaining { b } else { a }),
            (a, b) => a.or(b),
        };
        Self { requests: of(self.requests, other.requests), tokens: of(self.tokens, other.tokens) }
    }
}

/// Tokens taken from the bucket for a request: at most the capacity of the bucket.
fn tokens(limit: NonZeroU64, cost: &Cost) -> u64 {
    cost.input.saturating_add(cost.output).clamp(1, limit.get())
}

/// Converts a charge or an estimate to micro-credits; negative amounts become zero.
fn micro(money: MicroCredits) -> u64 {
    u64::try_from(money.0).unwrap_or(0)
}

/// Usage of one set of limits. The limits are an argument of every call: changes take effect at once, and recorded
/// usage stays.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    requests: Bucket,
    tokens: Bucket,
    spend: Spend,
    /// Micro-credits reserved for work that is not settled.
    held: u64,
    working: u32,
    /// Number of admitted requests.
    passed: u64,
    outputs: Option<Box<Outputs>>,
}

impl Meter {
    /// Returns a meter that continues from stored spending.
    #[must_use]
    pub fn restored(spend: Spend) -> Self {
        Self { spend, ..Self::default() }
    }

    /// Checks whether a request would pass.
    ///
    /// A request passes a full bucket if its prompt and longest answer together exceed the tokens per minute, and the
    /// excess becomes debt. A request whose prompt alone exceeds them never passes.
    ///
    /// # Errors
    /// Returns the exceeded limit with the longest wait.
    pub fn check(&self, limits: &Limits, cost: &Cost, work: Work, now: Duration) -> Result<(), Denied> {
        let mut worst = self.over_budget(limits, cost, now);
        let mut add = |limit, most, wait: Option<Wait>| {
            if let Some(wait) = wait.filter(|wait| worst.is_none_or(|worst| worst.wait < *wait)) {
                worst = Some(Denied { limit, most, wait });
            }
        };
        if work == Work::Request {
            if let Some(most) = limits.requests {
                add(Limit::Requests, most.get(), self.requests.wait(most, 1, now));
            }
            if let Some(most) = limits.tokens {
                let wait = if cost.input > most.get() {
                    Some(Wait::Never)
                } else {
                    self.tokens.wait(most, tokens(most, cost), now)
                };
                add(Limit::Tokens, most.get(), wait);
            }
            if let Some(most) = limits.concurrent {
                let full = self.working >= most.get();
                add(Limit::Concurrent, most.get().into(), full.then_some(Wait::Seat));
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// Returns the exceeded budget with the longest wait.
    fn over_budget(&self, limits: &Limits, cost: &Cost, now: Duration) -> Option<Denied> {
        let money = micro(cost.money);
        let budgets = [(Period::Day, limits.day), (Period::Month, limits.month)];
        let over = budgets.into_iter().filter_map(|(period, budget)| {
            let budget = budget?.get();
            // A request without cost is refused too once the budget is spent.
            let spent = self.spend.within(period, now).saturating_add(money.max(1));
            if spent.saturating_add(self.held) <= budget {
                return None;
            }
            let wait = if money > budget {
                Wait::Never
            } else if spent <= budget {
                // The final cost may be lower than the reservation, so the wait ends with another request.
                Wait::Seat
            } else {
                Wait::For(period.end(now).saturating_sub(now))
            };
            Some(Denied { limit: Limit::Budget(period), most: budget, wait })
        });
        over.max_by_key(|denied| denied.wait)
    }

    /// Takes a request count and a permit for a request whose cost is not known yet, so that concurrent requests stay
    /// within the limits meanwhile; the caller has checked [`Meter::check`] at zero cost.
    pub fn enter(&mut self, limits: &Limits, work: Work, now: Duration) -> Entered {
        if work == Work::BatchLine {
            return Entered { request: false, seat: false };
        }
        if let Some(limit) = limits.requests {
            self.requests.take(limit, 1, now);
        }
        self.working = self.working.saturating_add(1);
        Entered { request: limits.requests.is_some(), seat: true }
    }

    /// Releases a provisional charge, before [`Meter::take`] or if the request was refused.
    pub fn leave(&mut self, entered: Entered, limits: &Limits, now: Duration) {
        if let Some(limit) = limits.requests.filter(|_| entered.request) {
            self.requests.settle(limit, 1, 0, now);
        }
        self.working = self.working.saturating_sub(u32::from(entered.seat));
    }

    /// Reserves the maximum usage of a request from every limit; the caller has checked [`Meter::check`].
    pub fn take(&mut self, limits: &Limits, cost: &Cost, work: Work, now: Duration) -> Held {
        let money = micro(cost.money);
        self.held = self.held.saturating_add(money);
        if work == Work::BatchLine {
            return Held { tokens: None, money, seat: false };
        }
        if let Some(limit) = limits.requests {
            self.requests.take(limit, 1, now);
        }
        let tokens = limits.tokens.map(|limit| {
            let amount = tokens(limit, cost);
            self.tokens.take(limit, amount, now);
            amount
        });
        self.working = self.working.saturating_add(1);
        self.passed = self.passed.saturating_add(1);
        Held { tokens, money, seat: true }
    }

    /// Settles a reservation: replaces the reserved by the actual usage.
    pub fn settle(&mut self, held: Held, limits: &Limits, used: &Used, now: Duration) {
        self.give_back(&held, limits, used.input.saturating_add(used.output), now);
        self.spend.add(micro(used.money), now);
    }

    /// Records the length of an answer, for requests without a cap.
    pub fn observe(&mut self, output: u64) {
        self.outputs.get_or_insert_default().observe(output);
    }

    /// Voids a reservation: only the request itself counts as used.
    pub fn void(&mut self, held: Held, limits: &Limits, now: Duration) {
        self.give_back(&held, limits, 0, now);
    }

    fn give_back(&mut self, held: &Held, limits: &Limits, tokens: u64, now: Duration) {
        if let (Some(limit), Some(taken)) = (limits.tokens, held.tokens) {
            self.tokens.settle(limit, taken, tokens, now);
        }
        self.held = self.held.saturating_sub(held.money);
        self.working = self.working.saturating_sub(u32::from(held.seat));
    }

    /// Expected tokens of an answer without a cap: the 90th percentile of the key's own answers.
    #[must_use]
    pub fn usual_output(&self) -> u64 {
        self.outputs.as_ref().map_or_else(|| Outputs::default().p90(), |outputs| outputs.p90())
    }

    /// Status of the limits per minute.
    #[must_use]
    pub fn standing(&self, limits: &Limits, now: Duration) -> Standing {
        Standing {
            requests: limits.requests.map(|limit| self.requests.gauge(limit, now)),
            tokens: limits.tokens.map(|limit| self.tokens.gauge(limit, now)),
        }
    }

    /// Debt of the tokens per minute.
    #[must_use]
    pub fn debt(&self, limits: &Limits, now: Duration) -> u64 {
        limits.tokens.map_or(0, |limit| self.tokens.debt(limit, now))
    }

    /// Micro-credits spent in the current day and month.
    #[must_use]
    pub const fn spend(&self) -> &Spend {
        &self.spend
    }

    /// Number of requests in flight.
    #[must_use]
    pub const fn working(&self) -> u32 {
        self.working
    }

    /// Number of requests admitted since the meter was created.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }
}
