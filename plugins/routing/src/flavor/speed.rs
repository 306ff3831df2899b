//! `:speed`: prefers the offer with the shortest predicted time to the complete answer.

use super::{Flavor, FlavorWeights};

pub(super) struct SpeedFlavor;

impl Flavor for SpeedFlavor {
    fn name(&self) -> &'static str {
        "speed"
    }

    fn weights(&self) -> FlavorWeights {
        FlavorWeights { price: 0.2, speed: 0.7, environment: 0.1 }
    }

    fn allows_exploration(&self) -> bool {
        true
    }
}
