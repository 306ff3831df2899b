//! Checks of the fallbacks of models: they exist, are of the same kind and form no cycle.

use super::super::raw::{self, ConfigFile};
use super::key_path::KeyPath;
use super::{SettingsResolver, catalogue, cycles};
use std::collections::HashMap;

impl SettingsResolver<'_> {
    /// Checks that the fallbacks of a model exist, are of its kind, and do not lead back to it.
    pub(super) fn check_fallbacks(
        &mut self,
        raw: &ConfigFile,
        all: &FallbackGraph<'_>,
        model: &raw::ModelConfig,
        spot: &KeyPath<'_>,
    ) {
        for (index, id) in model.fallbacks.iter().enumerate() {
            let at = spot.child("fallbacks").list_element(index);
            if !self.check_model_id(raw, id, &at) {
                continue;
            }
            let Some(other) = all.model(raw, id) else { continue };
            let guessed = self.has_placeholder_kind(&other.id) || self.has_placeholder_kind(&model.id);
            if other.kind != model.kind && !guessed {
                let why = format!(
                    "It is a model for {}, and this one is for {}.",
                    catalogue::convert_kind(other.kind).name(),
                    catalogue::convert_kind(model.kind).name()
                );
                self.report_mistake(&at, why, "Use a fallback of the same kind.");
            } else if all.is_cycle(&model.id, id) {
                let why = if *id == model.id {
                    "A model cannot be its own fallback.".to_owned()
                } else {
                    format!("`{id}` falls back on `{}` in turn: a cycle.", model.id)
                };
                self.report_mistake(&at, why, "Take one of the fallbacks out.");
            }
        }
    }
}

/// Fallbacks of all models as a graph.
pub(super) struct FallbackGraph<'r> {
    by_id: HashMap<&'r str, usize>,
    /// Strongly connected components: models with the same number can reach each other.
    components: Vec<usize>,
}

impl<'r> FallbackGraph<'r> {
    /// Builds the graph; `by_id` has the index of each model.
    pub(super) fn from_config(raw: &'r ConfigFile, by_id: HashMap<&'r str, usize>) -> Self {
        let next = |model: &raw::ModelConfig| {
            model.fallbacks.iter().filter_map(|id| by_id.get(id.as_str()).copied()).collect()
        };
        let edges: Vec<Vec<usize>> = raw.models.iter().map(next).collect();
        Self { components: cycles::strongly_connected_components(&edges), by_id }
    }

    fn model<'m>(&self, raw: &'m ConfigFile, id: &str) -> Option<&'m raw::ModelConfig> {
        raw.models.get(*self.by_id.get(id)?)
    }

    /// Returns true if the fallback from `from` to `to` is part of a cycle: fallbacks lead from `to` back to `from`.
    fn is_cycle(&self, from: &str, to: &str) -> bool {
        let circle = |id| self.components.get(*self.by_id.get(id)?);
        circle(from) == circle(to)
    }
}
