//! Refusal of a request if no offer of the model meets its filters: it names the filter and the available values.

use crate::auth::key_cache::Principal;
use crate::upstream::config_snapshot::ModelState;
use crate::upstream::count_queue::TokenCountContext;
use penstock_core::{ApiError, InferenceRequest, OfferFilterKind, OfferFilters, OfferProperties};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::Value;

/// Checks that an offer of the model, or of those of its fallback models that the key may use, meets the filters of the
/// request.
///
/// # Errors
/// Returns the refusal that a generation with these filters gets.
pub fn check_offer_filters(
    counting: &TokenCountContext,
    principal: &Principal,
    model: &ModelState,
    ask: &InferenceRequest,
) -> Result<(), ApiError> {
    let Some(filters) = &ask.filters else { return Ok(()) };
    let fallbacks = model.model.fallbacks.iter().filter_map(|id| counting.config.model(id));
    let mut fallbacks = fallbacks.filter(|model| principal.may_use_model(&model.model.card.id));
    let is_met = |model: &ModelState| counting.offers_matching_filters(model, ask).next().is_some();
    if is_met(model) || fallbacks.any(|model| is_met(model)) {
        return Ok(());
    }
    let facts: Vec<OfferProperties<'_>> =
        counting.offers(model).map(|offer| counting.offer_properties(offer, ask)).collect();
    Err(unmet_filters_error(filters, &facts))
}

/// Returns the refusal of a request whose filters no offer meets; `facts` are the properties of the offers.
pub fn unmet_filters_error(filters: &OfferFilters, facts: &[OfferProperties<'_>]) -> ApiError {
    let is_unmet =
        |filter: &&OfferFilterKind| !facts.iter().any(|facts| filters.filter_allows_offer(**filter, facts));
    if let Some(filter) = OfferFilterKind::ALL.iter().find(is_unmet) {
        let (what, available) = unmet_explanation(*filter, facts);
        let sentence = format!("{filter}: no provider of this model {what}.");
        let refusal = ApiError::unsupported(filter.to_string(), sentence);
        return if available.is_null() {
            refusal
        } else {
            refusal.with_details_member("available", available)
        };
    }
    let unmet =
        |filter: &&OfferFilterKind| facts.iter().any(|facts| !filters.filter_allows_offer(**filter, facts));
    let names: Vec<&str> = OfferFilterKind::ALL.iter().filter(unmet).map(|filter| filter.name()).collect();
    let sentence = format!("filters: no provider of this model meets {} together.", names.join(" and "));
    ApiError::unsupported("filters", sentence)
}

/// Returns the end of the sentence "no provider of this model …" for a filter that no offer meets, and the values that
/// the offers can meet: their countries, or their best value.
fn unmet_explanation(filter: OfferFilterKind, facts: &[OfferProperties<'_>]) -> (&'static str, Value) {
    match filter {
        OfferFilterKind::Countries => {
            let mut countries: Vec<&str> = facts.iter().map(|facts| facts.country).collect();
            countries.sort_unstable();
            countries.dedup();
            ("is in one of these countries", countries.into())
        }
        OfferFilterKind::InputCost => {
            let least = facts.iter().filter_map(|facts| facts.input_cost).min();
            ("has so low a price of input", number(least))
        }
        OfferFilterKind::CarbonIntensity => {
            let least = facts.iter().map(|facts| facts.carbon_intensity).min();
            ("has so clean a grid", number(least))
        }
        OfferFilterKind::Speed => {
            let most = facts.iter().filter_map(|facts| facts.speed).max_by(f64::total_cmp);
            ("was so fast lately", most.map(|speed| (speed * 10.0).round() / 10.0).into())
        }
    }
}

fn number(decimal: Option<Decimal>) -> Value {
    decimal.and_then(|decimal| decimal.to_f64()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(country: &'static str, cost: i64, speed: f64) -> OfferProperties<'static> {
        OfferProperties {
            country,
            input_cost: Some(Decimal::new(cost, 2)),
            carbon_intensity: Decimal::new(70, 0),
            speed: Some(speed),
        }
    }

    fn in_country(code: &str) -> OfferFilters {
        OfferFilters { countries: vec![code.into()], ..OfferFilters::default() }
    }

    #[test]
    fn an_unsatisfied_filter_is_named_with_the_available_values() {
        let all = [facts("FI", 5, 40.0), facts("DE", 9, 80.04), facts("FI", 7, 10.0)];
        let cheap = OfferFilters { max_input_cost: Some(Decimal::new(4, 2)), ..OfferFilters::default() };
        let clean =
            OfferFilters { max_carbon_intensity: Some(Decimal::new(69, 0)), ..OfferFilters::default() };
        let fast = OfferFilters { min_speed_tps: Some(81.0), ..OfferFilters::default() };
        for (filters, param, available) in [
            (in_country("FR"), "filters.countries", json!(["DE", "FI"])),
            (cheap, "filters.max_input_cost", json!(0.05)),
            (clean, "filters.max_carbon_intensity", json!(70.0)),
            (fast, "filters.min_speed_tps", json!(80.0)),
        ] {
            let refusal = unmet_filters_error(&filters, &all);
            assert_eq!((refusal.spec().status, refusal.param.as_deref()), (400, Some(param)));
            assert!(refusal.message.starts_with(param), "{}", refusal.message);
            assert_eq!(refusal.details.get("available"), Some(&available), "{param}");
        }
    }

    #[test]
    fn filters_that_exclude_all_offers_in_combination_are_named_together() {
        let filters = OfferFilters { max_input_cost: Some(Decimal::new(6, 2)), ..in_country("DE") };
        let refusal = unmet_filters_error(&filters, &[facts("FI", 5, 40.0), facts("DE", 9, 80.0)]);
        assert_eq!(refusal.param.as_deref(), Some("filters"));
        assert!(refusal.message.contains("countries and max_input_cost together"), "{}", refusal.message);
    }
}
