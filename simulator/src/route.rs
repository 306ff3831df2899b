//! Routes of a simulated provider. Any path prefix is accepted before them, except before `/control` and
//! `/simulated-images/`.

/// Dialect of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulatedDialect {
    /// Chat completions, and every other endpoint with the same conventions.
    Chat,
    /// Messages.
    Messages,
    /// Responses.
    Responses,
}

/// Endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulatorRoute {
    /// `POST …/chat/completions`
    Chat,
    /// `POST …/completions`
    Completions,
    /// `POST …/messages`
    Messages,
    /// `POST …/responses`
    Responses,
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
    /// `POST …/audio/speech`
    Speech,
    /// `POST …/moderations`
    Moderations,
    /// `GET /simulated-images/…`: an image whose URL an answer contained.
    Image,
    /// `GET …/models`
    Models,
    /// `GET …/health`, `GET …/ping`
    Health,
    /// `GET`, `POST`, `DELETE /control`
    Control,
    /// Known path with another method.
    MethodNotAllowed,
    /// Any other path.
    Unknown,
}

impl SimulatorRoute {
    /// Returns the route of a method and a path (without query).
    pub(super) fn from_request(method: &str, path: &str) -> Self {
        if path == "/control" {
            return Self::Control;
        }
        if path.starts_with("/simulated-images/") && method == "GET" {
            return Self::Image;
        }
        let post = [
            ("/chat/completions", Self::Chat),
            ("/completions", Self::Completions),
            ("/messages/count_tokens", Self::CountTokens),
            ("/messages", Self::Messages),
            ("/responses", Self::Responses),
            ("/embeddings", Self::Embeddings),
            ("/embed", Self::Embeddings),
            ("/rerank", Self::Rerank),
            ("/tokenize", Self::Tokenize),
            ("/images/generations", Self::Images),
            ("/audio/transcriptions", Self::Transcriptions),
            ("/inference", Self::Transcriptions),
            ("/audio/speech", Self::Speech),
            ("/moderations", Self::Moderations),
        ];
        let get = [("/models", Self::Models), ("/health", Self::Health), ("/ping", Self::Health)];
        let among =
            |list: &[(&str, Self)]| list.iter().find(|(end, _)| path.ends_with(end)).map(|(_, found)| *found);
        match (among(&post), among(&get)) {
            (Some(found), _) if method == "POST" => found,
            (_, Some(found)) if method == "GET" || method == "HEAD" => found,
            (None, None) => Self::Unknown,
            _ => Self::MethodNotAllowed,
        }
    }

    /// Returns true if the route generates output. Rules without a path apply only to these routes.
    pub(super) fn generates(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Completions
                | Self::Messages
                | Self::Responses
                | Self::Embeddings
                | Self::Rerank
                | Self::Images
                | Self::Transcriptions
                | Self::Speech
                | Self::Moderations
        )
    }

    /// Returns true if errors are in the messages dialect's envelope.
    pub(super) fn is_messages(self) -> bool {
        self.dialect() == SimulatedDialect::Messages
    }

    /// Returns the dialect of answers.
    pub(super) fn dialect(self) -> SimulatedDialect {
        match self {
            Self::Messages | Self::CountTokens => SimulatedDialect::Messages,
            Self::Responses => SimulatedDialect::Responses,
            _ => SimulatedDialect::Chat,
        }
    }
}
