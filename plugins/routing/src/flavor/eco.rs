//! `:eco`: the cleanest electricity.
//!
//! Criterion: the grid's carbon intensity and its physical renewable share,
//! both of one source and year (the grid table names them). Renewable share
//! alone can mislead: a place with much wind power and coal for the rest may
//! emit many times what a nuclear grid does, so an offer at more than twice the
//! best candidate's intensity is last, whatever its renewable share.

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
