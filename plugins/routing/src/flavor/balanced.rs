//! `:balanced`: price and speed weigh the same, the environment half as much.

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
