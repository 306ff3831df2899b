//! The model catalogue: models by id, alias and pattern.

use crate::item::item;
use crate::model::Model;
use crate::pattern::Pattern;
use std::collections::HashMap;
use std::sync::Arc;

/// All models of one configuration. Immutable; a new configuration builds a new catalogue.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) entries: Vec<Entry>,
    /// Ids and aliases, with their indexes in `entries`.
    names: HashMap<Box<str>, usize>,
    /// Aliases with `*`, with their indexes in `entries`. The first match wins.
    patterns: Vec<(Pattern, usize)>,
}

/// A model with its JSON items, serialized once.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Arc<Model>,
    pub(crate) item: String,
    /// Name and JSON item of each alias that is not a pattern, in configuration order.
    pub(crate) aliases: Vec<(String, String)>,
}

impl Catalog {
    /// Builds a catalogue.
    ///
    /// # Errors
    /// Returns all mistakes: empty ids or aliases, and names that are used twice.
    pub fn new(models: Vec<Model>) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut names: HashMap<Box<str>, usize> = HashMap::new();
        let mut patterns: Vec<(Pattern, usize)> = Vec::new();
        for (place, model) in models.iter().enumerate() {
            patterns.extend(model.aliases.iter().filter_map(|alias| Some((Pattern::new(alias)?, place))));
            for name in std::iter::once(&model.id).chain(model.names()) {
                if name.is_empty() {
                    mistakes.push(format!("Model {} (counted from 1) has an empty id or alias.", place + 1));
                } else if let Some(other) = names.insert(name.as_str().into(), place) {
                    let other = models.get(other).map_or("", |other| &other.id);
                    mistakes
                        .push(format!("The name '{name}' of model '{}' is taken by '{other}'.", model.id));
                }
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        // The sort is stable: of equal ranks, the first in the configuration wins.
        patterns.sort_by_key(|(pattern, _)| pattern.rank());
        let entry = |model: Model| Entry {
            item: item(&model, None),
            aliases: model.names().map(|alias| (alias.clone(), item(&model, Some(alias)))).collect(),
            model: Arc::new(model),
        };
        Ok(Self { entries: models.into_iter().map(entry).collect(), names, patterns })
    }

    /// Finds the model with exactly this id or alias; otherwise the model with a pattern that matches the name,
    /// ignoring case. Flavors are not resolved here.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&Arc<Model>> {
        let place = self.names.get(name).copied().or_else(|| self.by_pattern(name))?;
        self.entries.get(place).map(|entry| &entry.model)
    }

    fn by_pattern(&self, name: &str) -> Option<usize> {
        if self.patterns.is_empty() || name.is_empty() {
            return None;
        }
        let name = name.to_lowercase();
        self.patterns.iter().find(|(pattern, _)| pattern.fits(&name)).map(|(_, place)| *place)
    }

    /// All models in the order of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.entries.iter().map(|entry| &entry.model)
    }
}
