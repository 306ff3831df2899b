//! The two dialects and the five kinds of work.

/// The language of a request on the wire: the client's, or the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// Chat completions (`/v1/chat/completions`).
    Chat,
    /// Messages (`/v1/messages`).
    Messages,
}

impl Dialect {
    /// The name that configuration, logs and metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
        }
    }
}

/// What a model does. A request of one kind never goes to a model of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Generates text from messages, in either dialect.
    Chat,
    /// Turns text into vectors.
    Embedding,
    /// Scores documents against a query.
    Rerank,
    /// Draws images.
    Image,
    /// Writes down speech.
    Transcription,
}

impl Kind {
    /// The name that configuration, logs and metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embedding => "embedding",
            Self::Rerank => "rerank",
            Self::Image => "image",
            Self::Transcription => "transcription",
        }
    }
}
