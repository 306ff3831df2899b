//! A model as clients see it.

use penstock_contract::Kind;
use rust_decimal::Decimal;

/// A model as clients see it. What the house knows beyond that (offers,
/// tokenizer, energy) is not here.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The name that requests use; unique over ids and aliases.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// What it does.
    pub kind: Kind,
    /// Other names it answers to; those with `*` are patterns.
    pub aliases: Vec<String>,
    /// Input and output tokens together.
    pub context_length: u64,
    /// Most generated tokens, where less than the window.
    pub max_output: Option<u64>,
    /// Unix seconds.
    pub created: u64,
    /// What a request may set.
    pub supported_parameters: Vec<String>,
    /// `text`, `image`, `audio`, `file`.
    pub input_modalities: Vec<String>,
    /// `text`, `image`, `audio`, `embeddings`, `scores`.
    pub output_modalities: Vec<String>,
    /// `None` when it has no price per token; shown as 0 and sorted last by price.
    pub price: Option<Price>,
    /// Where it stands in its life.
    pub lifecycle: Lifecycle,
    /// Who made it; what stands before the first slash of the id when `None`.
    pub owned_by: Option<String>,
}

impl Model {
    /// A chat model with this id and nothing else; the rest by struct update.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self {
            name: id.clone(),
            id,
            description: String::new(),
            kind: Kind::Chat,
            aliases: Vec::new(),
            context_length: 0,
            max_output: None,
            created: 0,
            supported_parameters: Vec::new(),
            input_modalities: vec!["text".to_owned()],
            output_modalities: vec!["text".to_owned()],
            price: None,
            lifecycle: Lifecycle::Active,
            owned_by: None,
        }
    }

    /// Its aliases that are names, without the patterns.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.aliases.iter().filter(|alias| !alias.contains('*'))
    }
}

/// EUR per million tokens; images in EUR apiece, audio in EUR a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Per million input tokens.
    pub input: Decimal,
    /// Per million input tokens read from a cache.
    pub cached_input: Decimal,
    /// Per million output tokens.
    pub output: Decimal,
    /// Per image.
    pub image: Option<Decimal>,
    /// Per minute of audio.
    pub minute: Option<Decimal>,
}

/// Where a model stands in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// In use.
    #[default]
    Active,
    /// Still answers, and will not for ever.
    Deprecated,
    /// Answers no more.
    Retired,
}

impl Lifecycle {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Deprecated, Self::Retired];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deprecated => "deprecated",
            Self::Retired => "retired",
        }
    }
}
