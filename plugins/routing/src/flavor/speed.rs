//! `:speed`: the offer with the shortest predicted time to the complete answer.

use super::{Flavor, Weights};

pub(super) struct Speed;

impl Flavor for Speed {
    fn name(&self) -> &'static str {
        "speed"
    }

    fn weights(&self) -> Weights {
        Weights { price: 0.2, speed: 0.7, environment: 0.1 }
    }

    fn explores(&self) -> bool {
        true
    }
}
