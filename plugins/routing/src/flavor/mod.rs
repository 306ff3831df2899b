//! Routing flavors, which rank offers by different criteria. Each flavor has its own file and an entry in
//! [`FLAVORS`].
//!
//! A flavor ranks offers and never drops one, because any offer is better than a 503.

mod balanced;
mod batch;
mod eco;
mod price;
mod speed;

use penstock_core::ModelKind;
use std::fmt;

/// Default flavor of most kinds of models: price and speed weigh the same, the environment half as much.
pub static BALANCED: &dyn Flavor = &balanced::BalancedFlavor;
/// Flavor that prefers the fastest offer.
pub static SPEED: &dyn Flavor = &speed::SpeedFlavor;
/// Flavor that prefers the cheapest offer.
pub static PRICE: &dyn Flavor = &price::PriceFlavor;
/// Flavor that prefers the cleanest electricity.
pub static ECO: &dyn Flavor = &eco::EcoFlavor;
/// Flavor that prefers the cheapest offer; its requests may wait for capacity.
pub static BATCH: &dyn Flavor = &batch::BatchFlavor;

/// All flavors that a client may name.
pub static FLAVORS: &[&dyn Flavor] = &[
    &balanced::BalancedFlavor,
    &speed::SpeedFlavor,
    &price::PriceFlavor,
    &eco::EcoFlavor,
    &batch::BatchFlavor,
];

/// Weights of the normalised terms of a score; the three add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlavorWeights {
    /// Weight of the expected price of the request.
    pub price: f64,
    /// Weight of the predicted time to the complete answer.
    pub speed: f64,
    /// Weight of the carbon intensity and renewable share of the location.
    pub environment: f64,
}

/// Routing preference that ranks offers.
pub trait Flavor: Send + Sync {
    /// Returns the name of the flavor: the suffix of a model name, without the colon.
    fn name(&self) -> &'static str;

    /// Returns the weights of price, speed and environment in the score of an offer.
    fn weights(&self) -> FlavorWeights;

    /// Returns the maximum carbon intensity, as a multiple of the intensity of the cleanest usable candidate; offers
    /// above it are ranked after all other usable offers. `None` means no limit.
    fn max_carbon_intensity_ratio(&self) -> Option<f64> {
        None
    }

    /// Returns true if a few requests may go to an offer without recent measurements even if that offer costs more,
    /// see [`choose_exploration`](crate::choose_exploration()).
    fn allows_exploration(&self) -> bool {
        false
    }

    /// Returns true if requests wait in the low-priority queue and are billed at batch price.
    fn is_low_priority(&self) -> bool {
        false
    }
}

impl fmt::Debug for dyn Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn Flavor {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Splits `model:flavor`; the flavor is `None` if the name has none. The text after the last colon counts only if it is
/// exactly a flavor's name; any other colon belongs to the model's id.
#[must_use]
pub fn split_flavor(name: &str) -> (&str, Option<&'static dyn Flavor>) {
    let found = name.rsplit_once(':').and_then(|(model, suffix)| {
        let flavor = FLAVORS.iter().find(|flavor| flavor.name() == suffix)?;
        Some((model, Some(*flavor)))
    });
    found.unwrap_or((name, None))
}

/// Returns the flavor of a request that names none.
#[must_use]
pub fn default_flavor(kind: ModelKind) -> &'static dyn Flavor {
    let named = FLAVORS.iter().find(|flavor| flavor.name() == kind.spec().default_flavor);
    named.copied().unwrap_or(BALANCED)
}
