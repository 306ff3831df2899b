//! The forms that single values are written in: durations, sizes, exact decimals. Each is read from its
//! literal text, so nothing passes through a float on the way.

use rust_decimal::Decimal;
use std::time::Duration;

const UNITS_OF_TIME: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
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
/// Nothing that is waited for is longer.
const LONGEST: u64 = 366 * 86_400_000;

/// `"250ms"`, `"2s"`, `"10m"`, `"1h"`, `"1d"`, `"0"`; sums such as `"1m30s"`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, factor) = UNITS_OF_TIME.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = tail;
    }
    (!text.is_empty() && total <= LONGEST).then(|| Duration::from_millis(total))
}

/// The shortest way to write a duration, in milliseconds or more.
pub fn write_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, factor) in UNITS_OF_TIME.iter().rev() {
        if rest >= *factor {
            text.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// `"32MiB"`, `"1GB"`, `"512B"`, or a plain number of bytes.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let factor = if unit.is_empty() {
        1
    } else {
        UNITS_OF_SIZE.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The shortest exact way to write a size.
pub fn write_size(bytes: u64) -> String {
    UNITS_OF_SIZE
        .iter()
        .take(4)
        .rev()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(|| format!("{bytes}B"), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// A decimal number of at most 28 digits, `1e-6` allowed, read digit by digit.
pub fn decimal(text: &str) -> Option<Decimal> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    let number = if plain.contains(['e', 'E']) {
        Decimal::from_scientific(plain).ok()?
    } else {
        Decimal::from_str_exact(plain).ok()?
    };
    Some(number.normalize())
}
