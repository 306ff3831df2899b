//! Provider adapters (shapes): the request formats of offers.

use super::super::raw;
use super::super::settings::ModelSettings;
use super::super::suggest;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_core::{ModelKind, ProviderAdapter};

/// Adapters of all provider APIs (shapes), by crate. The first adapter for each kind of model is the default of that
/// kind.
const SHAPES_BY_CRATE: &[&[&dyn ProviderAdapter]] = &[
    penstock_embeddings::ADAPTERS,
    penstock_media::image::IMAGE_ADAPTERS,
    penstock_media::speech::AUDIO_ADAPTERS,
];

/// Returns the adapters for models of this kind, the default first.
fn shapes_of_kind(kind: ModelKind) -> impl Iterator<Item = &'static dyn ProviderAdapter> {
    SHAPES_BY_CRATE.iter().flat_map(|shapes| shapes.iter().copied()).filter(move |shape| shape.kind() == kind)
}

impl SettingsResolver<'_> {
    /// Resolves the provider adapter that the key `shape` of an offer names; without the key, the default adapter for
    /// models of this kind. Returns `None` for chat, which uses dialects, and after a mistake.
    pub fn resolve_provider_adapter(
        &mut self,
        raw: &raw::OfferConfig,
        model: &ModelSettings,
        spot: &KeyPath<'_>,
    ) -> Option<&'static dyn ProviderAdapter> {
        let Some(name) = raw.shape.as_deref() else { return shapes_of_kind(model.kind).next() };
        let found = shapes_of_kind(model.kind).find(|shape| shape.name() == name);
        if found.is_none() {
            let names: Vec<&str> = shapes_of_kind(model.kind).map(|shape| shape.name()).collect();
            let kind = model.kind.name();
            let (why, fix) = match suggest::most_similar(name, names.iter().copied()) {
                _ if model.kind.generates_tokens() => (
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
            self.report_mistake(&spot.child("shape"), why, fix);
        }
        found
    }
}
