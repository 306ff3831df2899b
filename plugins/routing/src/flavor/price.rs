//! `:price`: prefers the cheapest offer; the default for embeddings and moderation.

use super::{Flavor, FlavorWeights};

pub(super) struct PriceFlavor;

impl Flavor for PriceFlavor {
    fn name(&self) -> &'static str {
        "price"
    }

    fn weights(&self) -> FlavorWeights {
        FlavorWeights { price: 0.7, speed: 0.2, environment: 0.1 }
    }
}
