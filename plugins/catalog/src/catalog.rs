//! The model catalogue: models by id, alias and pattern.

use crate::item::item_json;
use crate::model::{CatalogModel, CatalogPrice};
use crate::pattern::AliasPattern;
use std::collections::HashMap;
use std::sync::Arc;

/// All models of one configuration. Immutable; a new configuration builds a new catalogue.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(crate) entries: Vec<CatalogEntry>,
    /// Ids and aliases, with their indexes in `entries`.
    names: HashMap<Box<str>, usize>,
    /// Aliases with `*`, sorted by rank, with their indexes in `entries`. The first match wins.
    patterns: Vec<(AliasPattern, usize)>,
}

/// Model with its JSON items, which are serialized once per price.
#[derive(Debug)]
pub(crate) struct CatalogEntry {
    pub(crate) model: Arc<CatalogModel>,
    /// Items with the first prices.
    first: CatalogItems,
    /// Items with later prices, each with the Unix second from which they are valid, ascending.
    later: Vec<(u64, CatalogItems)>,
}

/// JSON items of a model with the prices of a period.
#[derive(Debug)]
pub(crate) struct CatalogItems {
    pub(crate) item: String,
    /// Name and JSON item of each alias that is not a pattern, in configuration order.
    pub(crate) aliases: Vec<(String, String)>,
}

impl CatalogItems {
    fn new(model: &CatalogModel, price: Option<CatalogPrice>) -> Self {
        let alias_item = |alias: &String| (alias.clone(), item_json(model, Some(alias), price));
        Self { item: item_json(model, None, price), aliases: model.plain_aliases().map(alias_item).collect() }
    }
}

impl CatalogEntry {
    fn new(model: CatalogModel) -> Self {
        let later =
            model.price_changes.iter().map(|(from, price)| (*from, CatalogItems::new(&model, *price)));
        Self { first: CatalogItems::new(&model, model.price), later: later.collect(), model: Arc::new(model) }
    }

    /// Returns the items that are valid at a time, Unix seconds.
    pub(crate) fn items_at(&self, at: u64) -> &CatalogItems {
        self.later.iter().rev().find(|(from, _)| *from <= at).map_or(&self.first, |(_, items)| items)
    }
}

/// Classification of a name in a configured list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelMatch {
    /// Id of a model.
    ModelId,
    /// Alias of a model, or a name that matches one of its patterns; contains the id of the model.
    Alias(String),
    /// Name of no model in the catalogue.
    Unknown,
}

impl Catalog {
    /// Builds a catalogue.
    ///
    /// # Errors
    /// Returns all mistakes: empty ids or aliases, and names that are used twice.
    pub fn new(models: Vec<CatalogModel>) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut names: HashMap<Box<str>, usize> = HashMap::new();
        let mut patterns: Vec<(AliasPattern, usize)> = Vec::new();
        for (index, model) in models.iter().enumerate() {
            patterns
                .extend(model.aliases.iter().filter_map(|alias| Some((AliasPattern::new(alias)?, index))));
            for name in std::iter::once(&model.id).chain(model.plain_aliases()) {
                if name.is_empty() {
                    mistakes.push(format!("Model {} (counted from 1) has an empty id or alias.", index + 1));
                } else if let Some(other) = names.insert(name.as_str().into(), index) {
                    let other = models.get(other).map_or("", |other| &other.id);
                    mistakes
                        .push(format!("The name '{name}' of model '{}' is taken by '{other}'.", model.id));
                }
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        // The sort is stable: among patterns of equal rank, the first in the configuration wins.
        patterns.sort_by_key(|(pattern, _)| pattern.rank());
        Ok(Self { entries: models.into_iter().map(CatalogEntry::new).collect(), names, patterns })
    }

    /// Finds the model with exactly this id or alias; otherwise the model with a pattern that matches the name,
    /// ignoring case. Flavors are not resolved here.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&Arc<CatalogModel>> {
        let index = self.names.get(name).copied().or_else(|| self.find_by_pattern(name))?;
        self.entries.get(index).map(|entry| &entry.model)
    }

    /// Classifies a name in a configured list of models, which must use the ids of models and not their aliases.
    #[must_use]
    pub fn classify_name(&self, name: &str) -> ModelMatch {
        match self.resolve(name) {
            None => ModelMatch::Unknown,
            Some(card) if card.id == name => ModelMatch::ModelId,
            Some(card) => ModelMatch::Alias(card.id.clone()),
        }
    }

    fn find_by_pattern(&self, name: &str) -> Option<usize> {
        if self.patterns.is_empty() || name.is_empty() {
            return None;
        }
        let name = name.to_lowercase();
        self.patterns.iter().find(|(pattern, _)| pattern.matches(&name)).map(|(_, index)| *index)
    }

    /// Returns all models in the order of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<CatalogModel>> {
        self.entries.iter().map(|entry| &entry.model)
    }
}
