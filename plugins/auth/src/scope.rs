//! Scopes of a key.

use penstock_core::{ApiError, ErrorCode};
use std::fmt;

/// Permission of an API key. Each endpoint requires one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyScope {
    /// Access to conversations (chat, messages, responses, counting of their tokens), text completions and moderation.
    Chat,
    /// Access to the embeddings endpoint.
    Embeddings,
    /// Access to the rerank endpoint.
    Rerank,
    /// Access to the image generation endpoint.
    Images,
    /// Access to transcription and speech.
    Audio,
    /// Access to the list of models.
    Models,
    /// Files and batches. Every inference scope includes it; creating a batch also requires the scope of its endpoint.
    Batches,
    /// Access to the usage and the balance of the key's account.
    AccountRead,
}

/// Group of a scope. The group determines which wildcards and which other scopes include the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeGroup {
    /// Requests to models of a kind. Included by `inference.*` and `*`.
    Inference,
    /// Files and batches. Also included by every scope of the group `Inference`: a key that may send inference requests
    /// may also send them in a file.
    Batches,
    /// The catalogue. Included by `inference.*` and `*`.
    Catalogue,
    /// The account. Included by `*`: a key for inference may not read usage and balance.
    Account,
}

/// Bits of the scopes of the group `Inference`.
const INFERENCE_BITS: u16 = {
    let (mut bits, mut scopes) = (0, KeyScope::ALL.as_slice());
    while let [scope, rest @ ..] = scopes {
        if matches!(scope.row().1, ScopeGroup::Inference) {
            bits |= scope.bit();
        }
        scopes = rest;
    }
    bits
};

impl KeyScope {
    /// All scopes of API keys.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::Embeddings,
        Self::Rerank,
        Self::Images,
        Self::Audio,
        Self::Models,
        Self::Batches,
        Self::AccountRead,
    ];

    /// Returns name and group of the scope.
    const fn row(self) -> (&'static str, ScopeGroup) {
        match self {
            Self::Chat => ("inference.chat", ScopeGroup::Inference),
            Self::Embeddings => ("inference.embeddings", ScopeGroup::Inference),
            Self::Rerank => ("inference.rerank", ScopeGroup::Inference),
            Self::Images => ("inference.images", ScopeGroup::Inference),
            Self::Audio => ("inference.audio", ScopeGroup::Inference),
            Self::Models => ("inference.models", ScopeGroup::Catalogue),
            Self::Batches => ("inference.batches", ScopeGroup::Batches),
            Self::AccountRead => ("account.read", ScopeGroup::Account),
        }
    }

    /// Returns the name of the scope in keys and error responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the scope with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns the bits of the scopes that include this one.
    const fn allowed_by(self) -> u16 {
        match self.row().1 {
            ScopeGroup::Batches => self.bit() | INFERENCE_BITS,
            ScopeGroup::Inference | ScopeGroup::Catalogue | ScopeGroup::Account => self.bit(),
        }
    }

    /// Returns the bits of the wildcards that include this scope.
    const fn wildcards(self) -> u16 {
        match self.row().1 {
            ScopeGroup::Account => EVERYTHING.1,
            ScopeGroup::Inference | ScopeGroup::Batches | ScopeGroup::Catalogue => INFERENCE.1 | EVERYTHING.1,
        }
    }
}

/// Name and bit of the wildcard for all scopes except [`KeyScope::AccountRead`], including inference scopes that a
/// later version adds.
const INFERENCE: (&str, u16) = ("inference.*", 1 << 14);
/// Name `*`, which stands for all scopes, and its bit in the set of scopes.
const EVERYTHING: (&str, u16) = ("*", 1 << 15);

/// The set of scopes of a key. Empty by default; a new key has [`KeyScopes::inference`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyScopes(u16);

/// Error of names that are not scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScopes(pub Vec<String>);

impl fmt::Display for UnknownScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = KeyScopes::known().map(|(name, _)| name).collect();
        write!(f, "unknown scopes: {}; known are {}", self.0.join(", "), known.join(", "))
    }
}

impl std::error::Error for UnknownScopes {}

impl KeyScopes {
    /// Returns the default scopes of a new key: `inference.*`.
    #[must_use]
    pub const fn inference() -> Self {
        Self(INFERENCE.1)
    }

    /// Parses scope names.
    ///
    /// # Errors
    /// Returns all unknown names.
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

    /// Parses the scope names of a stored key. Unlike [`KeyScopes::parse`], it ignores unknown names, which a later
    /// version may have written.
    pub fn parse_lenient<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(names.into_iter().filter_map(|name| Self::bit_of(name.as_ref())).fold(0, |all, bit| all | bit))
    }

    /// Returns true if the set allows the scope: by name, by wildcard, or by another scope that includes it.
    #[must_use]
    pub const fn allows(self, scope: KeyScope) -> bool {
        self.0 & (scope.allowed_by() | scope.wildcards()) != 0
    }

    /// Returns true if the set allows requests to models of at least one kind.
    #[must_use]
    pub const fn allows_inference(self) -> bool {
        self.0 & (INFERENCE_BITS | INFERENCE.1 | EVERYTHING.1) != 0
    }

    /// Returns true if the set contains the scope by its own name or by a wildcard.
    #[must_use]
    pub const fn contains(self, scope: KeyScope) -> bool {
        self.0 & (scope.bit() | scope.wildcards()) != 0
    }

    /// Checks that the set allows a scope.
    ///
    /// # Errors
    /// Returns 403 with the missing scope in `details.required_scope`.
    pub fn require(self, scope: KeyScope) -> Result<(), ApiError> {
        if self.allows(scope) {
            return Ok(());
        }
        let message = format!("This API key lacks the scope {}.", scope.name());
        Err(ApiError::with_message(ErrorCode::InsufficientScope, message)
            .with_details_member("required_scope", scope.name()))
    }

    /// Returns the names of the scopes, for storing and showing. Parsing them returns the same set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::known().filter(move |(_, bit)| self.0 & bit != 0).map(|(name, _)| name)
    }

    fn known() -> impl Iterator<Item = (&'static str, u16)> {
        KeyScope::ALL.into_iter().map(|scope| (scope.name(), scope.bit())).chain([INFERENCE, EVERYTHING])
    }

    fn bit_of(name: &str) -> Option<u16> {
        Self::known().find(|(known, _)| *known == name).map(|(_, bit)| bit)
    }
}
