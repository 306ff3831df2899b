//! Which path asks for what, below any prefix.

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `POST …/chat/completions`
    Chat,
    /// `POST …/messages`
    Messages,
    /// `POST …/messages/count_tokens`
    CountTokens,
    /// `POST …/embeddings`, `POST …/embed`
    Embeddings,
    /// `POST …/rerank`
    Rerank,
    /// `POST …/tokenize`
    Tokenize,
    /// `POST …/images/generations`
    Images,
    /// `POST …/audio/transcriptions`, `POST …/inference`
    Transcriptions,
    /// `GET /simulated-images/…`: an image that an answer named.
    Image,
    /// `GET …/models`
    Models,
    /// `GET …/health`, `GET …/ping`
    Health,
    /// `GET`, `POST`, `DELETE /control`
    Control,
    /// A path that is known, with another method.
    WrongMethod,
    /// Anything else.
    Unknown,
}

impl Route {
    /// The route of this method and path (without query).
    pub(super) fn of(method: &str, path: &str) -> Self {
        if path == "/control" {
            return Self::Control;
        }
        if path.starts_with("/simulated-images/") && method == "GET" {
            return Self::Image;
        }
        let post = [
            ("/chat/completions", Self::Chat),
            ("/messages/count_tokens", Self::CountTokens),
            ("/messages", Self::Messages),
            ("/embeddings", Self::Embeddings),
            ("/embed", Self::Embeddings),
            ("/rerank", Self::Rerank),
            ("/tokenize", Self::Tokenize),
            ("/images/generations", Self::Images),
            ("/audio/transcriptions", Self::Transcriptions),
            ("/inference", Self::Transcriptions),
        ];
        let get = [("/models", Self::Models), ("/health", Self::Health), ("/ping", Self::Health)];
        let among =
            |list: &[(&str, Self)]| list.iter().find(|(end, _)| path.ends_with(end)).map(|(_, found)| *found);
        match (among(&post), among(&get)) {
            (Some(found), _) if method == "POST" => found,
            (_, Some(found)) if method == "GET" || method == "HEAD" => found,
            (None, None) => Self::Unknown,
            _ => Self::WrongMethod,
        }
    }

    /// Whether a model works for it: rules without a path are for these.
    pub(super) fn generates(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Messages
                | Self::Embeddings
                | Self::Rerank
                | Self::Images
                | Self::Transcriptions
        )
    }

    /// Whether errors are in the messages dialect's envelope.
    pub(super) fn native(self) -> bool {
        matches!(self, Self::Messages | Self::CountTokens)
    }
}
