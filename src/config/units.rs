//! Formats of single values: durations, sizes, exact decimals. They are parsed from their literal text, without
//! floating-point numbers.

use rust_decimal::Decimal;
use std::time::Duration;

/// Units of time, each with its number of nanoseconds.
const UNITS_OF_TIME: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const UNITS_OF_SIZE: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];
/// Maximum duration, in nanoseconds.
const MAX_NANOSECONDS: u128 = 366 * 86_400_000_000_000;
/// Maximum number of digits before and after the decimal point of a number in a duration.
const MAX_DIGITS: usize = 18;

/// Parses `"250ms"`, `"2.5s"`, `"10m"`, `"1h"`, `"1d"`, `"0"`, or sums such as `"1m30s"`, exactly. Returns `None` for
/// any other text, for fractions of a nanosecond and for durations of more than 366 days.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let total = total_nanoseconds(text).filter(|total| *total <= MAX_NANOSECONDS)?;
    // The total is at most 366 days in nanoseconds, which fits into 64 bits.
    Some(Duration::from_nanos(u64::try_from(total).unwrap_or(u64::MAX)))
}

/// Returns true for a duration of more than 366 days.
pub fn is_too_long_duration(text: &str) -> bool {
    total_nanoseconds(text).is_some_and(|total| total > MAX_NANOSECONDS)
}

/// Returns the nanoseconds of a duration of any length; `None` for any other text, and for fractions of a nanosecond.
fn total_nanoseconds(text: &str) -> Option<u128> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text;
    let mut total = 0u128;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, factor) = UNITS_OF_TIME.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(nanoseconds(number, *factor)?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Multiplies a number, which may have a fraction, by a factor. Returns `None` if the product is not an integer.
fn nanoseconds(number: &str, factor: u128) -> Option<u128> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some((whole, fraction)) => (whole, fraction.trim_end_matches('0')),
        None => (number, ""),
    };
    let plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !plain(fraction) || fraction.len() > MAX_DIGITS || whole.len() > MAX_DIGITS {
        return None;
    }
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(factor)?;
    product.is_multiple_of(scale).then(|| product / scale)
}

/// Formats a duration as a sum of units, such as `1m30s`, which [`parse_duration`] reads; a rest below a millisecond
/// becomes a fraction in `ms`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, factor) in UNITS_OF_TIME.iter().rev() {
        if rest >= *factor {
            text.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if rest > 0 {
        text.push_str(format!("0.{rest:06}").trim_end_matches('0'));
        text.push_str("ms");
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// Parses `"32MiB"`, `"1GB"`, `"512B"`, or a plain number of bytes; the case of the unit is ignored. Returns `None` for
/// any other text, for a fraction, and for a size that exceeds 64 bits.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, factor) = split_size(text)?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns true for a size that exceeds 64 bits.
pub fn is_too_large_size(text: &str) -> bool {
    split_size(text).is_some() && parse_size(text).is_none()
}

/// Splits a size into its digits and the number of bytes of its unit; `None` for any other text.
fn split_size(text: &str) -> Option<(&str, u64)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let factor = if unit.is_empty() {
        1
    } else {
        UNITS_OF_SIZE.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1
    };
    (!number.is_empty()).then_some((number, factor))
}

/// Formats a size exactly, in the largest binary unit of which it is a multiple, such as `32MiB` or `1000B`.
pub fn format_size(bytes: u64) -> String {
    UNITS_OF_SIZE
        .iter()
        .take(4)
        .rev()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// Parses a decimal number of at most 28 digits, exactly; exponents such as `1e-6` are allowed. Returns `None` for any
/// other text.
pub fn parse_decimal(text: &str) -> Option<Decimal> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    let number = if plain.contains(['e', 'E']) {
        Decimal::from_scientific(plain).ok()?
    } else {
        Decimal::from_str_exact(plain).ok()?
    };
    Some(number.normalize())
}
