//! Formats of numbers and times for people: numbers have three significant digits, or all digits before the decimal
//! point, and a unit. Exact values are shown on hover.

use crate::language::Language;
use crate::text::Text;
use penstock_core::calendar::format_rfc3339;
use serde_json::Value;
use std::borrow::Cow;

/// Significant digits of a rounded number.
const DIGITS: i32 = 3;

/// Maximum number of significant digits of an exact number that has decimals.
const EXACT_DIGITS: f64 = 12.0;

/// Formats a number with three significant digits, or as a whole number from 100 on, with thousands separated by narrow
/// spaces; a dash if it is not finite.
#[must_use]
pub fn format_significant(number: f64) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    let magnitude = number.abs().log10().floor();
    let decimal_places = (f64::from(DIGITS) - 1.0 - magnitude).clamp(0.0, 12.0);
    // `decimal_places` is between 0 and 12, as checked above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
    let text = format!("{number:.*}", decimal_places as usize);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole = group_thousands(whole);
    if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") }
}

/// Separates the digits of a whole number into groups of three, with narrow spaces.
pub(crate) fn group_thousands(whole: &str) -> String {
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Formats an amount with its unit. Kilowatt-hours, grams, litres and numbers without a unit get the prefix that
/// leaves few digits before the decimal point: `1.25 MWh` for 1 250 kWh. Numbers without a unit have a prefix from 10
/// 000 on.
#[must_use]
pub fn format_quantity(number: f64, unit: &'static str) -> String {
    let (text, name) = quantity_parts(number, unit);
    if name.is_empty() { text } else { format!("{text}\u{202f}{name}") }
}

/// Returns the number and the unit of a quantity, with the prefix of [`format_quantity`].
pub(crate) fn quantity_parts(number: f64, unit: &'static str) -> (String, &'static str) {
    let (scale, name) = unit_scale(number, unit);
    (format_significant(number / scale), name)
}

/// Returns the divisor of a number and its unit with the prefix of [`format_quantity`].
pub(crate) fn unit_scale(number: f64, unit: &'static str) -> (f64, &'static str) {
    let scales: &[(f64, &'static str)] = match unit {
        "kWh" => &[(1e6, "GWh"), (1e3, "MWh"), (1.0, "kWh"), (1e-3, "Wh")],
        "g" => &[(1e6, "t"), (1e3, "kg"), (1.0, "g"), (1e-3, "mg")],
        "g CO₂e" => &[(1e6, "t CO₂e"), (1e3, "kg CO₂e"), (1.0, "g CO₂e"), (1e-3, "mg CO₂e")],
        "g CO₂e/EUR" => &[(1e3, "kg CO₂e/EUR"), (1.0, "g CO₂e/EUR"), (1e-3, "mg CO₂e/EUR")],
        "l" => &[(1e3, "m³"), (1.0, "l"), (1e-3, "ml")],
        "" => &[(1e9, "G"), (1e6, "M"), (1e4, "k"), (1.0, "")],
        _ => &[(1.0, "")],
    };
    let scale = scales.iter().find(|(scale, _)| number.abs() >= *scale).or_else(|| {
        scales.last().filter(|_| number != 0.0).or_else(|| scales.iter().find(|(scale, _)| *scale == 1.0))
    });
    let Some((scale, name)) = scale else { return (1.0, "") };
    let scale = if unit.is_empty() && *name == "k" { 1e3 } else { *scale };
    let name = if name.is_empty() { if scales.len() == 1 { unit } else { "" } } else { name };
    (scale, name)
}

/// Formats a number with its first twelve significant digits, or with all digits before the decimal point if these
/// are more. Further digits of a sum are rounding errors of binary floating point.
#[must_use]
pub(crate) fn format_exact(number: f64) -> String {
    if !number.is_finite() || number == 0.0 {
        return format_significant(number);
    }
    let decimal_places = (EXACT_DIGITS - 1.0 - number.abs().log10().floor()).clamp(0.0, 24.0);
    // `decimal_places` is between 0 and 24, as checked above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
    let text = format!("{number:.*}", decimal_places as usize);
    match text.split_once('.') {
        Some((whole, fraction)) => match fraction.trim_end_matches('0') {
            "" => whole.to_owned(),
            fraction => format!("{whole}.{fraction}"),
        },
        None => text,
    }
}

/// Formats an RFC 3339 time, such as `2026-11-30T12:00:00Z`, in the style of the language. Returns a text in another
/// format unchanged.
pub(crate) fn localize_timestamp(text: &str, language: Language) -> Cow<'_, str> {
    let parts = text.strip_suffix('Z').and_then(|text| text.split_once('T')).and_then(|(day, time)| {
        let (year, rest) = day.split_once('-')?;
        let (month, date) = rest.split_once('-')?;
        Some((year, month, date, time))
    });
    match (language, parts) {
        (_, None) => text.into(),
        (Language::English, Some((year, month, date, time))) => {
            format!("{year}-{month}-{date} {time} UTC").into()
        }
        (Language::German, Some((year, month, date, time))) => {
            format!("{date}.{month}.{year}, {time} UTC").into()
        }
        (Language::French, Some((year, month, date, time))) => {
            format!("{date}/{month}/{year} {time} UTC").into()
        }
    }
}

/// Returns the size of a character in HTML, in bytes; the template escapes five characters.
const fn html_size(character: char) -> usize {
    match character {
        '<' | '>' | '&' | '"' | '\'' => 5,
        other => other.len_utf8(),
    }
}

/// Returns the size of a text in HTML, in bytes.
pub(crate) fn html_length(text: &str) -> usize {
    text.chars().map(html_size).sum()
}

/// Shortens a text to at most `max_html_bytes` bytes of HTML: an ellipsis replaces the middle of a longer text.
pub(crate) fn truncate_middle(text: &str, max_html_bytes: usize) -> String {
    if html_length(text) <= max_html_bytes {
        return text.to_owned();
    }
    let half = max_html_bytes.saturating_sub('…'.len_utf8()) / 2;
    let fitting = |characters: &mut dyn Iterator<Item = char>| {
        let mut size = 0;
        characters
            .take_while(|character| {
                size += html_size(*character);
                size <= half
            })
            .collect::<Vec<char>>()
    };
    let start = fitting(&mut text.chars());
    let end = fitting(&mut text.chars().rev());
    start.into_iter().chain(['…']).chain(end.into_iter().rev()).collect()
}

/// Returns a JSON value in Unix seconds as a time; a dash if there is no value.
#[must_use]
pub fn unix_time_text(value: Option<&Value>) -> Text {
    value
        .and_then(Value::as_u64)
        .map_or_else(|| Text::from("–"), |seconds| Text::Time(format_rfc3339(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (12.345, "12.3"),
            (0.012_345, "0.0123"),
            (1234.0, "1\u{202f}234"),
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
            (-0.5, "-0.5"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(format_significant(number), text);
        }
    }

    #[test]
    fn an_exact_number_has_all_its_digits_but_no_noise() {
        for (number, text) in [
            (0.1 + 0.2, "0.3"),
            (0.012_345_678_9, "0.0123456789"),
            (1_234_567.0, "1234567"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(format_exact(number), text);
        }
    }

    #[test]
    fn a_long_text_loses_its_middle() {
        for (text, limit, shown) in [
            ("short", 5, "short"),
            ("abcdefghijklm", 11, "abcd…jklm"),
            ("<<<<", 19, "<…<"),
            ("äöüäöü", 11, "äö…öü"),
            ("abc", 0, "…"),
        ] {
            assert_eq!(truncate_middle(text, limit), shown);
        }
    }

    #[test]
    fn quantities_have_the_fitting_prefix() {
        for (number, unit, text) in [
            (1250.0, "kWh", "1.25\u{202f}MWh"),
            (0.002, "kWh", "2\u{202f}Wh"),
            (0.0, "kWh", "0\u{202f}kWh"),
            (1e-9, "kWh", "0.000001\u{202f}Wh"),
            (12_345.6, "g CO₂e", "12.3\u{202f}kg CO₂e"),
            (0.5, "g CO₂e/EUR", "500\u{202f}mg CO₂e/EUR"),
            (2500.0, "g", "2.5\u{202f}kg"),
            (12.0, "", "12"),
            (9_999.0, "", "9\u{202f}999"),
            (45_600.0, "", "45.6\u{202f}k"),
            (4_560_000.0, "", "4.56\u{202f}M"),
            (3.5, "EUR", "3.5\u{202f}EUR"),
        ] {
            assert_eq!(format_quantity(number, unit), text);
        }
    }
}
