//! A catalogue model as clients see it.

use penstock_core::ModelKind;
use rust_decimal::Decimal;

/// A model as clients see it. Offers, tokenizer and energy data are not part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogModel {
    /// Name that requests use; unique among ids and aliases.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Description for people; may be empty.
    pub description: String,
    /// Kind of the model.
    pub kind: ModelKind,
    /// Other names of the model; those with `*` are patterns.
    pub aliases: Vec<String>,
    /// Context window: maximum of input and output tokens together.
    pub context_length: u64,
    /// Maximum number of generated tokens; `None` if only the context window limits them.
    pub max_output: Option<u64>,
    /// Creation time in Unix seconds.
    pub created: u64,
    /// Parameters that a request may set.
    pub supported_parameters: Vec<String>,
    /// Input modalities: `text`, `image`, `audio`, `file`.
    pub input_modalities: Vec<String>,
    /// Output modalities: `text`, `image`, `audio`, `embeddings`, `scores`.
    pub output_modalities: Vec<String>,
    /// Prices; `None` is shown as 0 in `pricing` and as `null` in `_meta`, and sorted last by price.
    pub price: Option<CatalogPrice>,
    /// Later prices, each with the time from which it is valid, in Unix seconds, ascending.
    pub price_changes: Vec<(u64, Option<CatalogPrice>)>,
    /// Lifecycle stage.
    pub lifecycle: LifecycleStage,
    /// Owner of the model; if `None`, the part of the id before its first slash is shown; `penstock` without a slash.
    pub owned_by: Option<String>,
}

impl CatalogModel {
    /// Creates a chat model with this id; set the other fields by struct update.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            name: id.clone(),
            id,
            description: String::new(),
            kind: ModelKind::Chat,
            aliases: Vec::new(),
            context_length: 0,
            max_output: None,
            created: 0,
            supported_parameters: Vec::new(),
            input_modalities: vec!["text".to_owned()],
            output_modalities: vec!["text".to_owned()],
            price: None,
            price_changes: Vec::new(),
            lifecycle: LifecycleStage::Active,
            owned_by: None,
        }
    }

    /// Returns the prices that are valid at a time, Unix seconds.
    #[must_use]
    pub fn price_at(&self, at: u64) -> Option<CatalogPrice> {
        let valid = self.price_changes.iter().rev().find(|(from, _)| *from <= at);
        valid.map_or(self.price, |(_, price)| *price)
    }

    /// Returns the aliases that are names, not patterns.
    pub fn plain_aliases(&self) -> impl Iterator<Item = &String> {
        self.aliases.iter().filter(|alias| !alias.contains('*'))
    }
}

/// Prices in EUR: per million tokens, per image, per minute of audio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogPrice {
    /// Price per million input tokens.
    pub input: Decimal,
    /// Price per million input tokens read from a cache.
    pub cached_input: Decimal,
    /// Price per million output tokens.
    pub output: Decimal,
    /// Price per image; `None` if none is configured.
    pub image: Option<Decimal>,
    /// Price per minute of audio; `None` if none is configured.
    pub minute: Option<Decimal>,
}

/// Lifecycle stage of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifecycleStage {
    /// Model in use.
    #[default]
    Active,
    /// Model that still answers but will be removed.
    Deprecated,
    /// Model that no longer answers.
    Retired,
}

impl LifecycleStage {
    /// All lifecycle stages of a model.
    pub const ALL: [Self; 3] = [Self::Active, Self::Deprecated, Self::Retired];

    /// Returns the name of the stage in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deprecated => "deprecated",
            Self::Retired => "retired",
        }
    }
}
