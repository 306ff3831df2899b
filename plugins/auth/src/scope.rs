//! What a key allows.

use penstock_contract::{Code, Refusal};
use std::fmt;

/// A permission that an endpoint asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// Chat, messages, counting of tokens.
    Chat,
    /// Embeddings.
    Embeddings,
    /// Reranking.
    Rerank,
    /// Images.
    Images,
    /// Transcription.
    Audio,
    /// The catalogue.
    Models,
    /// Files and batches: each scope of requests allows them too. Creating a batch needs the scope of its endpoint.
    Batches,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] =
        [Self::Chat, Self::Embeddings, Self::Rerank, Self::Images, Self::Audio, Self::Models, Self::Batches];

    /// Its name in keys and refusals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "inference.chat",
            Self::Embeddings => "inference.embeddings",
            Self::Rerank => "inference.rerank",
            Self::Images => "inference.images",
            Self::Audio => "inference.audio",
            Self::Models => "inference.models",
            Self::Batches => "inference.batches",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The scopes that allow what this one allows.
    const fn allowed_by(self) -> u16 {
        match self {
            // A key that may ask may ask by file. The catalogue is no request.
            Self::Batches => {
                self.bit()
                    | Self::Chat.bit()
                    | Self::Embeddings.bit()
                    | Self::Rerank.bit()
                    | Self::Images.bit()
                    | Self::Audio.bit()
            }
            Self::Chat | Self::Embeddings | Self::Rerank | Self::Images | Self::Audio | Self::Models => {
                self.bit()
            }
        }
    }
}

/// All of inference, what is to come included.
const INFERENCE: (&str, u16) = ("inference.*", 1 << 14);
/// Everything.
const EVERYTHING: (&str, u16) = ("*", 1 << 15);

/// The scopes of a key. By default none; [`Scopes::inference`] is what a new key has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

/// Names that are no scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScopes(pub Vec<String>);

impl fmt::Display for UnknownScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Scopes::known().map(|(name, _)| name).collect();
        write!(f, "unknown scopes: {}; known are {}", self.0.join(", "), known.join(", "))
    }
}

impl std::error::Error for UnknownScopes {}

impl Scopes {
    /// `inference.*`: what a new key has unless told otherwise.
    #[must_use]
    pub const fn inference() -> Self {
        Self(INFERENCE.1)
    }

    /// The scopes with these names.
    ///
    /// # Errors
    /// All names that are no scopes.
    pub fn parse<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, UnknownScopes> {
        let mut scopes = Self::default();
        let mut unknown = Vec::new();
        for name in names {
            match Self::bit_of(name.as_ref()) {
                Some(bit) => scopes.0 |= bit,
                None => unknown.push(name.as_ref().to_owned()),
            }
        }
        if unknown.is_empty() { Ok(scopes) } else { Err(UnknownScopes(unknown)) }
    }

    /// As [`Scopes::parse`], for stored keys: a name that a later version wrote
    /// allows nothing here.
    pub fn lenient<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(names.into_iter().filter_map(|name| Self::bit_of(name.as_ref())).fold(0, |all, bit| all | bit))
    }

    /// The scope is among them, by name, by wildcard or by another that includes it.
    #[must_use]
    pub const fn allows(self, scope: Scope) -> bool {
        self.0 & (scope.allowed_by() | INFERENCE.1 | EVERYTHING.1) != 0
    }

    /// The scope is among them by its own name or by a wildcard.
    #[must_use]
    pub const fn holds(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | INFERENCE.1 | EVERYTHING.1) != 0
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// 403 with the missing scope in `details.required_scope`.
    pub fn require(self, scope: Scope) -> Result<(), Refusal> {
        if self.allows(scope) {
            return Ok(());
        }
        let message = format!("This API key lacks the scope {}.", scope.name());
        Err(Refusal::because(Code::InsufficientScope, message).with("required_scope", scope.name()))
    }

    /// Their names, for storing and showing; parsing them gives the same scopes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::known().filter(move |(_, bit)| self.0 & bit != 0).map(|(name, _)| name)
    }

    fn known() -> impl Iterator<Item = (&'static str, u16)> {
        Scope::ALL.into_iter().map(|scope| (scope.name(), scope.bit())).chain([INFERENCE, EVERYTHING])
    }

    fn bit_of(name: &str) -> Option<u16> {
        Self::known().find(|(known, _)| *known == name).map(|(_, bit)| bit)
    }
}
