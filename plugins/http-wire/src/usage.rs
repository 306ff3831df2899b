//! Parsing of token usage and energy in the formats of various providers.

use penstock_core::{MeasuredEnergy, MeterBoundary, ReportedUsage};
use penstock_json_scan::json;
use rust_decimal::Decimal;

/// Parses a `usage` object: the member names of the dialects, and other names under which engines report cached and
/// reasoning tokens. Returns `None` if neither input nor output is reported.
#[must_use]
pub fn parse_usage(object: &[u8]) -> Option<ReportedUsage> {
    let (mut input, mut output, mut total) = (None, None, None);
    let (mut cached, mut reasoning) = (None, None);
    let mut members = json::members(object);
    while let Some((key, value)) = members.next_unescaped() {
        match &*key {
            "prompt_tokens" => input = parse_token_count(value).or(input),
            "completion_tokens" => output = parse_token_count(value).or(output),
            "input_tokens" => input = input.or_else(|| parse_token_count(value)),
            "output_tokens" => output = output.or_else(|| parse_token_count(value)),
            "total_tokens" => total = parse_integer(value).or(total),
            "completion_tokens_details" | "output_tokens_details" => {
                reasoning = member_value(value, "reasoning_tokens").and_then(parse_integer).or(reasoning);
            }
            "reasoning_tokens" => reasoning = reasoning.or_else(|| parse_integer(value)),
            name => cached = read_cached_tokens(name, value, cached),
        }
    }
    // A missing token count is the difference between the total and the other count.
    let input: Option<u64> = input.or_else(|| total?.checked_sub(output?));
    let mut output: Option<u64> = output.or_else(|| total?.checked_sub(input?));
    let (cached, reasoning): (u64, u64) = (cached.unwrap_or_default(), reasoning.unwrap_or_default());
    let sum = |input: u64, output| input.checked_add(output)?.checked_add(reasoning);
    if reasoning > 0
        && total.is_some()
        && total == input.zip(output).and_then(|(input, output)| sum(input, output))
    {
        // The total shows that this engine reports reasoning tokens in addition to completion tokens, not as a part
        // of them.
        output = output.map(|output| output.saturating_add(reasoning));
    }
    ReportedUsage { input, cached, output, reasoning }.non_empty()
}

/// Returns the cached prompt tokens after the member `name` of a `usage` object was read, from those of the members
/// before it. Any other member changes nothing.
#[must_use]
pub fn read_cached_tokens(name: &str, value: &[u8], cached: Option<u64>) -> Option<u64> {
    match name {
        "prompt_tokens_details" | "input_tokens_details" => {
            member_value(value, "cached_tokens").and_then(parse_integer).or(cached)
        }
        "prompt_cache_hit_tokens" | "cached_tokens" => cached.or_else(|| parse_integer(value)),
        _ => cached,
    }
}

/// Parses a number of tokens; `None` for `null`. An invalid value becomes [`u64::MAX`], which exceeds all bounds. The
/// gateway then counts the tokens itself and reports the offer.
#[must_use]
pub fn parse_token_count(value: &[u8]) -> Option<u64> {
    if value == b"null" {
        return None;
    }
    Some(parse_integer(value).unwrap_or(u64::MAX))
}

/// Parses an unsigned integer, also written as a string or as `12.0`; `None` for any other value.
#[must_use]
pub fn parse_integer(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_matches('"');
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

/// Parses an `energy` object: `{"energy_joules":…}` or `{"energy_kwh":…}`, with an optional `boundary`. `None` for any
/// other form and for a negative number.
#[must_use]
pub fn parse_energy(object: &[u8]) -> Option<MeasuredEnergy> {
    let names =
        [("gpu", MeterBoundary::Gpu), ("it", MeterBoundary::It), ("facility", MeterBoundary::Facility)];
    let boundary_name = member_value(object, "boundary").unwrap_or_default();
    let boundary = names
        .into_iter()
        .find(|(name, _)| json::json_string_equals(boundary_name, name))
        .map(|(_, boundary)| boundary);
    let number = |name| member_value(object, name).filter(|value| *value != b"null");
    let joules = match (number("energy_joules"), number("energy_kwh")) {
        (Some(joules), _) => parse_decimal(joules)?,
        (None, Some(kwh)) => parse_decimal(kwh)?.checked_mul(Decimal::from(3_600_000))?,
        (None, None) => return None,
    };
    Some(MeasuredEnergy { joules, boundary })
}

/// Parses an `impact` object: `{"energy":{"total":…,"unit":"Wms"}}`, also with the unit mJ, Ws, J, Wh or kWh; `None`
/// for other units. 1 Wms is a watt for a millisecond, a thousandth of a joule.
#[must_use]
pub fn parse_impact_energy(object: &[u8]) -> Option<MeasuredEnergy> {
    let energy = member_value(object, "energy")?;
    let total = parse_decimal(member_value(energy, "total")?)?;
    let unit = member_value(energy, "unit")?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let joules = match &*json::unescape(unit)? {
        "Wms" | "mJ" => total.checked_div(Decimal::ONE_THOUSAND)?,
        "Ws" | "J" => total,
        "Wh" => total.checked_mul(Decimal::from(3_600))?,
        "kWh" => total.checked_mul(Decimal::from(3_600_000))?,
        _ => return None,
    };
    Some(MeasuredEnergy { joules, boundary: None })
}

/// Header field with the measured joules of an answer.
pub const ENERGY_HEADER: &str = "x-energy-joules";
/// Header field with the method by which the joules were determined.
pub const ENERGY_METHOD_HEADER: &str = "x-energy-method";

/// Parts of the names of methods that are no measurement.
const NO_MEASUREMENT: &[&str] = &[
    "estimat", "model", "formula", "average", "default", "calculat", "predict", "simulat", "tdp", "none",
    "unknown",
];

/// Parses the values of the header fields [`ENERGY_HEADER`] and [`ENERGY_METHOD_HEADER`]; the second is optional. `None`
/// for a negative number, for a value that is no number, and for a method that is not a measurement.
#[must_use]
pub fn parse_energy_headers(joules: &str, method: Option<&str>) -> Option<MeasuredEnergy> {
    let method = method.unwrap_or_default().to_ascii_lowercase();
    if NO_MEASUREMENT.iter().any(|word| method.contains(word)) {
        return None;
    }
    Some(MeasuredEnergy { joules: parse_decimal(joules.as_bytes())?, boundary: None })
}

/// Adds the measured energy of several answers. Returns `None` without an answer, if one answer has no measured energy,
/// or if the meters of the answers have different boundaries.
pub fn sum_energy(each: impl IntoIterator<Item = Option<MeasuredEnergy>>) -> Option<MeasuredEnergy> {
    let mut each = each.into_iter();
    let first = each.next()??;
    each.try_fold(first, |sum, one| {
        let one = one.filter(|one| one.boundary == sum.boundary)?;
        Some(MeasuredEnergy { joules: sum.joules.checked_add(one.joules)?, ..sum })
    })
}

/// Returns the energy in the first line of an SSE comment that has the form `energy {…}`.
#[must_use]
pub fn parse_energy_comment(comment: &[u8]) -> Option<MeasuredEnergy> {
    let mut lines = comment.split(|byte| *byte == b'\n');
    lines.find_map(|line| parse_energy(json::trim(json::trim(line).strip_prefix(b"energy")?)))
}

/// Returns the raw value of the first member with this name, strings with their quotes; `None` without one, or if the
/// object is malformed before it.
#[must_use]
pub fn member_value<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut members = json::members(object);
    loop {
        let (key, value) = members.next_unescaped()?;
        if key == name {
            return Some(value);
        }
    }
}

/// Parses a decimal number, also in exponent form; `None` if it is negative or no number.
fn parse_decimal(number: &[u8]) -> Option<Decimal> {
    let text = std::str::from_utf8(number).ok()?;
    let decimal = Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text)).ok();
    // A number with more digits than a `Decimal` holds is rounded.
    let decimal = decimal.or_else(|| text.parse().ok())?;
    (!decimal.is_sign_negative()).then_some(decimal)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::{parse_energy, parse_energy_headers, parse_usage, sum_energy};
    use penstock_core::{MeasuredEnergy, MeterBoundary};
    use rust_decimal::Decimal;

    #[test]
    fn headers_of_a_measurement_are_read_and_those_of_an_estimate_are_not() {
        let joules =
            |joules, method| parse_energy_headers(joules, method).map(|energy| energy.joules.to_string());
        for method in [None, Some(""), Some("counter"), Some("NVML")] {
            assert_eq!(joules("2.0", method).as_deref(), Some("2.0"), "{method:?}");
        }
        assert_eq!(joules("1e-3", None).as_deref(), Some("0.001"));
        for method in [
            "estimate",
            "Estimated",
            "modelled",
            "model_average",
            "class_default",
            "formula",
            "calculated-tdp",
            "none",
        ] {
            assert_eq!(joules("2.0", Some(method)), None, "{method}");
        }
        for invalid in ["", "-1", "NaN", "inf", "2 J", "2,0", "1e99"] {
            assert_eq!(joules(invalid, None), None, "{invalid}");
        }
    }

    #[test]
    fn a_sum_needs_the_energy_of_each_part_at_one_boundary() {
        let energy = |joules, boundary| Some(MeasuredEnergy { joules: Decimal::new(joules, 1), boundary });
        assert_eq!(sum_energy([]), None);
        assert_eq!(sum_energy([energy(5, None), energy(7, None)]), energy(12, None));
        assert_eq!(sum_energy([energy(5, None), None]), None);
        assert_eq!(sum_energy([None, energy(5, None)]), None);
        assert_eq!(sum_energy([energy(5, None), energy(5, Some(MeterBoundary::It))]), None);
        let most = Some(MeasuredEnergy { joules: Decimal::MAX, boundary: None });
        assert_eq!(sum_energy([most, most]), None);
    }

    #[test]
    fn a_half_that_is_no_number_of_tokens_is_beyond_all_bounds_and_keeps_the_other() {
        for absurd in ["-5", "2.5", "\"NaN\"", "1e9", "true", "18446744073709551616", "[]"] {
            let text = format!(r#"{{"prompt_tokens":11,"completion_tokens":{absurd}}}"#);
            let usage = parse_usage(text.as_bytes()).unwrap();
            assert_eq!((usage.input, usage.output), (Some(11), Some(u64::MAX)), "{absurd}");
        }
        let usage = parse_usage(br#"{"prompt_tokens":11,"completion_tokens":2147483649}"#).unwrap();
        assert_eq!(usage.output, Some(2_147_483_649));
        let usage = parse_usage(br#"{"prompt_tokens":11,"completion_tokens":null}"#).unwrap();
        assert_eq!((usage.input, usage.output), (Some(11), None));
        assert_eq!(parse_usage(br#"{"prompt_tokens":null}"#), None);
    }

    #[test]
    fn a_null_under_one_name_keeps_the_number_under_another() {
        let members = [
            r#""input_tokens":5,"output_tokens":7"#,
            r#""prompt_tokens":null,"completion_tokens":null"#,
            r#""input_tokens":null,"output_tokens":null,"total_tokens":null"#,
        ];
        for [first, second, third] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let text = [members[first], members[second], members[third]].join(",");
            let usage = parse_usage(format!("{{{text}}}").as_bytes()).unwrap();
            assert_eq!((usage.input, usage.output), (Some(5), Some(7)), "{text}");
        }
        let energy = parse_energy(br#"{"energy_joules":null,"energy_kwh":0.5}"#).unwrap();
        assert_eq!(energy.joules, 1_800_000.into());
        let both =
            br#"{"prompt_tokens":1,"input_tokens":2,"prompt_tokens":3,"total_tokens":9,"total_tokens":null}"#;
        let usage = parse_usage(both).unwrap();
        assert_eq!((usage.input, usage.output), (Some(3), Some(6)));
    }
}
