//! Amounts in API requests and responses: exact decimals, and JSON numbers.

use penstock_core::{MicroCredits, NanoKwh};
use penstock_ledger::{AccountWallets, Wallet, WalletBalance};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::{Number, Value, json};

/// Converts a decimal to a JSON number, with the precision of a 64-bit float.
#[must_use]
pub fn json_number(decimal: Decimal) -> Value {
    decimal.to_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// Converts an amount of a wallet to credits or kWh.
#[must_use]
pub fn amount_to_decimal(wallet: Wallet, amount: i64) -> Decimal {
    let exact = match wallet {
        Wallet::Credits => MicroCredits(amount).credits(),
        Wallet::Energy => NanoKwh(amount).kwh(),
    };
    exact.normalize()
}

/// Converts credits or kWh to an amount in the unit of the wallet. Returns `None` if the number has too many decimal
/// places or overflows.
#[must_use]
pub fn decimal_to_amount(wallet: Wallet, decimal: Decimal) -> Option<i64> {
    let decimal_places = match wallet {
        Wallet::Credits => 6,
        Wallet::Energy => 9,
    };
    let scaled = decimal.checked_mul(Decimal::from(10_i64.pow(decimal_places)))?;
    scaled.is_integer().then(|| scaled.to_i64())?
}

/// Returns the balances of an account as JSON.
#[must_use]
pub fn balances_to_json(name: &str, account: &AccountWallets) -> Value {
    let one = |wallet: Wallet| {
        let WalletBalance { amount, held } = *account.wallet(wallet);
        json!({
            "balance": json_number(amount_to_decimal(wallet, amount)),
            "reserved": json_number(amount_to_decimal(wallet, held)),
            "available": json_number(amount_to_decimal(wallet, amount.saturating_sub(held))),
        })
    };
    json!({ "account": name, "credits": one(Wallet::Credits), "energy_kwh": one(Wallet::Energy) })
}
