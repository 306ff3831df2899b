//! Refusal of a request whose filters no offer of the model meets: it names the filter and the available values.

use penstock_contract::{Facts, Filter, Filters, Refusal};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::Value;

/// Returns the refusal for offers with these facts, none of which meets all filters.
pub fn nobody(filters: &Filters, facts: &[Facts<'_>]) -> Refusal {
    let hopeless = |filter: &&Filter| !facts.iter().any(|facts| filters.allows(**filter, facts));
    if let Some(filter) = Filter::ALL.iter().find(hopeless) {
        let (what, available) = available(*filter, facts);
        let sentence = format!("{filter}: no provider of this model {what}.");
        let refusal = Refusal::unsupported(filter.to_string(), sentence);
        return if available.is_null() { refusal } else { refusal.with("available", available) };
    }
    let unmet = |filter: &&Filter| facts.iter().any(|facts| !filters.allows(**filter, facts));
    let names: Vec<&str> = Filter::ALL.iter().filter(unmet).map(|filter| filter.name()).collect();
    let sentence = format!("filters: no provider of this model meets {} together.", names.join(" and "));
    Refusal::unsupported("filters", sentence)
}

/// Describes the property that no offer has, and the values that they have.
fn available(filter: Filter, facts: &[Facts<'_>]) -> (&'static str, Value) {
    match filter {
        Filter::Countries => {
            let mut countries: Vec<&str> = facts.iter().map(|facts| facts.country).collect();
            countries.sort_unstable();
            countries.dedup();
            ("is in one of these countries", countries.into())
        }
        Filter::InputCost => {
            let least = facts.iter().filter_map(|facts| facts.input_cost).min();
            ("has so low a price of input", number(least))
        }
        Filter::CarbonIntensity => {
            let least = facts.iter().map(|facts| facts.carbon_intensity).min();
            ("has so clean a grid", number(least))
        }
        Filter::Speed => {
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

    fn facts(country: &'static str, cost: i64, speed: f64) -> Facts<'static> {
        Facts {
            country,
            input_cost: Some(Decimal::new(cost, 2)),
            carbon_intensity: Decimal::new(70, 0),
            speed: Some(speed),
        }
    }

    fn in_country(code: &str) -> Filters {
        Filters { countries: vec![code.into()], ..Filters::default() }
    }

    #[test]
    fn the_filter_that_nobody_meets_is_named_with_what_there_is() {
        let all = [facts("FI", 5, 40.0), facts("DE", 9, 80.04), facts("FI", 7, 10.0)];
        let cheap = Filters { max_input_cost: Some(Decimal::new(4, 2)), ..Filters::default() };
        let clean = Filters { max_carbon_intensity: Some(Decimal::new(69, 0)), ..Filters::default() };
        let fast = Filters { min_speed_tps: Some(81.0), ..Filters::default() };
        for (filters, param, available) in [
            (in_country("FR"), "filters.countries", json!(["DE", "FI"])),
            (cheap, "filters.max_input_cost", json!(0.05)),
            (clean, "filters.max_carbon_intensity", json!(70.0)),
            (fast, "filters.min_speed_tps", json!(80.0)),
        ] {
            let refusal = nobody(&filters, &all);
            assert_eq!((refusal.row().status, refusal.param.as_deref()), (400, Some(param)));
            assert!(refusal.message.starts_with(param), "{}", refusal.message);
            assert_eq!(refusal.details.get("available"), Some(&available), "{param}");
        }
    }

    #[test]
    fn filters_that_only_together_leave_nobody_are_named_together() {
        let filters = Filters { max_input_cost: Some(Decimal::new(6, 2)), ..in_country("DE") };
        let refusal = nobody(&filters, &[facts("FI", 5, 40.0), facts("DE", 9, 80.0)]);
        assert_eq!(refusal.param.as_deref(), Some("filters"));
        assert!(refusal.message.contains("countries and max_input_cost together"), "{}", refusal.message);
    }
}
