//! Treatment of request members. A member that would change the answer, or that refers to state which the gateway does
//! not store, is supported or refused by name; a member without an effect on the answer may be dropped.
//!
//! [`KNOWN_MEMBERS`] lists every top-level member of the current client libraries for conversations, and members of
//! other services that change the meaning of a request; [`NESTED_MESSAGES_MEMBERS`] lists those of the objects inside a
//! messages request; further tables list refused members of single endpoints. A member outside the tables is forwarded
//! or dropped by the rules of its dialect, so that clients with a new beta continue to work. The file
//! `testdata/sdk_members.txt` has the members of the libraries; `tests/sdk/run members` compares it with them.

mod completion;
mod foreign;
mod nested;
mod other_kinds;
mod refusal;

pub use completion::REFUSED_COMPLETION_MEMBERS;
pub use foreign::{
    COMMON_REFUSED_MEMBERS, REFUSED_EMBEDDING_MEMBERS, REFUSED_MESSAGES_MEMBERS, REFUSED_RERANK_MEMBERS,
};
pub use nested::{NESTED_MESSAGES_MEMBERS, NestedMember, NestedTreatment};
pub use other_kinds::{REFUSED_IMAGE_MEMBERS, REFUSED_MODERATION_MEMBERS, REFUSED_SPEECH_MEMBERS};

use crate::body::RootObject;
use crate::field_path::FieldPath;
use penstock_core::{ApiError, Dialect};

/// Way in which the gateway treats a request member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberTreatment {
    /// Forwarded to the provider, or enforced by the gateway.
    Supported,
    /// Refused by name for the values that request the feature.
    Refused(RefusedValues),
    /// Dropped, or forwarded to a provider that knows the member: it does not change the answer.
    Harmless,
    /// Handled by the table of engine parameters in the dialect crate.
    Engine,
}

/// Values of a refused member that request the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedValues {
    /// Value other than `null`.
    Present,
    /// Value other than `null`, `false`, `""`, `{}` and `[]`.
    NonEmpty,
    /// Name of a region that neither lies in the European Union nor includes it; also a value that is no string.
    OutsideEu,
    /// Object whose list `edits` contains an edit that summarises or removes content that the model would read; also a
    /// value that is no object, or whose `edits` is no list.
    ContextEdits,
    /// Payment by another party than the holder of the key.
    ThirdPartyPayment,
    /// Value that is not empty and whose `mode` is not `off`. The default mode searches.
    ModeNotOff,
    /// Value other than `null` and 1.
    SeveralChoices,
    /// Object with a member that excludes providers of the model, or that orders them.
    ProviderConstraints,
    /// Choice of a tool that requires a call: a value that is not empty, other than `auto` and `none`.
    ForcedTool,
    /// Object `nvext` with a member that constrains the answer, such as `guided_json`.
    GuidedMembers,
    /// Object whose member `prewarm` is not empty: such a request fills the prompt cache and gets no answer.
    Prewarm,
    /// Object with a member whose value is not empty, other than `"completion_window": "soonest"`; also a value of
    /// another type that is not empty. A value is empty as for [`RefusedValues::NonEmpty`].
    BackgroundWindow,
    /// Value that is not empty, except an object whose `type` is `text`.
    FormatNotText,
    /// Object with a member `format` that has a value of [`RefusedValues::FormatNotText`].
    NestedFormat,
    /// List with a modality other than `text`, or a value that is no list.
    NonTextModalities,
    /// Number format of vectors other than `float`.
    NotFloat,
    /// Number format of vectors other than 32-bit floating point.
    NotFloat32,
    /// Byte order other than `native` and `little`.
    BigEndian,
    /// Value other than `null` and `true`.
    NotTrue,
    /// Object `options` of a model runner such as Ollama, with `stop`, `format` or a `num_predict` of at least 0.
    RunnerOptions,
}

/// Top-level request member that the gateway knows, with the way it is treated.
#[derive(Clone, Copy, Debug)]
pub struct KnownMember {
    /// Name in the body.
    pub name: &'static str,
    /// Dialect whose requests may have the member.
    pub dialect: Dialect,
    /// Treatment of the member.
    pub treatment: MemberTreatment,
    /// Purpose of the member, or the reason for refusing it, written as the end of a sentence.
    pub description: &'static str,
}

const fn chat(name: &'static str, treatment: MemberTreatment, about: &'static str) -> KnownMember {
    KnownMember { name, dialect: Dialect::Chat, treatment, description: about }
}

const fn messages(name: &'static str, treatment: MemberTreatment, about: &'static str) -> KnownMember {
    KnownMember { name, dialect: Dialect::Messages, treatment, description: about }
}

const fn responses(name: &'static str, treatment: MemberTreatment, about: &'static str) -> KnownMember {
    KnownMember { name, dialect: Dialect::Responses, treatment, description: about }
}

use MemberTreatment::{Engine, Harmless, Refused, Supported};
use RefusedValues::{
    BackgroundWindow, ContextEdits, FormatNotText, GuidedMembers, ModeNotOff, NestedFormat, NonEmpty,
    OutsideEu, Present, Prewarm, ProviderConstraints, SeveralChoices, ThirdPartyPayment,
};

/// Table of the top-level members of conversation requests, sorted by dialect and name.
#[rustfmt::skip]
pub const KNOWN_MEMBERS: &[KnownMember] = &[
    chat("access_programs", Harmless, "vendor-specific access program"),
    chat("assistant_id", Refused(Present), "assistants are not supported; send instructions and tools in the request"),
    chat("audio", Refused(Present), "audio output is not supported"),
    chat("background", Refused(NonEmpty), "background responses are created at /v1/responses; use it, or a batch"),
    chat("background_options", Refused(NonEmpty), "background responses are created at /v1/responses; use it, or a batch"),
    chat("cache_control", Harmless, "forwarded only to providers of the messages dialect: the last 4 of those in tools, messages, content parts and the request; other inference engines manage their prompt cache"),
    chat("cachedContent", Refused(Present), "stored cached contents are not supported; send the content in `messages`"),
    chat("cached_content", Refused(Present), "stored cached contents are not supported; send the content in `messages`"),
    chat("container", Refused(Present), "containers are not supported"),
    chat("context_management", Refused(NonEmpty), "context editing is not supported"),
    chat("conversation", Refused(Present), "stored conversations are not supported; send the whole history in `messages`"),
    chat("data_sources", Refused(NonEmpty), "data sources are not supported; send their text in `messages`"),
    chat("frequency_penalty", Supported, "sampling parameter"),
    chat("function_call", Supported, "legacy form of `tool_choice`"),
    chat("functions", Supported, "legacy form of `tools`"),
    chat("image", Refused(Present), "images are generated at /v1/images/generations"),
    chat("include", Harmless, "requests additional output of server-side tools, which the gateway does not run"),
    chat("input", Refused(NonEmpty), "use `messages` instead"),
    chat("instructions", Refused(NonEmpty), "use a message with the role \"system\" in `messages` instead"),
    chat("logit_bias", Supported, "token bias; refused if no offer lists it in `supported_parameters`"),
    chat("logprobs", Supported, "log probabilities; refused if no offer lists it in `supported_parameters`"),
    chat("max_completion_tokens", Supported, "maximum number of generated tokens"),
    chat("max_new_tokens", Supported, "maximum number of generated tokens, as some inference engines name it"),
    chat("max_output_tokens", Supported, "maximum number of generated tokens, as /v1/responses names it"),
    chat("max_tokens", Supported, "maximum number of generated tokens"),
    chat("max_tool_calls", Harmless, "limits server-side tools, which the gateway does not run"),
    chat("mcp_servers", Refused(NonEmpty), "MCP servers are not supported; declare their tools instead"),
    chat("messages", Supported, "the conversation"),
    chat("metadata", Harmless, "not forwarded; `session_id`, `conversation_id`, `thread_id` or `user_id` in it can identify the session for routing"),
    chat("modalities", Supported, "only `text`; other modalities are refused"),
    chat("model", Supported, "name of the model, optionally with a flavor"),
    chat("moderation", Refused(NonEmpty), "moderation of requests and responses is not supported"),
    chat("n", Supported, "number of choices"),
    chat("num_predict", Supported, "maximum number of generated tokens, as Ollama names it"),
    chat("nvext", Refused(GuidedMembers), "send the constraint as a top-level parameter"),
    chat("output_config", Refused(NestedFormat), "use `response_format` instead; `effort` has the same effect as `reasoning_effort`"),
    chat("parallel_tool_calls", Supported, "the gateway enforces `false`"),
    chat("plugins", Refused(NonEmpty), "plugins are not supported"),
    chat("prediction", Harmless, "predicted output; affects only the latency"),
    chat("presence_penalty", Supported, "sampling parameter"),
    chat("previous_response_id", Refused(Present), "stored responses are continued at /v1/responses; send the whole history in `messages`"),
    chat("prompt", Refused(Present), "stored prompt templates are not supported; send the text in `messages`"),
    chat("prompt_cache_key", Harmless, "not forwarded; identifies the session for routing"),
    chat("prompt_cache_options", Refused(Prewarm), "cache prewarming is not supported; the inference engine manages its prompt cache"),
    chat("prompt_cache_retention", Harmless, "not needed: the inference engine manages its prompt cache"),
    chat("provider", Refused(ProviderConstraints), "choose providers with `filters` or a flavor"),
    chat("reasoning", Supported, "`effort` has the same effect as `reasoning_effort`"),
    chat("reasoning_effort", Supported, "reasoning effort"),
    chat("response_format", Supported, "format of the response: text, JSON object or JSON schema"),
    chat("safety_identifier", Harmless, "not forwarded"),
    chat("search_parameters", Refused(ModeNotOff), "web search is not supported"),
    chat("seed", Supported, "sampling parameter"),
    chat("service_tier", Harmless, "vendor-specific capacity tier"),
    chat("session_params", Refused(NonEmpty), "sessions are not supported; send the whole history in `messages`"),
    chat("stop", Supported, "the gateway enforces the stop sequences that the provider does not accept"),
    chat("stop_sequences", Refused(NonEmpty), "use `stop` instead"),
    chat("store", Harmless, "chat completions are not stored"),
    chat("stream", Supported, "streams the response as server-sent events"),
    chat("stream_options", Supported, "`include_usage`"),
    chat("temperature", Supported, "sampling parameter"),
    chat("text", Refused(NestedFormat), "use `response_format` instead"),
    chat("thread", Refused(Present), "stored conversations are not supported; send the whole history in `messages`"),
    chat("tool_choice", Supported, "selects the tool that the model calls"),
    chat("tools", Supported, "tools of the type `function`; other types are refused"),
    chat("top_logprobs", Supported, "log probabilities; refused if no offer lists it in `supported_parameters`"),
    chat("top_p", Supported, "sampling parameter"),
    chat("truncation", Harmless, "the gateway does not truncate; an input that exceeds the context window is refused"),
    chat("user", Harmless, "not forwarded"),
    chat("verbosity", Engine, "requested length of the response"),
    chat("web_search_options", Refused(Present), "web search is not supported"),
    messages("assistant_id", Refused(Present), "assistants are not supported; send instructions and tools in the request"),
    messages("background", Refused(NonEmpty), "background responses are created at /v1/responses; use it, or a batch"),
    messages("betas", Harmless, "not needed: the parameters of a beta feature enable it"),
    messages("billing_policy", Refused(ThirdPartyPayment), "requests are billed to the account of the API key"),
    messages("cache_control", Harmless, "forwarded only to providers of the messages dialect; other inference engines manage their prompt cache"),
    messages("cached_content", Refused(Present), "stored cached contents are not supported; send the content in `messages`"),
    messages("compaction", Refused(Present), "compaction of conversations is not supported; request a summary in `messages`"),
    messages("container", Refused(Present), "containers are not supported"),
    messages("context_management", Refused(ContextEdits), "context editing is not supported; send only the messages that the model should read"),
    messages("conversation", Refused(Present), "stored conversations are not supported; send the whole history in `messages`"),
    messages("diagnostics", Harmless, "requests the reason why a prompt was not cached"),
    messages("fallback_credit_token", Harmless, "vendor-specific discount"),
    messages("fallbacks", Harmless, "not used; the operator configures fallback models"),
    messages("inference_geo", Refused(OutsideEu), "all providers are in the European Union; a single country cannot be chosen"),
    messages("logit_bias", Refused(NonEmpty), "token bias is not supported at this endpoint; use /v1/chat/completions"),
    messages("max_tokens", Supported, "maximum number of generated tokens; required"),
    messages("mcp_servers", Refused(NonEmpty), "MCP servers are not supported; declare their tools instead"),
    messages("messages", Supported, "the conversation"),
    messages("metadata", Harmless, "not forwarded; `session_id`, `conversation_id`, `thread_id` or `user_id` in it can identify the session for routing"),
    messages("model", Supported, "name of the model, optionally with a flavor"),
    messages("output_config", Supported, "`effort` and `format`"),
    messages("output_format", Supported, "legacy form of `output_config.format`"),
    messages("parallel_tool_calls", Supported, "the gateway enforces `false`; same effect as `tool_choice.disable_parallel_tool_use`"),
    messages("previous_response_id", Refused(Present), "stored responses are continued at /v1/responses; send the whole history in `messages`"),
    messages("prompt", Refused(Present), "stored prompt templates are not supported; send the text in `messages`"),
    messages("provider", Refused(ProviderConstraints), "choose providers with `filters` or a flavor"),
    messages("response_format", Refused(FormatNotText), "use `output_config.format` instead"),
    messages("service_tier", Harmless, "vendor-specific capacity tier"),
    messages("speed", Harmless, "vendor-specific capacity tier; the flavor `:speed` selects a fast provider"),
    messages("stop", Refused(NonEmpty), "use `stop_sequences` instead"),
    messages("stop_sequences", Supported, "the gateway enforces the stop sequences that the provider does not accept"),
    messages("stream", Supported, "streams the response as server-sent events"),
    messages("system", Supported, "the system prompt"),
    messages("temperature", Supported, "sampling parameter"),
    messages("thinking", Supported, "enables or disables thinking, and selects its display"),
    messages("thread", Refused(Present), "stored conversations are not supported; send the whole history instead"),
    messages("tool_choice", Supported, "selects the tool that the model calls"),
    messages("tools", Supported, "tools that the client runs (type `custom`); other types are refused"),
    messages("top_k", Supported, "sampling parameter"),
    messages("top_p", Supported, "sampling parameter"),
    messages("user_profile_id", Harmless, "client libraries send it as a header"),
    messages("workspace_id", Harmless, "client libraries send it as a header"),
    responses("access_programs", Harmless, "vendor-specific access program"),
    responses("assistant_id", Refused(Present), "assistants are not supported; send instructions and tools in the request"),
    responses("background", Supported, "`true` runs the response in the background; only for API keys that may store responses"),
    responses("background_options", Refused(BackgroundWindow), "a background response starts as soon as possible; send \"completion_window\": \"soonest\", or leave it out"),
    responses("cached_content", Refused(Present), "stored cached contents are not supported; send the content in `input`"),
    responses("client_metadata", Harmless, "not forwarded"),
    responses("context_management", Refused(NonEmpty), "context editing is not supported"),
    responses("conversation", Refused(Present), "stored conversations are not supported; send the whole history in `input`, or use `previous_response_id`"),
    responses("function_call", Refused(NonEmpty), "use `tool_choice` instead"),
    responses("functions", Refused(NonEmpty), "use `tools` instead"),
    responses("image", Harmless, "vendor-specific image compression"),
    responses("include", Supported, "`reasoning.encrypted_content` and `message.output_text.logprobs`; the other values of the vendor have no effect, and unknown values are refused"),
    responses("input", Supported, "the conversation"),
    responses("instructions", Supported, "the system prompt"),
    responses("max_output_tokens", Supported, "maximum number of generated tokens"),
    responses("max_tool_calls", Harmless, "limits server-side tools, which the gateway does not run"),
    responses("messages", Refused(NonEmpty), "use `input` instead"),
    responses("metadata", Harmless, "returned in the response and not forwarded; `session_id`, `conversation_id`, `thread_id` or `user_id` in it can identify the session for routing"),
    responses("model", Supported, "name of the model, optionally with a flavor"),
    responses("moderation", Refused(NonEmpty), "moderation of requests and responses is not supported"),
    responses("n", Refused(SeveralChoices), "only one choice is supported"),
    responses("nvext", Refused(GuidedMembers), "send the constraint as a top-level parameter"),
    responses("output_config", Refused(NestedFormat), "use `text.format` instead; `effort` has the same effect as `reasoning.effort`"),
    responses("parallel_tool_calls", Supported, "the gateway enforces `false`"),
    responses("previous_response_id", Supported, "continues a stored response; refused if the response is not stored"),
    responses("prompt", Refused(Present), "stored prompt templates are not supported; send the text in `input`"),
    responses("prompt_cache_key", Harmless, "not forwarded; identifies the session for routing"),
    responses("prompt_cache_options", Refused(Prewarm), "cache prewarming is not supported; the inference engine manages its prompt cache"),
    responses("prompt_cache_retention", Harmless, "not needed: the inference engine manages its prompt cache"),
    responses("provider", Refused(ProviderConstraints), "choose providers with `filters` or a flavor"),
    responses("reasoning", Supported, "`effort` and `summary`"),
    responses("response_format", Refused(FormatNotText), "use `text.format` instead"),
    responses("safety_identifier", Harmless, "not forwarded"),
    responses("service_tier", Harmless, "vendor-specific capacity tier"),
    responses("stop_sequences", Refused(NonEmpty), "use `stop` instead"),
    responses("store", Supported, "`true` stores the response if the API key may store responses; `store` in the response states the result"),
    responses("stream", Supported, "streams the response as server-sent events"),
    responses("stream_options", Harmless, "`include_obfuscation` has no effect: the gateway does not pad events"),
    responses("temperature", Supported, "sampling parameter"),
    responses("text", Supported, "`format` and `verbosity`"),
    responses("thread", Refused(Present), "stored conversations are not supported; send the whole history in `input`"),
    responses("tool_choice", Supported, "selects the tool that the model calls"),
    responses("tools", Supported, "tools of the types `function`, `custom` and `namespace`; other types are refused"),
    responses("top_logprobs", Supported, "log probabilities; refused if no offer lists it in `supported_parameters`"),
    responses("top_p", Supported, "sampling parameter"),
    responses("truncation", Harmless, "the gateway does not truncate; an input that exceeds the context window is refused"),
    responses("user", Harmless, "not forwarded"),
];

/// Returns the row of a member in [`KNOWN_MEMBERS`]; `None` if it has none.
pub(crate) fn find_member(dialect: Dialect, name: &str) -> Option<&'static KnownMember> {
    let at = KNOWN_MEMBERS
        .binary_search_by(|row| (row.dialect as u8, row.name).cmp(&(dialect as u8, name)))
        .ok()?;
    KNOWN_MEMBERS.get(at)
}

/// Refuses members that would change the meaning of the request if they were dropped.
///
/// # Errors
/// Returns `Unsupported` with the member's name; for `thread`, the error has the form that the client library
/// recognises.
pub(crate) fn refuse_unsupported_members(top: &RootObject<'_>, dialect: Dialect) -> Result<(), ApiError> {
    if dialect == Dialect::Messages && top.get("thread").is_some() {
        return Err(thread_error(&top.member_path("thread")));
    }
    refuse_members(top, |name| match find_member(dialect, name) {
        Some(KnownMember { treatment: Refused(asks), description: about, .. }) => Some((*asks, *about)),
        Some(_) => None,
        None if dialect == Dialect::Messages => find_refused(REFUSED_MESSAGES_MEMBERS, name)
            .or_else(|| find_refused(COMMON_REFUSED_MEMBERS, name)),
        None => find_refused(COMMON_REFUSED_MEMBERS, name),
    })
}

/// Refuses members: for a member's name, `refused` returns the refused values and the end of the error message.
fn refuse_members<'t>(
    top: &RootObject<'_>,
    refused: impl Fn(&str) -> Option<(RefusedValues, &'t str)>,
) -> Result<(), ApiError> {
    let found = top.present_members().find_map(|(name, value)| {
        let (asks, about) = refused(name)?;
        asks.refusal(value, &top.member_path(name), about)
    });
    found.map_or(Ok(()), Err)
}

/// Member that a table other than [`KNOWN_MEMBERS`] lists as refused: name, refused values, end of the error message.
pub type RefusedMember = (&'static str, RefusedValues, &'static str);

/// Refuses members of a text completion that would change the meaning of the request if they were dropped.
///
/// # Errors
/// Returns `Unsupported` with the member's name.
pub(crate) fn refuse_completion_members(top: &RootObject<'_>) -> Result<(), ApiError> {
    refuse_members(top, |name| {
        find_refused(REFUSED_COMPLETION_MEMBERS, name).or_else(|| find_refused(COMMON_REFUSED_MEMBERS, name))
    })
}

/// Refuses the members of a table, if their values request the refused feature.
///
/// # Errors
/// Returns `Unsupported` with the member's name.
pub(crate) fn refuse_listed_members(top: &RootObject<'_>, rows: &[RefusedMember]) -> Result<(), ApiError> {
    refuse_members(top, |name| find_refused(rows, name))
}

fn find_refused(rows: &[RefusedMember], name: &str) -> Option<(RefusedValues, &'static str)> {
    rows.iter().find(|(known, ..)| *known == name).map(|(_, asks, about)| (*asks, *about))
}

/// Returns the error for `thread`. The client library recognises it by `error_code` and `unsupported`, and then sends
/// the complete history.
fn thread_error(path: &FieldPath<'_>) -> ApiError {
    let refusal =
        path.unsupported_error("stored conversations are not supported; send the whole history instead");
    let code = refusal.spec().code;
    refusal
        .with_details_member("error_code", "thread_unsupported_request")
        .with_details_member("unsupported", vec!["thread"])
        .with_details_member("code", code)
}

#[cfg(test)]
mod schema_name_tests;
#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
#[cfg(test)]
mod thread_tests;
