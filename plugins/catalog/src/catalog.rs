//! The catalogue itself: models by every name they answer to.

use crate::item::item;
use crate::model::Model;
use std::collections::HashMap;
use std::sync::Arc;

/// All models of one configuration. Immutable; a new configuration makes a new one.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) entries: Vec<Entry>,
    /// Ids and aliases, to places in `entries`.
    names: HashMap<Box<str>, usize>,
}

/// A model with its items, written once.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Arc<Model>,
    pub(crate) item: String,
    /// One for each alias, in their order.
    pub(crate) aliases: Vec<String>,
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
        for (place, model) in models.iter().enumerate() {
            for name in std::iter::once(&model.id).chain(&model.aliases) {
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
        let entry = |model: Model| Entry {
            item: item(&model, None),
            aliases: model.aliases.iter().map(|alias| item(&model, Some(alias))).collect(),
            model: Arc::new(model),
        };
        Ok(Self { entries: models.into_iter().map(entry).collect(), names })
    }

    /// The model with this id or alias, exactly. Flavors are not known here.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&Arc<Model>> {
        self.names.get(name).and_then(|place| self.entries.get(*place)).map(|entry| &entry.model)
    }

    /// All models, in the order of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.entries.iter().map(|entry| &entry.model)
    }
}
