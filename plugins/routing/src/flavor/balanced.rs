//! `:balanced`: cost and speed alike, the environment where they hardly differ.

use super::{Flavor, Weights};

pub(super) struct Balanced;

impl Flavor for Balanced {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn weights(&self) -> Weights {
        Weights { price: 0.4, speed: 0.4, environment: 0.2 }
    }

    fn explores(&self) -> bool {
        true
    }
}
