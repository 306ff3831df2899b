//! One key's or one account's use of its limits: an ask meets all of them or takes from none.

use crate::bucket::{Bucket, Gauge, Wait};
use crate::outputs::Outputs;
use crate::spend::{Period, Spend};
use penstock_contract::MicroCredits;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// What may be used up. `None` is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per minute.
    pub requests: Option<NonZeroU64>,
    /// Tokens per minute, input and output together.
    pub tokens: Option<NonZeroU64>,
    /// Requests at the same time.
    pub concurrent: Option<NonZeroU32>,
    /// Micro-credits per day.
    pub day: Option<NonZeroU64>,
    /// Micro-credits per month.
    pub month: Option<NonZeroU64>,
}

/// A limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Requests at the same time.
    Concurrent,
    /// The money budget of a day or a month.
    Budget(Period),
}

impl Limit {
    /// Its name in refusals, lists and metrics.
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

/// Which limits a piece of work meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// A request whose client waits for the answer: all limits.
    #[default]
    Request,
    /// A line of a batch: the budgets alone.
    BatchLine,
}

/// What an ask may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Tokens of the prompt, as far as known.
    pub input: u64,
    /// Tokens of the answer, at most or as usual.
    pub output: u64,
    /// Micro-credits for both.
    pub money: MicroCredits,
}

/// What an ask did use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Micro-credits that were charged.
    pub money: MicroCredits,
}

/// What was taken for an ask; goes back into [`Meter::settle`] or [`Meter::void`], once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is held has to be settled or voided"]
pub struct Held {
    tokens: Option<u64>,
    money: u64,
    seat: bool,
}

/// What a request takes by coming, before it is known what it may use; goes back into [`Meter::leave`], once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "who has come in has to leave"]
pub struct Entered {
    request: bool,
    seat: bool,
}

/// The limit that is longest in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Which one.
    pub limit: Limit,
    /// What it is: requests, tokens or micro-credits.
    pub most: u64,
    /// Until the same ask would pass.
    pub wait: Wait,
}

/// How the limits per minute stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Requests.
    pub requests: Option<Gauge>,
    /// Tokens.
    pub tokens: Option<Gauge>,
}

impl Standing {
    /// Of each limit the one of which less is left.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        let of = |a: Option<Gauge>, b: Option<Gauge>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.remaining < a.remaining { b } else { a }),
            (a, b) => a.or(b),
        };
        Self { requests: of(self.requests, other.requests), tokens: of(self.tokens, other.tokens) }
    }
}

/// What is taken of a minute's tokens for an ask: never more than there is in a full bucket.
fn tokens(limit: NonZeroU64, cost: &Cost) -> u64 {
    cost.input.saturating_add(cost.output).clamp(1, limit.get())
}

/// A charge or an estimate; neither is ever below zero.
fn micro(money: MicroCredits) -> u64 {
    u64::try_from(money.0).unwrap_or(0)
}

/// The use of one set of limits. The limits are an argument of every call:
/// changed ones count at once, and what was used stays used.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    requests: Bucket,
    tokens: Bucket,
    spend: Spend,
    /// Micro-credits held for work that is not settled.
    held: u64,
    working: u32,
    /// Requests that were let through.
    passed: u64,
    outputs: Option<Box<Outputs>>,
}

impl Meter {
    /// A meter that goes on from what was spent before.
    #[must_use]
    pub fn restored(spend: Spend) -> Self {
        Self { spend, ..Self::default() }
    }

    /// Whether an ask would pass.
    ///
    /// One whose prompt and longest answer are over the tokens of a minute
    /// passes when the bucket is full, and its over-use becomes debt; one whose
    /// prompt alone is over them never passes.
    ///
    /// # Errors
    /// Of the limits that are in the way the one that is so for longest.
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

    /// The budget that does not cover so much more.
    fn over_budget(&self, limits: &Limits, cost: &Cost, now: Duration) -> Option<Denied> {
        let money = micro(cost.money);
        let budgets = [(Period::Day, limits.day), (Period::Month, limits.month)];
        let over = budgets.into_iter().filter_map(|(period, budget)| {
            let budget = budget?.get();
            // An ask that costs nothing is no reason to let work through once all is spent.
            let spent = self.spend.within(period, now).saturating_add(money.max(1));
            if spent.saturating_add(self.held) <= budget {
                return None;
            }
            let wait = if money > budget {
                Wait::Never
            } else if spent <= budget {
                // It may come to less than is held for it, so nobody knows more than that it ends.
                Wait::Seat
            } else {
                Wait::For(period.end(now).saturating_sub(now))
            };
            Some(Denied { limit: Limit::Budget(period), most: budget, wait })
        });
        over.max_by_key(|denied| denied.wait)
    }

    /// Takes a request and a seat for an ask that is still to be looked at, so that no others are looked at beyond the
    /// limits meanwhile; for asks that pass [`Meter::check`] at no cost.
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

    /// It has been looked at: all that it took by coming is there again, for [`Meter::take`] or for others.
    pub fn leave(&mut self, entered: Entered, limits: &Limits, now: Duration) {
        if let Some(limit) = limits.requests.filter(|_| entered.request) {
            self.requests.settle(limit, 1, 0, now);
        }
        self.working = self.working.saturating_sub(u32::from(entered.seat));
    }

    /// Takes what an ask may use from every limit; for asks that [`Meter::check`] lets through.
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

    /// The work is done: what it used counts, and no longer what it might have.
    pub fn settle(&mut self, held: Held, limits: &Limits, used: &Used, now: Duration) {
        self.give_back(&held, limits, used.input.saturating_add(used.output), now);
        self.spend.add(micro(used.money), now);
    }

    /// Remembers how long an answer was, for asks without a cap.
    pub fn observe(&mut self, output: u64) {
        self.outputs.get_or_insert_default().observe(output);
    }

    /// The work came to nothing: nothing was used but the request itself.
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

    /// What an answer without a cap will probably have, in tokens: the key's own ninetieth percentile.
    #[must_use]
    pub fn usual_output(&self) -> u64 {
        self.outputs.as_ref().map_or_else(|| Outputs::default().p90(), |outputs| outputs.p90())
    }

    /// How the limits per minute stand.
    #[must_use]
    pub fn standing(&self, limits: &Limits, now: Duration) -> Standing {
        Standing {
            requests: limits.requests.map(|limit| self.requests.gauge(limit, now)),
            tokens: limits.tokens.map(|limit| self.tokens.gauge(limit, now)),
        }
    }

    /// What is owed of the tokens per minute.
    #[must_use]
    pub fn debt(&self, limits: &Limits, now: Duration) -> u64 {
        limits.tokens.map_or(0, |limit| self.tokens.debt(limit, now))
    }

    /// Micro-credits spent in the running day and month.
    #[must_use]
    pub const fn spend(&self) -> &Spend {
        &self.spend
    }

    /// Requests at work.
    #[must_use]
    pub const fn working(&self) -> u32 {
        self.working
    }

    /// Requests that were let through since the meter was made.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }
}
