//! `[billing]` and `[ledger]` as written in a configuration.

use super::{Exact, Pause, Size, Span, mib};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Prices and credit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Billing {
    /// Price of one credit in EUR.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eur_per_credit: Exact,
    /// Price of one kilowatt-hour in EUR if model and offer have none: the price of models billed by energy, and for
    /// all others the value of the energy in `billing_cost`.
    pub eur_per_kwh: Exact,
    /// Spending limit of accounts: `prepaid` for the granted amount, then 402; `unlimited` for none, to be invoiced
    /// afterwards. Charges are recorded in both cases.
    pub credit: Credit,
    /// Output tokens to reserve for a request without `max_tokens`; the charge is for the tokens that it used.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub reserve_output_tokens: u32,
}

/// Spending limit of accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Credit {
    #[default]
    Unlimited,
    Prepaid,
}

/// Recording of charges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Ledger {
    /// Time for which a charge waits for others, so that they share one write to the disk. A write starts earlier if
    /// 4,096 entries wait, and at most 5 ms after an answer or a batch line starts to wait for its charge.
    pub window: Pause,
    /// Durability of an answer. `behind`: it does not wait for its charge to be on the disk; a crash loses at most the
    /// charges of the last `window` and the write after it. `answer`: its last bytes wait for the charge.
    pub sync: Sync,
    /// Maximum amount of unwritten charges in EUR while the store accepts none; until then requests are served from
    /// memory.
    pub debt: Exact,
    /// Maximum memory for unwritten charges; beyond it requests are refused.
    pub backlog: Size,
    /// Time after which an unfinished write counts as a failure of the store.
    pub slow: Span,
    /// Maximum time by which the last entry may be ahead of the clock; beyond it the gateway does not start.
    pub ahead: Span,
}

/// Durability of an answer.
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
