//! `[billing]` and `[ledger]` as written in a configuration.

use super::{ByteSize, DurationOrZero, ExactDecimal, NonZeroDuration, mib};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Prices and credit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct BillingConfig {
    /// Price of one credit in EUR.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eur_per_credit: ExactDecimal,
    /// Price of one kilowatt-hour in EUR if model and offer have none: the price of models billed by energy, and for
    /// all others the value of the energy in `billing_cost`.
    pub eur_per_kwh: ExactDecimal,
    /// Spending limit of accounts: `prepaid` allows the granted amount, then requests are refused with 402; `unlimited`
    /// has no limit and is invoiced afterwards. Charges are recorded in both cases.
    pub credit: CreditPolicy,
    /// Output tokens to reserve for a request without `max_tokens`; only the tokens that it used are charged.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub reserve_output_tokens: u32,
}

/// Spending limit of accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum CreditPolicy {
    #[default]
    Unlimited,
    Prepaid,
}

/// Recording of charges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct LedgerConfig {
    /// Time for which a charge waits for others, so that they share one write to the disk. A write starts earlier if
    /// 4,096 entries wait, and at most 5 ms after an answer or a batch line starts to wait for its charge.
    pub window: DurationOrZero,
    /// Durability of an answer. `behind`: it does not wait for its charge to be on the disk; a crash loses at most the
    /// charges of the last `window` and the write after it. `answer`: its last bytes wait for the charge.
    pub sync: LedgerSync,
    /// Maximum amount of unwritten charges, in EUR, while the store accepts none; beyond it requests are refused with
    /// 503.
    pub debt: ExactDecimal,
    /// Maximum memory for unwritten charges; beyond it requests are refused with 503.
    pub backlog: ByteSize,
    /// Time after which an unfinished write counts as a failure of the store. An answer waits for its charge at most
    /// twice as long.
    pub slow: NonZeroDuration,
    /// Maximum time by which the last entry of the ledger may be ahead of the clock; beyond it the gateway does not
    /// start.
    pub ahead: NonZeroDuration,
}

/// Durability of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum LedgerSync {
    #[default]
    Behind,
    Answer,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            window: DurationOrZero(Duration::from_millis(200)),
            sync: LedgerSync::Behind,
            debt: ExactDecimal(Decimal::ONE_HUNDRED),
            backlog: mib(64),
            slow: NonZeroDuration::from_secs(1),
            ahead: NonZeroDuration::from_secs(86_400),
        }
    }
}

impl Default for BillingConfig {
    fn default() -> Self {
        Self {
            eur_per_credit: ExactDecimal(Decimal::new(1, 2)),
            eur_per_kwh: ExactDecimal(Decimal::new(2, 1)),
            credit: CreditPolicy::Unlimited,
            reserve_output_tokens: 4_096,
        }
    }
}
