//! `:eco`: the offer with the cleanest electricity.
//!
//! Criterion: the grid's carbon intensity and its physical renewable share, both from the same source and year (named
//! in the grid table). The renewable share alone can mislead: a region with much wind power and otherwise coal may emit
//! many times as much as a nuclear grid. An offer at more than twice the best candidate's intensity is therefore ranked
//! last, whatever its renewable share.

use super::{Flavor, Weights};

pub(super) struct Eco;

impl Flavor for Eco {
    fn name(&self) -> &'static str {
        "eco"
    }

    fn weights(&self) -> Weights {
        Weights { price: 0.2, speed: 0.2, environment: 0.6 }
    }

    fn intensity_limit(&self) -> Option<f64> {
        Some(2.0)
    }
}
