//! `:eco`: prefers the offer with the cleanest electricity.
//!
//! The criterion is the carbon intensity of the grid and its physical share of renewable energy, both from the same
//! source and year (named in the grid table). The renewable share alone can mislead: a grid with much wind power and
//! coal for the rest may emit many times as much as a nuclear grid. Therefore an offer with more than twice the best
//! candidate's intensity is ranked after the other usable offers, whatever its renewable share.

use super::{Flavor, FlavorWeights};

pub(super) struct EcoFlavor;

impl Flavor for EcoFlavor {
    fn name(&self) -> &'static str {
        "eco"
    }

    fn weights(&self) -> FlavorWeights {
        FlavorWeights { price: 0.2, speed: 0.2, environment: 0.6 }
    }

    fn max_carbon_intensity_ratio(&self) -> Option<f64> {
        Some(2.0)
    }
}
