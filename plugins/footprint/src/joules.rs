//! Conversion of work into joules of GPU energy, and of joules into rounded kilowatt-hours.

use crate::constants::{
    ATTENTION_DOUBLING_TOKENS, CACHED_TOKEN_ENERGY_SHARE, JOULES_PER_KWH, MAX_USAGE_COUNT,
    REFERENCE_IMAGE_PIXELS, THROUGHPUT_TIER_FACTOR,
};
use crate::energy_profile::EnergyCoefficients;
use penstock_core::TokenUsage;
use penstock_core::WorkDone;
use rust_decimal::Decimal;
use std::time::Duration;

/// Returns the joules of GPU energy. `None` if the coefficients are for another kind of work. For encoders, the factor
/// for the length `L` of the prompt is 1; φ is 1 outside of the throughput tier.
///
/// ```text
/// e_in·(n_in − n_cached)·(1 + L/100000) + 0.1·e_in·n_cached + φ·e_out·n_out
/// j_image · n · steps/steps_ref · pixels/1048576
/// j_audio · seconds
/// ```
pub(crate) fn gpu_joules(
    coefficients: &EnergyCoefficients,
    done: &WorkDone,
    throughput_tier: bool,
) -> Option<Decimal> {
    match (coefficients, done) {
        (EnergyCoefficients::Tokens { input, output, context }, WorkDone::Tokens(usage)) => {
            let read = input.saturating_mul(weighted_input(usage, *context));
            let mut written = output.saturating_mul(Decimal::from(usage.output.min(MAX_USAGE_COUNT)));
            if throughput_tier {
                written = written.saturating_mul(THROUGHPUT_TIER_FACTOR);
            }
            Some(read.saturating_add(written))
        }
        (EnergyCoefficients::Images { each, steps }, WorkDone::Images { count, steps: taken, pixels }) => {
            Some(images(*each, *count, steps.zip(*taken), *pixels))
        }
        (EnergyCoefficients::Audio { second }, WorkDone::Audio { seconds }) => {
            Some(second.saturating_mul((*seconds).clamp(Decimal::ZERO, Decimal::from(MAX_USAGE_COUNT))))
        }
        _ => None,
    }
}

/// Returns the input tokens, weighted in units of an uncached token at the start of a prompt: `(n − c)·(1 + L/100000) +
/// c/10`, exactly, with the mean length `L` of the prompts. Without `context`, the factor `1 + L/100000` is 1.
fn weighted_input(usage: &TokenUsage, context: bool) -> Decimal {
    let read = usage.input.min(MAX_USAGE_COUNT);
    let cached = usage.cached.min(read);
    let fresh = i128::from(read - cached);
    let longer = if context { i128::from(usage.prompt_length().min(read)) } else { 0 };
    let whole = fresh * (i128::from(ATTENTION_DOUBLING_TOKENS) + longer);
    let whole = Decimal::try_from_i128_with_scale(whole, 5).unwrap_or(Decimal::MAX);
    if cached == 0 {
        return whole;
    }
    whole.saturating_add(CACHED_TOKEN_ENERGY_SHARE.saturating_mul(Decimal::from(cached)))
}

/// Returns the joules of images. `steps` is a pair: the number of steps to which `each` refers, and the number of steps
/// that were run; `None` if one of them is unknown, so that steps have no influence. Unknown pixels are one mebipixel.
fn images(each: Decimal, count: u32, steps: Option<(u32, u32)>, pixels: Option<u64>) -> Decimal {
    let all = each.saturating_mul(Decimal::from(count));
    let (reference, taken) = steps.unwrap_or((1, 1));
    let pixels = pixels.unwrap_or(REFERENCE_IMAGE_PIXELS).min(MAX_USAGE_COUNT);
    let scaled = all.saturating_mul(Decimal::from(taken)).saturating_mul(Decimal::from(pixels));
    let of = Decimal::from(reference.max(1)).saturating_mul(Decimal::from(REFERENCE_IMAGE_PIXELS));
    scaled.checked_div(of).unwrap_or(Decimal::MAX)
}

/// Returns a duration in seconds with six decimal places, at most [`MAX_USAGE_COUNT`].
pub(crate) fn decimal_seconds(took: Duration) -> Decimal {
    let micros = i128::try_from(took.as_micros()).unwrap_or(i128::MAX);
    Decimal::try_from_i128_with_scale(micros, 6)
        .unwrap_or(Decimal::from(MAX_USAGE_COUNT))
        .min(Decimal::from(MAX_USAGE_COUNT))
}

/// Converts joules (or joules times something per kWh) by a division by 3 600 000, and rounds half-even to
/// `decimal_places`, in one exact step.
pub(crate) fn joules_to_kwh(joules: Decimal, decimal_places: u32) -> Decimal {
    divide_rounded(joules, JOULES_PER_KWH, decimal_places)
}

/// Returns `number / divisor`, half-even to `decimal_places`. A negative number counts as zero; an overflow gives the
/// greatest `Decimal` of that scale.
pub(crate) fn divide_rounded(number: Decimal, divisor: u32, decimal_places: u32) -> Decimal {
    let mantissa = u128::try_from(number.mantissa()).unwrap_or(0);
    let scale = number.scale();
    let over = mantissa.saturating_mul(power_of_ten(decimal_places.saturating_sub(scale)));
    let under = u128::from(divisor.max(1)).saturating_mul(power_of_ten(scale.saturating_sub(decimal_places)));
    let (whole, rest) = quotient(over, under);
    let more = match (rest << 1).cmp(&under) {
        std::cmp::Ordering::Greater => 1,
        std::cmp::Ordering::Equal => whole & 1,
        std::cmp::Ordering::Less => 0,
    };
    let whole = i128::try_from(whole.saturating_add(more)).unwrap_or(i128::MAX);
    Decimal::try_from_i128_with_scale(whole, decimal_places).unwrap_or_else(|_| max_decimal(decimal_places))
}

/// Powers of ten from 10^0 to 10^28, for every scale that a `Decimal` can have.
const TENS: [u128; 29] = {
    let mut tens = [1; 29];
    let mut power = 1;
    while power < 29 {
        #[allow(clippy::indexing_slicing, reason = "in a constant: the compiler sees the bounds")]
        {
            tens[power] = tens[power - 1] * 10;
        }
        power += 1;
    }
    tens
};

fn power_of_ten(power: u32) -> u128 {
    TENS.get(power as usize).copied().unwrap_or(u128::MAX)
}

/// Returns the quotient and the remainder of a division. Numbers that fit in 64 bits are divided several times faster.
fn quotient(over: u128, under: u128) -> (u128, u128) {
    match (u64::try_from(over), u64::try_from(under)) {
        (Ok(over), Ok(under)) => (u128::from(over / under), u128::from(over % under)),
        _ => (over / under, over % under),
    }
}

fn max_decimal(decimal_places: u32) -> Decimal {
    let all = u32::MAX;
    Decimal::from_parts(all, all, all, false, decimal_places.min(Decimal::MAX_SCALE))
}
