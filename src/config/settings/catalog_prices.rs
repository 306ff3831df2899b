//! Prices that the catalogue shows for each model: those of the model, or else the highest of its offers.

use super::{ModelSettings, OfferSettings, Settings};
use penstock_catalog::{CatalogModel, CatalogPrice};
use penstock_pricing::Tariff;
use rust_decimal::Decimal;
use std::collections::HashMap;

/// Returns the tariff that is valid at the time `at`, Unix seconds.
#[must_use]
pub fn tariff_at(first: &Tariff, later: &[(u64, Tariff)], at: u64) -> Tariff {
    later.iter().rev().find(|(from, _)| *from <= at).map_or(*first, |(_, tariff)| *tariff)
}

impl Settings {
    /// Returns the public parts of all models, with their present and later prices.
    #[must_use]
    pub fn catalog_models(&self) -> Vec<CatalogModel> {
        let mut offers: HashMap<&str, Vec<&OfferSettings>> = HashMap::new();
        for offer in &self.offers {
            offers.entry(&offer.model.card.id).or_default().push(offer);
        }
        let offers_of =
            |model: &ModelSettings| offers.get(model.card.id.as_str()).map_or(&[][..], Vec::as_slice);
        self.models.iter().map(|model| with_prices(model, offers_of(model))).collect()
    }
}

/// Returns the public part of a model with its prices; `offers` are those of the model.
fn with_prices(model: &ModelSettings, offers: &[&OfferSettings]) -> CatalogModel {
    let tariffs = offers.iter().flat_map(|offer| &offer.later_tariffs).chain(&model.later_tariffs);
    let mut days: Vec<u64> = tariffs.map(|(from, _)| *from).collect();
    days.sort_unstable();
    days.dedup();
    CatalogModel {
        price: price_at(model, offers, 0),
        price_changes: days.into_iter().map(|day| (day, price_at(model, offers, day))).collect(),
        ..model.card.clone()
    }
}

/// Returns the prices of a model at a time, Unix seconds; `None` if neither the model nor an offer has a price. A price
/// that the model lacks is the highest of its offers, so that a request costs no more than the catalogue shows.
fn price_at(model: &ModelSettings, offers: &[&OfferSettings], at: u64) -> Option<CatalogPrice> {
    let own = tariff_at(&model.tariff, &model.later_tariffs, at);
    let offers: Vec<Tariff> =
        offers.iter().map(|offer| tariff_at(&offer.tariff, &offer.later_tariffs, at)).collect();
    let price = |of: fn(&Tariff) -> Option<Decimal>| of(&own).or_else(|| offers.iter().filter_map(of).max());
    let (input, output) = (price(|tariff| tariff.input), price(|tariff| tariff.output));
    let (image, minute) = (price(|tariff| tariff.image), price(|tariff| tariff.minute));
    let is_priced = [input, output, image, minute].iter().any(Option::is_some);
    is_priced.then(|| CatalogPrice {
        input: input.unwrap_or_default(),
        cached_input: price(|tariff| tariff.cached_input.or(tariff.input)).unwrap_or_default(),
        output: output.unwrap_or_default(),
        image,
        minute,
    })
}
