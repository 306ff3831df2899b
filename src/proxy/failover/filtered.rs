//! Filters of a request, and its refusal if no offer meets them: the refusal names the filter and the available values,
//! or what the offers that meet the filters do not support.

use super::select::AbleOffer;
use crate::auth::key_cache::Principal;
use crate::proxy::context_window::WindowFit;
use crate::upstream::config_snapshot::ModelState;
use crate::upstream::count_queue::TokenCountContext;
use crate::upstream::offer::{OfferState, SelectionTime};
use crate::upstream::wire_format::WireFormat;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, OfferFilterKind, OfferFilters, OfferProperties};
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
    Err(unmet_filters_error(filters, &facts, "of this model"))
}

/// Selection of the offers that meet the filters of a request.
pub(super) struct FilteredSelection<'s> {
    pub(super) filters: &'s OfferFilters,
    pub(super) ask: &'s InferenceRequest,
    /// Offers that do not support the request, each with its refusal.
    pub(super) excluded: &'s [(&'s OfferState, ApiError)],
    pub(super) moment: SelectionTime,
    /// True if the prices of batches apply.
    pub(super) is_batch: bool,
}

impl FilteredSelection<'_> {
    /// Removes the offers that do not meet the filters.
    ///
    /// # Errors
    /// Returns a refusal if no offer remains. It names the filter, or what the offers that meet the filters do not
    /// support. If no offer supports the request even without filters, it names what they do not support.
    pub(super) fn retain_allowed_offers(&self, able: &mut Vec<AbleOffer<'_>>) -> Result<(), ApiError> {
        let facts: Vec<OfferProperties<'_>> = able.iter().map(|one| self.properties(one.offer)).collect();
        if !facts.iter().any(|facts| self.filters.allows_offer(facts)) {
            return Err(self.no_offer_error(able));
        }
        for (one, facts) in able.iter_mut().zip(&facts) {
            one.unsure = self.filters.is_speed_unverified(facts);
        }
        let mut allowed = facts.iter().map(|facts| self.filters.allows_offer(facts));
        able.retain(|_| allowed.next().unwrap_or(false));
        Ok(())
    }

    fn properties<'o>(&self, offer: &'o OfferState) -> OfferProperties<'o> {
        offer.offer_properties(self.moment, self.is_batch)
    }

    /// Returns the refusal for the case that no offer which supports the request meets the filters. Only offers that
    /// can serve the request are advised: its dialect can express it, and the prompt fits, if it fits any of them.
    fn no_offer_error(&self, able: &[AbleOffer<'_>]) -> ApiError {
        let fits_any = able.iter().any(|one| one.fit != WindowFit::TooLong);
        let (mut usable, mut inexpressible) = (Vec::with_capacity(able.len()), None);
        for one in able.iter().filter(|one| !fits_any || one.fit != WindowFit::TooLong) {
            match WireFormat::inexpressible_request_error(one.offer, self.ask) {
                None => usable.push(self.properties(one.offer)),
                Some(refusal) => {
                    inexpressible.get_or_insert(refusal);
                }
            }
        }
        let is_allowed = |offer: &OfferState| self.filters.allows_offer(&self.properties(offer));
        let refusal = self.excluded.iter().find(|(offer, _)| is_allowed(offer)).map(|(_, refusal)| refusal);
        if usable.is_empty() {
            let lacks = refusal.or(self.excluded.first().map(|(_, refusal)| refusal));
            let lacks = lacks.cloned().or(inexpressible);
            return lacks.unwrap_or_else(|| ApiError::new(ErrorCode::Unsupported));
        }
        if let Some(refusal) = refusal {
            return unsupported_by_allowed_error(refusal.clone(), self.filters, &usable);
        }
        let is_part = !self.excluded.is_empty() || usable.len() < able.len();
        let scope = if is_part { "that can serve this request" } else { "of this model" };
        unmet_filters_error(self.filters, &usable, scope)
    }
}

/// Returns the refusal of a request that no offer which meets the filters supports, from the refusal of such an offer.
/// `usable` are the properties of the offers that support the request; none of them meets the filters.
fn unsupported_by_allowed_error(
    refusal: ApiError,
    filters: &OfferFilters,
    usable: &[OfferProperties<'_>],
) -> ApiError {
    let unmet = first_unmet_filter(filters, usable);
    let filter = unmet.map_or_else(|| "filters".to_owned(), |filter| filter.to_string());
    let param = refusal.param.as_deref().unwrap_or("filters");
    let message = format!("{param}: no provider that meets {filter} supports this.").into();
    let available = unmet.map_or(Value::Null, |filter| unmet_explanation(filter, usable).1);
    with_available(ApiError { message, ..refusal }, available)
}

/// Returns the first filter that none of the offers meets by itself.
fn first_unmet_filter(filters: &OfferFilters, facts: &[OfferProperties<'_>]) -> Option<OfferFilterKind> {
    let is_unmet =
        |filter: &OfferFilterKind| !facts.iter().any(|facts| filters.filter_allows_offer(*filter, facts));
    OfferFilterKind::ALL.into_iter().find(is_unmet)
}

fn with_available(refusal: ApiError, available: Value) -> ApiError {
    if available.is_null() { refusal } else { refusal.with_details_member("available", available) }
}

/// Returns the refusal of a request whose filters no offer meets; `facts` are the properties of the offers. `scope`
/// completes "no provider" to a phrase that includes only these offers.
fn unmet_filters_error(filters: &OfferFilters, facts: &[OfferProperties<'_>], scope: &str) -> ApiError {
    if let Some(filter) = first_unmet_filter(filters, facts) {
        let (what, available) = unmet_explanation(filter, facts);
        let sentence = format!("{filter}: no provider {scope} {what}.");
        return with_available(ApiError::unsupported(filter.to_string(), sentence), available);
    }
    let unmet =
        |filter: &&OfferFilterKind| facts.iter().any(|facts| !filters.filter_allows_offer(**filter, facts));
    let names: Vec<&str> = OfferFilterKind::ALL.iter().filter(unmet).map(|filter| filter.name()).collect();
    let sentence = format!("filters: no provider {scope} meets {} together.", names.join(" and "));
    ApiError::unsupported("filters", sentence)
}

/// Returns the end of the sentence "no provider …" for a filter that no offer meets, and the values that
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
            let refusal = unmet_filters_error(&filters, &all, "of this model");
            assert_eq!((refusal.spec().status, refusal.param.as_deref()), (400, Some(param)));
            assert!(refusal.message.starts_with(param), "{}", refusal.message);
            assert_eq!(refusal.details.get("available"), Some(&available), "{param}");
        }
    }

    #[test]
    fn filters_that_exclude_all_offers_in_combination_are_named_together() {
        let filters = OfferFilters { max_input_cost: Some(Decimal::new(6, 2)), ..in_country("DE") };
        let facts = [facts("FI", 5, 40.0), facts("DE", 9, 80.0)];
        let refusal = unmet_filters_error(&filters, &facts, "of this model");
        assert_eq!(refusal.param.as_deref(), Some("filters"));
        assert!(refusal.message.contains("countries and max_input_cost together"), "{}", refusal.message);
    }
}
