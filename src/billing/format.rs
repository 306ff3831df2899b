//! Amounts in API requests and responses: exact decimals, and JSON numbers.

use penstock_core::{MicroCredits, NanoKwh};
use penstock_ledger::{AccountWallets, Wallet, WalletBalance};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::{Number, Value, json};

/// Converts a decimal to a JSON number: the nearest 64-bit float. Its text has the digits of the decimal for up to 15
/// significant digits, and for up to 8,589,934,592 credits (2^33, six decimal places), 8,388,608 kWh (2^23, nine) and
/// 67,108,864 EUR (2^26, eight). Larger numbers may differ in the last place.
#[must_use]
pub fn json_number(decimal: Decimal) -> Value {
    // The conversion of `rust_decimal` rounds several times. The parser of the standard library rounds once.
    let nearest = decimal.to_string().parse::<f64>().ok();
    nearest.and_then(Number::from_f64).map_or(Value::Null, Value::Number)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Returns the decimal that the text of a JSON number has.
    fn written(decimal: Decimal) -> Decimal {
        let text = json_number(decimal).to_string();
        text.parse().or_else(|_| Decimal::from_scientific(&text)).unwrap()
    }

    #[test]
    fn a_large_number_is_the_nearest_float() {
        // The products of these numbers and a power of ten are over 2^53.
        for text in
            ["10000000007.123457", "9999999999.999999", "0.1234567890123456789", "0.3000000000000000001"]
        {
            let nearest: f64 = text.parse().unwrap();
            assert_eq!(json_number(text.parse().unwrap()), json!(nearest), "{text}");
        }
        assert_eq!(json_number(Decimal::new(10_000_000_007_123_457, 6)).to_string(), "10000000007.123457");
    }

    #[test]
    fn numbers_in_the_documented_range_are_exact() {
        let mut random = StdRng::seed_from_u64(1);
        for (whole, scale) in [(1_i64 << 33, 6), (1 << 23, 9), (1 << 26, 8)] {
            let most = whole * 10_i64.pow(scale);
            for _ in 0..20_000 {
                let large = most - random.random_range(0..1_000_000);
                for amount in [random.random_range(-most..=most), large, -large] {
                    let exact = Decimal::new(amount, scale);
                    assert_eq!(written(exact), exact);
                }
            }
        }
    }
}
