//! `[billing]` and `[ledger]` as users write them.

use super::{Exact, Pause, Size, Span, mib};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Money.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Billing {
    /// Price of one credit in EUR.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eur_per_credit: Exact,
    /// Price of a kilowatt-hour in EUR where model and offer name none: what models billed by energy cost, and
    /// what the energy in `billing_cost` is worth for all others.
    pub eur_per_kwh: Exact,
    /// What accounts may spend: `prepaid` up to what they were granted, then 402; `unlimited` without a bound, to
    /// be invoiced afterwards. Charges are written down either way.
    pub credit: Credit,
    /// Output tokens that are set aside for a request without `max_tokens`; what it used is settled exactly.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub reserve_output_tokens: u32,
}

/// What an account may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Credit {
    #[default]
    Unlimited,
    Prepaid,
}

/// How charges are written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Ledger {
    /// How long a charge waits for others, so that one write to the disk serves them all: until 4,096
    /// entries wait, and at most 5 ms from when somebody waits for it: an answer, a line of a batch.
    pub window: Pause,
    /// `behind`: an answer ends without waiting for its charge to be on the disk; a crash forgets at most the
    /// charges of the last `window` and the write after it. `answer`: its last bytes wait for that.
    pub sync: Sync,
    /// While the store does not take charges, requests go on from memory until this many EUR are unwritten.
    pub debt: Exact,
    /// Memory for what is unwritten; beyond it requests are refused.
    pub backlog: Size,
    /// A write that takes longer means that the store fails.
    pub slow: Span,
    /// How far the last entry may be dated ahead of the clock; beyond it the gateway does not start.
    pub ahead: Span,
}

/// What an answer waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Sync {
    #[default]
    Behind,
    Answer,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            window: Pause(Duration::from_millis(200)),
            sync: Sync::Behind,
            debt: Exact(Decimal::ONE_HUNDRED),
            backlog: mib(64),
            slow: Span::seconds(1),
            ahead: Span::seconds(86_400),
        }
    }
}

impl Default for Billing {
    fn default() -> Self {
        Self {
            eur_per_credit: Exact(Decimal::new(1, 2)),
            eur_per_kwh: Exact(Decimal::new(2, 1)),
            credit: Credit::Unlimited,
            reserve_output_tokens: 4_096,
        }
    }
}
