//! Rounding of a charge: exact division, half-even.

use rust_decimal::Decimal;
use std::cmp::Ordering;

/// Divides `number` by `divisor` in units of `10^-decimal_places`, half-even. Returns `None` if the result is negative
/// or over `i64`, if `divisor` is not positive, or if an intermediate product exceeds `u128`.
pub(crate) fn divide_rounded(number: Decimal, divisor: Decimal, decimal_places: u32) -> Option<i64> {
    let over = u128::try_from(number.mantissa()).ok()?;
    let under = u128::try_from(divisor.mantissa()).ok().filter(|under| *under > 0)?;
    // The quotient is over/10^a ÷ under/10^b · 10^decimal_places; the smaller power of ten cancels out.
    let (up, down) = (divisor.scale().checked_add(decimal_places)?, number.scale());
    let both = up.min(down);
    let over = over.checked_mul(power_of_ten(up - both)?)?;
    let Some(under) = power_of_ten(down - both).and_then(|ten| under.checked_mul(ten)) else {
        return Some(0);
    };
    let (whole, rest) = div_rem(over, under);
    let more = match rest.cmp(&(under - rest)) {
        Ordering::Greater => 1,
        Ordering::Equal => whole & 1,
        Ordering::Less => 0,
    };
    i64::try_from(whole.checked_add(more)?).ok()
}

/// Rounds a number to this many decimal places, half-even; a negative number becomes zero.
pub(crate) fn round_to_scale(number: Decimal, decimal_places: u32) -> Decimal {
    match divide_rounded(number, Decimal::ONE, decimal_places) {
        Some(units) => Decimal::new(units, decimal_places),
        None => number.max(Decimal::ZERO).round_dp(decimal_places),
    }
}

/// Powers of ten up to the largest one that fits a `u128`.
const POWERS_OF_TEN: [u128; 39] = {
    let mut tens = [1; 39];
    let mut power = 1;
    while power < 39 {
        #[allow(clippy::indexing_slicing, reason = "in a constant: the compiler sees the bounds")]
        {
            tens[power] = tens[power - 1] * 10;
        }
        power += 1;
    }
    tens
};

fn power_of_ten(power: u32) -> Option<u128> {
    POWERS_OF_TEN.get(power as usize).copied()
}

/// Returns the quotient and the remainder of a division. Numbers that fit in 64 bits are divided several times faster.
fn div_rem(over: u128, under: u128) -> (u128, u128) {
    match (u64::try_from(over), u64::try_from(under)) {
        (Ok(over), Ok(under)) => (u128::from(over / under), u128::from(over % under)),
        _ => (over / under, over % under),
    }
}
