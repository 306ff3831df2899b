//! Kinds of models.

/// Kind of model. A request of one kind is never sent to a model of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelKind {
    /// Generates text from messages, in either dialect.
    Chat,
    /// Turns text into vectors.
    Embedding,
    /// Scores documents against a query.
    Rerank,
    /// Generates images.
    Image,
    /// Transcribes speech.
    Transcription,
}

impl ModelKind {
    /// Name in the configuration, logs and metrics.
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
