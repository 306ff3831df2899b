//! The catalogue itself: models by every name they answer to.

use crate::item::item;
use crate::model::Model;
use crate::pattern::Pattern;
use std::collections::HashMap;
use std::sync::Arc;

/// All models of one configuration. Immutable; a new configuration makes a new one.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) entries: Vec<Entry>,
    /// Ids and aliases, to places in `entries`.
    names: HashMap<Box<str>, usize>,
    /// Aliases with `*`, to places in `entries`; the first that fits counts.
    patterns: Vec<(Pattern, usize)>,
}

/// A model with its items, written once.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Arc<Model>,
    pub(crate) item: String,
    /// One for each alias that is a name, with this name, in their order.
    pub(crate) aliases: Vec<(String, String)>,
}

impl Catalog {
    /// A catalogue of these models.
    ///
    /// # Errors
    /// Every mistake: an empty id or alias, and names that two models (or one
    /// model twice) claim.
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
        // Stable: of equals the first in the configuration counts.
        patterns.sort_by_key(|(pattern, _)| pattern.rank());
        let entry = |model: Model| Entry {
            item: item(&model, None),
            aliases: model.names().map(|alias| (alias.clone(), item(&model, Some(alias)))).collect(),
            model: Arc::new(model),
        };
        Ok(Self { entries: models.into_iter().map(entry).collect(), names, patterns })
    }

    /// The model with this id or alias, exactly; else the one with a pattern that the name fits, whatever its case.
    /// Flavors are not known here.
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

    /// All models, in the order of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.entries.iter().map(|entry| &entry.model)
    }
}
