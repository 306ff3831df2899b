//! `:price`: the cheapest offer; the default for embeddings.

use super::{Flavor, Weights};

pub(super) struct Price;

impl Flavor for Price {
    fn name(&self) -> &'static str {
        "price"
    }

    fn weights(&self) -> Weights {
        Weights { price: 0.7, speed: 0.2, environment: 0.1 }
    }
}
