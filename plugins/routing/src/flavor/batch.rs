//! `:batch`: the cheapest offer, as soon as it has capacity.

use super::{Flavor, Weights};

pub(super) struct Batch;

impl Flavor for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn weights(&self) -> Weights {
        Weights { price: 0.8, speed: 0.05, environment: 0.15 }
    }

    fn queued(&self) -> bool {
        true
    }
}
