//! `:balanced`: price and speed weigh the same, the environment half as much.

use super::{Flavor, FlavorWeights};

pub(super) struct BalancedFlavor;

impl Flavor for BalancedFlavor {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn weights(&self) -> FlavorWeights {
        FlavorWeights { price: 0.4, speed: 0.4, environment: 0.2 }
    }

    fn allows_exploration(&self) -> bool {
        true
    }
}
