//! Provider shapes: the request format of an offer.

use super::super::raw;
use super::super::settings::Model;
use super::super::suggest;
use super::Proof;
use super::key_path::Spot;
use penstock_contract::{Kind, Shape};

/// All shapes, by crate. The first of a kind is its default.
const ROOMS: &[&[&dyn Shape]] =
    &[penstock_vectors::SHAPES, penstock_media::picture::SHAPES, penstock_media::speech::SHAPES];

/// Shapes of a kind of work.
fn shapes(kind: Kind) -> impl Iterator<Item = &'static dyn Shape> {
    ROOMS.iter().flat_map(|room| room.iter().copied()).filter(move |shape| shape.kind() == kind)
}

impl Proof<'_> {
    /// Resolves the shape of an offer; chat has none.
    pub fn shape(&mut self, raw: &raw::Offer, model: &Model, spot: &Spot<'_>) -> Option<&'static dyn Shape> {
        let Some(name) = raw.shape.as_deref() else { return shapes(model.kind).next() };
        let found = shapes(model.kind).find(|shape| shape.name() == name);
        if found.is_none() {
            let names: Vec<&str> = shapes(model.kind).map(|shape| shape.name()).collect();
            let kind = model.kind.name();
            let (why, fix) = match suggest::nearest(name, names.iter().copied()) {
                _ if model.kind == Kind::Chat => (
                    "The model is for chat, which uses dialects.".to_owned(),
                    "Remove `shape`; `dialects` sets the request format.".to_owned(),
                ),
                Some(meant) => {
                    (format!("There is no such shape for {kind}."), format!("Did you mean \"{meant}\"?"))
                }
                None => (
                    format!("There is no such shape for {kind}."),
                    format!("Write one of: {}.", names.join(", ")),
                ),
            };
            self.wrong(&spot.key("shape"), why, fix);
        }
        found
    }
}
