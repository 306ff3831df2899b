//! `:batch`: prefers the cheapest offer; requests wait in the low-priority queue for free capacity.

use super::{Flavor, FlavorWeights};

pub(super) struct BatchFlavor;

impl Flavor for BatchFlavor {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn weights(&self) -> FlavorWeights {
        FlavorWeights { price: 0.8, speed: 0.05, environment: 0.15 }
    }

    fn is_low_priority(&self) -> bool {
        true
    }
}
