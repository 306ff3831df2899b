//! Members that select the provider: `filters`, and members of other services that are not supported.
//!
//! A constraint is applied or refused by name, and never dropped: a request for one country must not be served in
//! another one.

use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::read;
use penstock_core::{ApiError, ModelKind, OfferFilterKind, OfferFilters, WorkUnit};
use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

/// Members of other services that select a provider, each with the end of the error message, which recommends an
/// alternative.
const REFUSED: &[(&str, &str)] = &[
    ("mode", "is not supported; name a flavor behind the model instead, such as \"m:eco\""),
    ("custom_weights", "are not supported; name a flavor behind the model instead, such as \"m:speed\""),
];
/// Maximum number of countries in a filter; fewer country codes exist.
const MAX_COUNTRIES: usize = 256;
/// Largest plausible value of a numeric filter.
const MAX_BOUND: f64 = 1e9;

/// Returns the filters of a request, if it has any.
///
/// # Errors
/// Returns an error for an unsupported member or an invalid filter.
pub(crate) fn read_offer_filters(
    top: &RootObject<'_>,
    kind: ModelKind,
) -> Result<Option<Box<OfferFilters>>, ApiError> {
    for (name, instead) in REFUSED {
        if top.get(name).is_some() {
            return Err(top.member_path(name).unsupported_error(instead));
        }
    }
    let Some(value) = top.get("filters") else { return Ok(None) };
    let path = top.member_path("filters");
    let names = OfferFilterKind::ALL.map(OfferFilterKind::name);
    let [countries, cost, intensity, speed] = read::read_named_members(value, &path, names)?;
    let mut unknown = value
        .members()
        .filter(|(key, value)| !value.is_null() && !names.iter().any(|name| key.equals_text(name)));
    if let Some((key, _)) = unknown.next() {
        let known = names.join(", ");
        return Err(match quotable_name(&key) {
            Some(name) => path
                .member(&name)
                .unsupported_error(format_args!("there is no such filter; known are {known}")),
            None => path.unsupported_error(format_args!("expected only filters that are known: {known}")),
        });
    }
    let bound = |value: Option<penstock_json_scan::tape::JsonValue<'_>>, name| {
        value.map(|value| read::read_bounded_number(value, &path.member(name), 0.0, MAX_BOUND)).transpose()
    };
    let filters = OfferFilters {
        countries: countries
            .map(|value| country_codes(value, &path.member("countries")))
            .transpose()?
            .unwrap_or_default(),
        max_input_cost: bound(cost, "max_input_cost")?.map(|most| exact_decimal(cost, most)),
        max_carbon_intensity: bound(intensity, "max_carbon_intensity")?
            .map(|most| exact_decimal(intensity, most)),
        min_speed_tps: bound(speed, "min_speed_tps")?,
    };
    check_applicable(&filters, kind, &path)?;
    Ok((filters != OfferFilters::default()).then(|| Box::new(filters)))
}

/// Refuses filters that do not apply to this kind of model.
fn check_applicable(filters: &OfferFilters, kind: ModelKind, path: &FieldPath<'_>) -> Result<(), ApiError> {
    if filters.min_speed_tps.is_some() && !kind.generates_tokens() {
        return Err(path.member("min_speed_tps").unsupported_error("this endpoint generates no tokens"));
    }
    if filters.max_input_cost.is_some() && kind.spec().unit == WorkUnit::Images {
        return Err(path.member("max_input_cost").unsupported_error("images are not paid by their input"));
    }
    Ok(())
}

/// Returns exactly the number that the client wrote, because prices are compared exactly; returns `rounded` if the
/// number has too many digits for a decimal.
fn exact_decimal(value: Option<penstock_json_scan::tape::JsonValue<'_>>, rounded: f64) -> Decimal {
    let raw = value.map(|value| value.raw()).unwrap_or_default();
    let exact = Decimal::from_str_exact(raw).or_else(|_| Decimal::from_scientific(raw));
    exact.ok().or_else(|| Decimal::from_f64(rounded)).unwrap_or_default()
}

fn country_codes(
    value: penstock_json_scan::tape::JsonValue<'_>,
    path: &FieldPath<'_>,
) -> Result<Vec<Box<str>>, ApiError> {
    const EXPECTED: &str = "a country's two letters (ISO 3166), such as \"FR\"";
    let mut codes: Vec<Box<str>> = Vec::new();
    for (index, item) in read::require_array(value, path)?.items().enumerate() {
        let path = path.item(index);
        if index >= MAX_COUNTRIES {
            return Err(path.invalid_error(format_args!("expected at most {MAX_COUNTRIES} countries")));
        }
        let text = read::require_string(item, &path)?.text();
        if text.len() != 2 || !text.bytes().all(|letter| letter.is_ascii_alphabetic()) {
            return Err(path.unexpected_string_error(EXPECTED));
        }
        codes.push(text.to_ascii_uppercase().into());
    }
    if codes.is_empty() {
        return Err(path.invalid_error("expected at least one country, got an empty array"));
    }
    Ok(codes)
}
