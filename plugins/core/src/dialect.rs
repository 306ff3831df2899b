//! Dialects of clients and providers, and the table of their properties.

/// Wire format of requests and responses, of the client or of the provider.
///
/// The rows of [`DIALECTS`] hold the differences between the dialects. A `match` on a dialect in another crate has a
/// wildcard arm for all dialects that it does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dialect {
    /// Chat completions (`/v1/chat/completions`).
    Chat,
    /// Messages (`/v1/messages`).
    Messages,
    /// Responses (`/v1/responses`).
    Responses,
}

/// Form of a validated request body. A request of the responses dialect has no form of its own: validation converts it
/// to the chat form, so that counting, translation and constraints are implemented once for each form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBodyFormat {
    /// Body of chat completions.
    Chat,
    /// Body of messages.
    Messages,
}

/// JSON structure of error bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorEnvelope {
    /// `{"error":{"message","type","code","param"}}`.
    Chat,
    /// `{"type":"error","error":{"type","message"}}`.
    Messages,
}

/// Format of the header with the time at which a rate limit is fully restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitResetFormat {
    /// Duration until the reset, such as `6m0s`.
    Duration,
    /// Timestamp of RFC 3339.
    Timestamp,
}

/// Header that carries the key to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `Authorization: Bearer …`.
    Bearer,
    /// `x-api-key`.
    ApiKey,
}

/// Form of the model name that an answer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerModelName {
    /// Model name without the flavor suffix.
    WithoutFlavor,
    /// Model name exactly as the client sent it, because clients compare the two.
    AsSent,
}

/// HTTP conventions that a family of dialects shares.
#[derive(Debug)]
pub struct HttpConventions {
    /// Header in which providers expect the API key.
    pub key_header: KeyHeader,
    /// Further header that providers expect, with its value.
    pub version_header: Option<(&'static str, &'static str)>,
    /// JSON structure of error bodies.
    pub error_envelope: ErrorEnvelope,
    /// Schema of error bodies in the OpenAPI document.
    pub error_schema: &'static str,
    /// Header names for limit, remaining and reset of requests.
    pub request_limit_headers: [&'static str; 3],
    /// Header names for limit, remaining and reset of tokens.
    pub token_limit_headers: [&'static str; 3],
    /// Format of the reset headers.
    pub reset_format: RateLimitResetFormat,
}

/// Properties of a dialect.
#[derive(Debug)]
pub struct DialectSpec {
    /// Dialect whose properties the row describes.
    pub dialect: Dialect,
    /// Name in the configuration, logs and metrics.
    pub name: &'static str,
    /// Prefix of the paths whose errors are written in this dialect; `None` for a dialect of providers only.
    pub client_path_prefix: Option<&'static str>,
    /// Path below a provider's base URL.
    pub provider_path: &'static str,
    /// Form of request bodies after validation.
    pub request_body_format: RequestBodyFormat,
    /// Conventions of headers and errors.
    pub http: &'static HttpConventions,
    /// Form of the model name that answers contain.
    pub answer_model: AnswerModelName,
    /// True if providers of this dialect may have the endpoint for text completions.
    pub has_completions: bool,
    /// True if some engines of this dialect report the usage after the end event of a stream.
    pub reports_usage_late: bool,
    /// True if a request of the dialect may have several choices.
    pub has_choices: bool,
    /// True if a request needs a cap on generated tokens.
    pub requires_max_tokens: bool,
    /// True if requests of this dialect can have stop sequences. The gateway enforces them itself if the provider's
    /// dialect has none.
    pub has_stop_sequences: bool,
    /// True if a provider of this dialect can continue a last message of the assistant (prefill).
    pub continues_messages: bool,
    /// Path of the member that holds the content of the conversation, for `param` of errors.
    pub content_error_path: &'static str,
    /// Path of the member that holds the requested format of the answer, for `param` of errors.
    pub format_error_path: &'static str,
    /// Top-level members with a different name in this dialect: pairs of the name in the chat form and the dialect's
    /// name.
    pub member_names: &'static [(&'static str, &'static str)],
}

const CHAT_CONVENTIONS: HttpConventions = HttpConventions {
    key_header: KeyHeader::Bearer,
    version_header: None,
    error_envelope: ErrorEnvelope::Chat,
    error_schema: "ChatError",
    request_limit_headers: [
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    ],
    token_limit_headers: [
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
    ],
    reset_format: RateLimitResetFormat::Duration,
};

const MESSAGES_CONVENTIONS: HttpConventions = HttpConventions {
    key_header: KeyHeader::ApiKey,
    version_header: Some(("anthropic-version", "2023-06-01")),
    error_envelope: ErrorEnvelope::Messages,
    error_schema: "MessagesError",
    request_limit_headers: [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    token_limit_headers: [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
    reset_format: RateLimitResetFormat::Timestamp,
};

const CHAT: DialectSpec = DialectSpec {
    dialect: Dialect::Chat,
    name: "chat",
    client_path_prefix: Some("/v1/chat"),
    provider_path: "/chat/completions",
    request_body_format: RequestBodyFormat::Chat,
    http: &CHAT_CONVENTIONS,
    answer_model: AnswerModelName::WithoutFlavor,
    has_completions: true,
    reports_usage_late: true,
    has_choices: true,
    requires_max_tokens: false,
    has_stop_sequences: true,
    continues_messages: true,
    content_error_path: "messages",
    format_error_path: "response_format",
    member_names: &[],
};

const MESSAGES: DialectSpec = DialectSpec {
    dialect: Dialect::Messages,
    name: "messages",
    client_path_prefix: Some("/v1/messages"),
    provider_path: "/messages",
    request_body_format: RequestBodyFormat::Messages,
    http: &MESSAGES_CONVENTIONS,
    answer_model: AnswerModelName::AsSent,
    has_completions: false,
    reports_usage_late: false,
    has_choices: false,
    requires_max_tokens: true,
    has_stop_sequences: true,
    continues_messages: true,
    content_error_path: "messages.content",
    format_error_path: "output_config.format",
    member_names: &[
        ("response_format", "output_config.format"),
        ("reasoning_effort", "output_config.effort"),
        ("stop", "stop_sequences"),
        ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
    ],
};

const RESPONSES: DialectSpec = DialectSpec {
    dialect: Dialect::Responses,
    name: "responses",
    client_path_prefix: Some("/v1/responses"),
    provider_path: "/responses",
    request_body_format: RequestBodyFormat::Chat,
    http: &CHAT_CONVENTIONS,
    answer_model: AnswerModelName::WithoutFlavor,
    has_completions: false,
    reports_usage_late: false,
    has_choices: false,
    requires_max_tokens: false,
    has_stop_sequences: false,
    continues_messages: false,
    content_error_path: "input",
    format_error_path: "text.format",
    member_names: &[
        ("messages", "input"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("max_tokens", "max_output_tokens"),
        ("max_completion_tokens", "max_output_tokens"),
        ("logprobs", "include"),
    ],
};

/// Every dialect, in the order of [`Dialect`].
pub const DIALECTS: &[&DialectSpec] = &[&CHAT, &MESSAGES, &RESPONSES];

impl Dialect {
    /// Names of all dialects, in their order.
    pub const NAMES: [&'static str; DIALECTS.len()] = {
        let mut names = [""; DIALECTS.len()];
        let mut at = 0;
        while at < DIALECTS.len() {
            #[allow(clippy::indexing_slicing, reason = "in a constant: the compiler sees the bounds")]
            {
                names[at] = DIALECTS[at].name;
            }
            at += 1;
        }
        names
    };

    /// Returns the properties of the dialect.
    #[must_use]
    pub const fn spec(self) -> &'static DialectSpec {
        // The index is valid: the test `each_dialect_has_one_row_with_its_own_name_and_path` checks the table.
        #[allow(clippy::indexing_slicing, reason = "the table has a row for each variant")]
        DIALECTS[self as usize]
    }

    /// Returns the name in the configuration, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the dialect with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        DIALECTS.iter().find(|row| row.name == name).map(|row| row.dialect)
    }

    /// Returns the form of this dialect's request bodies after validation.
    #[must_use]
    pub const fn request_body_format(self) -> RequestBodyFormat {
        self.spec().request_body_format
    }

    /// Returns this dialect's name for the top-level member in which `path` begins (a path in the chat form), or `path`
    /// itself if the member has the same name in this dialect.
    #[must_use]
    pub fn client_member_name(self, path: &str) -> &str {
        let root = path.split(['[', '.']).next().unwrap_or(path);
        self.spec().member_names.iter().find(|(name, _)| *name == root).map_or(path, |(_, own)| own)
    }

    /// Returns this dialect's name for the member that a provider of the dialect `provider` names by `path`. If the two
    /// dialects differ, the position inside the conversation is left out, because they number its messages differently.
    #[must_use]
    pub fn name_of_provider_member(self, provider: Self, path: &str) -> &str {
        if self == provider {
            return path;
        }
        let leads_to = |own: &str| {
            path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let chat_names = provider.spec().member_names;
        let chat = chat_names.iter().find(|(_, own)| leads_to(own)).map_or(path, |(chat, _)| *chat);
        match self.client_member_name(chat) {
            own if own.starts_with("messages.") || own.starts_with("messages[") => "messages",
            own => own,
        }
    }

    /// Returns the dialect whose [`DialectSpec::client_path_prefix`] begins this path; `None` if there is none.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        let is_own = |row: &&&DialectSpec| row.client_path_prefix.is_some_and(|own| path.starts_with(own));
        DIALECTS.iter().find(is_own).map(|row| row.dialect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_one_row_with_its_own_name_and_path() {
        for (at, row) in DIALECTS.iter().enumerate() {
            assert_eq!((row.dialect as usize, row.dialect.spec().name), (at, row.name));
            assert_eq!(Dialect::from_name(row.name), Some(row.dialect));
            assert_eq!(
                row.client_path_prefix.and_then(Dialect::from_path),
                row.client_path_prefix.map(|_| row.dialect)
            );
            assert!(DIALECTS.iter().skip(at + 1).all(|other| other.name != row.name));
        }
        assert_eq!(Dialect::Responses.client_member_name("messages[3].content"), "input");
        assert_eq!(
            Dialect::Responses.client_member_name("input[0].content[1].type"),
            "input[0].content[1].type"
        );
        assert_eq!(Dialect::Chat.client_member_name("messages[3].content"), "messages[3].content");
        for (client, provider, path, expected) in [
            (Dialect::Chat, Dialect::Chat, "messages[3].content", "messages[3].content"),
            (Dialect::Chat, Dialect::Responses, "input[3].content[0].type", "messages"),
            (Dialect::Chat, Dialect::Responses, "text.format.schema", "response_format"),
            (Dialect::Chat, Dialect::Messages, "messages.2.content.0.text", "messages"),
            (Dialect::Chat, Dialect::Messages, "stop_sequences", "stop"),
            (Dialect::Messages, Dialect::Chat, "messages[3].content", "messages"),
            (Dialect::Messages, Dialect::Chat, "stop", "stop_sequences"),
            (Dialect::Messages, Dialect::Responses, "input[3].role", "messages"),
            (Dialect::Messages, Dialect::Responses, "max_output_tokens", "max_tokens"),
            (Dialect::Messages, Dialect::Chat, "temperature", "temperature"),
            (Dialect::Responses, Dialect::Chat, "messages[3].content", "input"),
            (Dialect::Responses, Dialect::Messages, "output_config.format.schema", "text.format"),
            (Dialect::Responses, Dialect::Responses, "input[3].role", "input[3].role"),
            (Dialect::Messages, Dialect::Responses, "inputs", "inputs"),
        ] {
            assert_eq!(client.name_of_provider_member(provider, path), expected, "{path}");
        }
        assert_eq!(Dialect::from_path("/v1/models"), None);
        assert_eq!(Dialect::from_path("/v1/messages/count_tokens"), Some(Dialect::Messages));
    }
}
