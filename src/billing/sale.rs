//! Billed work and amounts, for charges and for the check of a tariff.

use penstock_core::{TokenUsage, WorkDone};
use penstock_pricing::BilledWork;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

/// Converts EUR to units of 1e-8 EUR, in which the ledger limits unwritten amounts. Rounds up.
#[must_use]
pub fn eur_to_hundred_millionths(eur: Decimal) -> i64 {
    eur.saturating_mul(Decimal::ONE_HUNDRED)
        .saturating_mul(Decimal::from(1_000_000))
        .ceil()
        .to_i64()
        .unwrap_or(i64::MAX)
}

/// Converts the work of a request to the quantity that is billed; unknown work is billed as no tokens.
pub fn billed_work(done: &WorkDone) -> BilledWork {
    match done {
        WorkDone::Tokens(usage) => BilledWork::Tokens(*usage),
        WorkDone::Images { count, .. } => BilledWork::Images(*count),
        WorkDone::Audio { seconds } => BilledWork::Audio(*seconds),
        WorkDone::Unknown => BilledWork::Tokens(TokenUsage::default()),
    }
}
