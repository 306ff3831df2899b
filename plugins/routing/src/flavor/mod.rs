//! The flavors: one file each, one line in [`FLAVORS`] each.
//!
//! A flavor orders offers and never drops one: the worst is still better than a 503.

mod balanced;
mod batch;
mod eco;
mod price;
mod speed;

use penstock_contract::Kind;
use std::fmt;

/// The default: price and speed alike, the environment half as much.
pub static BALANCED: &dyn Flavor = &balanced::Balanced;
/// The fastest offer.
pub static SPEED: &dyn Flavor = &speed::Speed;
/// The cheapest offer.
pub static PRICE: &dyn Flavor = &price::Price;
/// The cleanest electricity.
pub static ECO: &dyn Flavor = &eco::Eco;
/// Cheapest, and it may wait.
pub static BATCH: &dyn Flavor = &batch::Batch;

/// Every flavor that a client may name.
pub static FLAVORS: &[&dyn Flavor] =
    &[&balanced::Balanced, &speed::Speed, &price::Price, &eco::Eco, &batch::Batch];

/// What each normalised term counts; the three add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// The expected price of the request.
    pub price: f64,
    /// The predicted time to the whole answer.
    pub speed: f64,
    /// Carbon and renewable share of the place.
    pub environment: f64,
}

/// A taste in offers.
pub trait Flavor: Send + Sync {
    /// The suffix that selects it, without the colon.
    fn name(&self) -> &'static str;

    /// What it cares for.
    fn weights(&self) -> Weights;

    /// An offer whose grid emits more than this many times what the cleanest
    /// usable candidate's does is asked after all others. `None`: no such rule.
    fn intensity_limit(&self) -> Option<f64> {
        None
    }

    /// A few requests may go to an offer of which too little is known, though it costs more ([`explore`](crate::explore())).
    fn explores(&self) -> bool {
        false
    }

    /// Requests wait in the low-priority queue and are billed at batch price.
    fn queued(&self) -> bool {
        false
    }
}

impl fmt::Debug for dyn Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn Flavor {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Splits `model:flavor`. The text after the last colon counts only if it is
/// exactly a flavor's name; any other colon belongs to the model's id.
#[must_use]
pub fn split(name: &str) -> (&str, Option<&'static dyn Flavor>) {
    let found = name.rsplit_once(':').and_then(|(model, suffix)| {
        let flavor = FLAVORS.iter().find(|flavor| flavor.name() == suffix)?;
        Some((model, Some(*flavor)))
    });
    found.unwrap_or((name, None))
}

/// The flavor of a request that names none: `price` for embeddings, else `balanced`.
#[must_use]
pub fn default_for(kind: Kind) -> &'static dyn Flavor {
    match kind {
        Kind::Embedding => PRICE,
        Kind::Chat | Kind::Rerank | Kind::Image | Kind::Transcription => BALANCED,
    }
}
