//! Filters: constraints of a request on the offers that may serve it.

use rust_decimal::Decimal;
use std::fmt;

/// Constraints on the offers that may serve a request; all set constraints must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferFilters {
    /// Allowed countries, ISO 3166-1 alpha-2 in upper case; empty allows all.
    pub countries: Vec<Box<str>>,
    /// Maximum price of input, EUR per million tokens.
    pub max_input_cost: Option<Decimal>,
    /// Maximum carbon intensity of the grid, grams of CO2e per kWh.
    pub max_carbon_intensity: Option<Decimal>,
    /// Minimum generation speed, tokens per second.
    pub min_speed_tps: Option<f64>,
}

/// Kind of filter, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OfferFilterKind {
    /// Countries in which the provider's machines may be.
    Countries,
    /// Maximum input price.
    InputCost,
    /// Maximum carbon intensity of the power grid of the data centre, in g CO2e per kWh.
    CarbonIntensity,
    /// Minimum generation speed.
    Speed,
}

impl OfferFilterKind {
    /// All filters, in the order of error messages.
    pub const ALL: [Self; 4] = [Self::Countries, Self::InputCost, Self::CarbonIntensity, Self::Speed];

    /// Returns the name of the filter in the request member `filters`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Countries => "countries",
            Self::InputCost => "max_input_cost",
            Self::CarbonIntensity => "max_carbon_intensity",
            Self::Speed => "min_speed_tps",
        }
    }
}

impl fmt::Display for OfferFilterKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "filters.{}", self.name())
    }
}

/// Properties of an offer that are compared with the filters. An offer without an input price does not pass a filter by
/// price; an offer without a measured speed passes a filter by speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferProperties<'f> {
    /// Country, ISO 3166-1 alpha-2 in upper case.
    pub country: &'f str,
    /// Price of input for this request, EUR per million tokens; `None` if tokens are not the billed unit.
    pub input_cost: Option<Decimal>,
    /// Carbon intensity of the grid, grams of CO2e per kWh.
    pub carbon_intensity: Decimal,
    /// Recently measured tokens per second. An offer without a measurement passes the filter, and is tried after the
    /// offers that are known to be fast enough.
    pub speed: Option<f64>,
}

impl OfferFilters {
    /// Returns true if an offer passes this filter.
    #[must_use]
    pub fn filter_allows_offer(&self, filter: OfferFilterKind, facts: &OfferProperties<'_>) -> bool {
        match filter {
            OfferFilterKind::Countries => {
                self.countries.is_empty() || self.countries.iter().any(|country| **country == *facts.country)
            }
            OfferFilterKind::InputCost => {
                self.max_input_cost.is_none_or(|most| facts.input_cost.is_some_and(|cost| cost <= most))
            }
            OfferFilterKind::CarbonIntensity => {
                self.max_carbon_intensity.is_none_or(|most| facts.carbon_intensity <= most)
            }
            OfferFilterKind::Speed => {
                self.min_speed_tps.is_none_or(|least| facts.speed.is_none_or(|speed| speed >= least))
            }
        }
    }

    /// Returns true if an offer passes all filters.
    #[must_use]
    pub fn allows_offer(&self, facts: &OfferProperties<'_>) -> bool {
        OfferFilterKind::ALL.iter().all(|filter| self.filter_allows_offer(*filter, facts))
    }

    /// Returns true if the request demands a minimum speed and the speed of the offer is unknown. The other filters are
    /// not compared.
    #[must_use]
    pub fn is_speed_unverified(&self, facts: &OfferProperties<'_>) -> bool {
        self.min_speed_tps.is_some() && facts.speed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> OfferProperties<'static> {
        OfferProperties {
            country: "FI",
            input_cost: Some(Decimal::new(5, 2)),
            carbon_intensity: Decimal::new(715, 1),
            speed: Some(40.0),
        }
    }

    fn unmet(filters: &OfferFilters, facts: &OfferProperties<'_>) -> Vec<&'static str> {
        OfferFilterKind::ALL
            .iter()
            .filter(|filter| !filters.filter_allows_offer(**filter, facts))
            .map(|filter| filter.name())
            .collect()
    }

    #[test]
    fn each_filter_holds_at_its_bound_and_not_beyond() {
        let country = |codes: &[&str]| OfferFilters {
            countries: codes.iter().map(|code| (*code).into()).collect(),
            ..OfferFilters::default()
        };
        let cost = |most| OfferFilters { max_input_cost: Some(most), ..OfferFilters::default() };
        let intensity = |most| OfferFilters { max_carbon_intensity: Some(most), ..OfferFilters::default() };
        let speed = |least| OfferFilters { min_speed_tps: Some(least), ..OfferFilters::default() };
        for (filters, expected) in [
            (OfferFilters::default(), &[][..]),
            (country(&["FR", "FI"]), &[]),
            (country(&["FR"]), &["countries"]),
            (cost(Decimal::new(5, 2)), &[]),
            (cost(Decimal::new(49_999, 6)), &["max_input_cost"]),
            (intensity(Decimal::new(7_150, 2)), &[]),
            (intensity(Decimal::new(7_149, 2)), &["max_carbon_intensity"]),
            (speed(40.0), &[]),
            (speed(40.000_001), &["min_speed_tps"]),
        ] {
            assert_eq!(unmet(&filters, &facts()), expected, "{filters:?}");
            assert_eq!(filters.allows_offer(&facts()), expected.is_empty());
        }
    }

    #[test]
    fn a_price_that_is_not_known_meets_no_bound_and_a_speed_that_is_not_known_may() {
        let filters = OfferFilters {
            max_input_cost: Some(Decimal::MAX),
            min_speed_tps: Some(1e9),
            ..OfferFilters::default()
        };
        let unknown = OfferProperties { input_cost: None, speed: None, ..facts() };
        assert_eq!(unmet(&filters, &unknown), ["max_input_cost"]);
        assert!(filters.is_speed_unverified(&unknown) && !filters.is_speed_unverified(&facts()));
        assert!(!OfferFilters::default().is_speed_unverified(&unknown));
    }
}
