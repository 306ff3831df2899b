//! Treatment of request members. A member that would change the answer, or that refers to state which the gateway does
//! not store, is supported or refused by name; a member without an effect on the answer may be dropped.
//!
//! [`KNOWN_MEMBERS`] lists every top-level member of the current client libraries for conversations, and members of
//! other services that change the meaning of a request; further tables list refused members of single endpoints. A
//! member outside the tables is forwarded or dropped by the rules of its dialect, so that clients with a new beta
//! continue to work. `testdata/sdk_members.txt` lists the members of the libraries, and `tests/sdk/run members`
//! compares it with them.

mod foreign;
mod other_kinds;
mod refusal;

pub use foreign::{
    COMMON_REFUSED_MEMBERS, REFUSED_EMBEDDING_MEMBERS, REFUSED_MESSAGES_MEMBERS, REFUSED_RERANK_MEMBERS,
};
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
    /// Name of a region outside the European Union.
    OutsideEu,
    /// List of context edits that contains an edit which summarises or removes content that the model would read.
    ContextEdits,
    /// Payment by another party than the holder of the key.
    ThirdPartyPayment,
    /// Object whose `mode` is not `off`.
    ModeNotOff,
    /// Value other than `null` and 1.
    SeveralChoices,
    /// Object with a member that excludes providers of the model, or that orders them.
    ProviderConstraints,
    /// Object `nvext` with a member that constrains the answer, such as `guided_json`.
    GuidedMembers,
    /// Object with a member `prewarm`, which requests no answer.
    Prewarm,
    /// Object with a member other than `completion_window` of `soonest`, or another value that is not empty.
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

/// Table of all listed members, sorted by dialect and name.
#[rustfmt::skip]
pub const KNOWN_MEMBERS: &[KnownMember] = &[
    chat("access_programs", Harmless, "access programme of the vendor"),
    chat("assistant_id", Refused(Present), "the gateway stores no assistants; send instructions and tools in the request"),
    chat("audio", Refused(Present), "audio output is not supported"),
    chat("background", Refused(NonEmpty), "background responses are made at /v1/responses; use it, or a batch"),
    chat("background_options", Refused(NonEmpty), "background responses are made at /v1/responses; use it, or a batch"),
    chat("cachedContent", Refused(Present), "the gateway stores no cached contents; send them in `messages`"),
    chat("cached_content", Refused(Present), "the gateway stores no cached contents; send them in `messages`"),
    chat("container", Refused(Present), "the gateway has no containers"),
    chat("context_management", Refused(NonEmpty), "the gateway does not shorten conversations"),
    chat("conversation", Refused(Present), "the gateway stores no conversations; send the whole history in `messages`"),
    chat("data_sources", Refused(NonEmpty), "the gateway searches no data sources; send their texts in `messages`"),
    chat("frequency_penalty", Supported, "sampling"),
    chat("function_call", Supported, "older form of `tool_choice`"),
    chat("functions", Supported, "older form of `tools`"),
    chat("image", Refused(Present), "images are generated at /v1/images/generations"),
    chat("include", Harmless, "requests more output of tools that the gateway does not run"),
    chat("input", Refused(NonEmpty), "this endpoint reads `messages`"),
    chat("instructions", Refused(NonEmpty), "this endpoint reads `messages`; send a message of the role \"system\""),
    chat("logit_bias", Supported, "token bias"),
    chat("logprobs", Supported, "log probabilities"),
    chat("max_completion_tokens", Supported, "cap on generated tokens"),
    chat("max_new_tokens", Supported, "cap on generated tokens, under the name of engines"),
    chat("max_output_tokens", Supported, "cap on generated tokens, under the name of another endpoint of the vendor"),
    chat("max_tokens", Supported, "cap on generated tokens"),
    chat("max_tool_calls", Harmless, "limits tools that the gateway does not run"),
    chat("mcp_servers", Refused(NonEmpty), "MCP servers are not supported; declare their tools instead"),
    chat("messages", Supported, "the conversation"),
    chat("metadata", Harmless, "never forwarded"),
    chat("modalities", Supported, "`text` only; others are refused"),
    chat("model", Supported, "the model"),
    chat("moderation", Refused(NonEmpty), "moderation of requests and answers is not supported"),
    chat("n", Supported, "number of candidates"),
    chat("num_predict", Supported, "cap on generated tokens, under the name of a model runner"),
    chat("nvext", Refused(GuidedMembers), "send the constraint at the top of the request"),
    chat("parallel_tool_calls", Supported, "enforced by the gateway"),
    chat("plugins", Refused(NonEmpty), "plugins are not supported"),
    chat("prediction", Harmless, "makes the same answer faster"),
    chat("presence_penalty", Supported, "sampling"),
    chat("previous_response_id", Refused(Present), "the gateway stores no answers; send the whole history in `messages`"),
    chat("prompt", Refused(Present), "the gateway stores no prompt templates; send the text in `messages`"),
    chat("prompt_cache_key", Harmless, "the engine's prompt cache needs no key"),
    chat("prompt_cache_options", Refused(Prewarm), "the engine manages its prompt cache; a request without an answer is not offered"),
    chat("prompt_cache_retention", Harmless, "the engine manages its prompt cache"),
    chat("provider", Refused(ProviderConstraints), "choose providers by `filters` or a flavor"),
    chat("reasoning", Supported, "`effort`, as `reasoning_effort`"),
    chat("reasoning_effort", Supported, "amount of reasoning"),
    chat("response_format", Supported, "format of the answer"),
    chat("safety_identifier", Harmless, "never forwarded"),
    chat("search_parameters", Refused(ModeNotOff), "web search is not supported"),
    chat("seed", Supported, "sampling"),
    chat("service_tier", Harmless, "capacity class of the vendor"),
    chat("session_params", Refused(NonEmpty), "the gateway stores no sessions; send the whole history in `messages`"),
    chat("stop", Supported, "enforced by the gateway if the provider accepts fewer"),
    chat("stop_sequences", Refused(NonEmpty), "this endpoint reads `stop`"),
    chat("store", Harmless, "the gateway stores no answers; the answer itself is the same"),
    chat("stream", Supported, "server-sent events"),
    chat("stream_options", Supported, "`include_usage`"),
    chat("temperature", Supported, "sampling"),
    chat("text", Refused(NestedFormat), "this endpoint reads `response_format`"),
    chat("thread", Refused(Present), "the gateway stores no conversations; send the whole history in `messages`"),
    chat("tool_choice", Supported, "choice of the tool"),
    chat("tools", Supported, "functions; others are refused"),
    chat("top_logprobs", Supported, "log probabilities"),
    chat("top_p", Supported, "sampling"),
    chat("truncation", Harmless, "a conversation that does not fit is refused"),
    chat("user", Harmless, "never forwarded"),
    chat("verbosity", Engine, "length of the answer"),
    chat("web_search_options", Refused(Present), "web search is not supported"),
    messages("assistant_id", Refused(Present), "the gateway stores no assistants; send instructions and tools in the request"),
    messages("background", Refused(NonEmpty), "background responses are made at /v1/responses; use it, or a batch"),
    messages("betas", Harmless, "beta features are requested by their own members"),
    messages("billing_policy", Refused(ThirdPartyPayment), "requests are paid by the account of the key"),
    messages("cache_control", Harmless, "the engine manages its prompt cache; forwarded to providers of the messages dialect"),
    messages("cached_content", Refused(Present), "the gateway stores no cached contents; send them in `messages`"),
    messages("compaction", Refused(Present), "the gateway does not summarise conversations; ask for a summary in `messages`"),
    messages("container", Refused(Present), "the gateway has no containers"),
    messages("context_management", Refused(ContextEdits), "the gateway does not shorten conversations; send what the model is to read"),
    messages("conversation", Refused(Present), "the gateway stores no conversations; send the whole history in `messages`"),
    messages("diagnostics", Harmless, "reports why a prompt was not cached"),
    messages("fallback_credit_token", Harmless, "a discount of the vendor"),
    messages("fallbacks", Harmless, "a refusal by the model is returned; the operator configures other models"),
    messages("inference_geo", Refused(OutsideEu), "all providers are in the European Union"),
    messages("logit_bias", Refused(NonEmpty), "this endpoint has no token bias; use /v1/chat/completions"),
    messages("max_tokens", Supported, "cap on generated tokens"),
    messages("mcp_servers", Refused(NonEmpty), "MCP servers are not supported; declare their tools instead"),
    messages("messages", Supported, "the conversation"),
    messages("metadata", Harmless, "never forwarded"),
    messages("model", Supported, "the model"),
    messages("output_config", Supported, "`effort` and `format`"),
    messages("output_format", Supported, "older form of `output_config.format`"),
    messages("parallel_tool_calls", Supported, "enforced by the gateway, like `tool_choice.disable_parallel_tool_use`"),
    messages("previous_response_id", Refused(Present), "the gateway stores no answers; send the whole history in `messages`"),
    messages("prompt", Refused(Present), "the gateway stores no prompt templates; send the text in `messages`"),
    messages("provider", Refused(ProviderConstraints), "choose providers by `filters` or a flavor"),
    messages("response_format", Refused(FormatNotText), "this endpoint reads `output_config.format`"),
    messages("service_tier", Harmless, "capacity class of the vendor"),
    messages("speed", Harmless, "capacity class of the vendor; the flavor `:speed` chooses the provider"),
    messages("stop", Refused(NonEmpty), "this endpoint reads `stop_sequences`"),
    messages("stop_sequences", Supported, "enforced by the gateway if the provider accepts fewer"),
    messages("stream", Supported, "server-sent events"),
    messages("system", Supported, "the system prompt"),
    messages("temperature", Supported, "sampling"),
    messages("thinking", Supported, "switch of thinking and of its display"),
    messages("thread", Refused(Present), "the gateway stores no conversations; send the whole history without `thread`"),
    messages("tool_choice", Supported, "choice of the tool"),
    messages("tools", Supported, "tools that the client runs; others are refused"),
    messages("top_k", Supported, "sampling"),
    messages("top_p", Supported, "sampling"),
    messages("user_profile_id", Harmless, "sent as a header"),
    messages("workspace_id", Harmless, "sent as a header"),
    responses("access_programs", Harmless, "access programme of the vendor"),
    responses("assistant_id", Refused(Present), "the gateway stores no assistants; send instructions and tools in the request"),
    responses("background", Supported, "`true` runs the response in the background, for keys that may store responses"),
    responses("background_options", Refused(BackgroundWindow), "a background response starts as soon as possible; send \"completion_window\": \"soonest\", or leave it out"),
    responses("cached_content", Refused(Present), "the gateway stores no cached contents; send them in `input`"),
    responses("client_metadata", Harmless, "never forwarded"),
    responses("context_management", Refused(NonEmpty), "the gateway does not shorten conversations"),
    responses("conversation", Refused(Present), "the gateway stores no conversations; send the whole history in `input`"),
    responses("function_call", Refused(NonEmpty), "this endpoint reads `tool_choice`"),
    responses("functions", Refused(NonEmpty), "this endpoint reads `tools`"),
    responses("image", Harmless, "compression of the vendor"),
    responses("include", Supported, "`reasoning.encrypted_content` and `message.output_text.logprobs`"),
    responses("input", Supported, "the conversation"),
    responses("instructions", Supported, "the system prompt"),
    responses("max_output_tokens", Supported, "cap on generated tokens"),
    responses("max_tool_calls", Harmless, "limits tools that the gateway does not run"),
    responses("messages", Refused(NonEmpty), "this endpoint reads `input`"),
    responses("metadata", Harmless, "repeated in the answer; never forwarded"),
    responses("model", Supported, "the model"),
    responses("moderation", Refused(NonEmpty), "moderation of requests and answers is not supported"),
    responses("n", Refused(SeveralChoices), "a response has one answer"),
    responses("nvext", Refused(GuidedMembers), "send the constraint at the top of the request"),
    responses("parallel_tool_calls", Supported, "enforced by the gateway"),
    responses("previous_response_id", Supported, "a stored response; refused if it is not stored"),
    responses("prompt", Refused(Present), "the gateway stores no prompt templates; send the text in `input`"),
    responses("prompt_cache_key", Harmless, "the engine's prompt cache needs no key"),
    responses("prompt_cache_options", Refused(Prewarm), "the engine manages its prompt cache; a request without an answer is not offered"),
    responses("prompt_cache_retention", Harmless, "the engine manages its prompt cache"),
    responses("provider", Refused(ProviderConstraints), "choose providers by `filters` or a flavor"),
    responses("reasoning", Supported, "`effort` and `summary`"),
    responses("response_format", Refused(FormatNotText), "this endpoint reads `text.format`"),
    responses("safety_identifier", Harmless, "never forwarded"),
    responses("service_tier", Harmless, "capacity class of the vendor"),
    responses("stop_sequences", Refused(NonEmpty), "this endpoint reads `stop`"),
    responses("store", Supported, "`true` stores the response if the key may store; the answer says what holds"),
    responses("stream", Supported, "server-sent events"),
    responses("stream_options", Harmless, "the gateway adds no padding to events"),
    responses("temperature", Supported, "sampling"),
    responses("text", Supported, "`format` and `verbosity`"),
    responses("thread", Refused(Present), "the gateway stores no conversations; send the whole history in `input`"),
    responses("tool_choice", Supported, "choice of the tool"),
    responses("tools", Supported, "functions and custom tools; others are refused"),
    responses("top_logprobs", Supported, "log probabilities"),
    responses("top_p", Supported, "sampling"),
    responses("truncation", Harmless, "a conversation that does not fit is refused"),
    responses("user", Harmless, "never forwarded"),
];

/// Returns the table row of a member.
fn find_member(dialect: Dialect, name: &str) -> Option<&'static KnownMember> {
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

/// Members that control the answer at other endpoints, and that `/v1/completions` refuses because it does not support
/// them.
pub const REFUSED_COMPLETION_MEMBERS: &[RefusedMember] = &[
    ("assistant_id", Present, "the gateway stores no assistants"),
    ("background", NonEmpty, "background responses are made at /v1/responses; use it, or a batch"),
    ("cached_content", Present, "the gateway stores no cached contents"),
    ("chat_template_kwargs", NonEmpty, "a completion has no chat template; use /v1/chat/completions"),
    ("container", Present, "the gateway has no containers"),
    ("context", NonEmpty, "the gateway stores no contexts; send the whole text in `prompt`"),
    ("context_management", NonEmpty, "the gateway does not shorten prompts"),
    ("conversation", Present, "the gateway stores no conversations"),
    ("data_sources", NonEmpty, "the gateway searches no data sources; send their texts in `prompt`"),
    ("enable_thinking", NonEmpty, "a completion has no reasoning; use /v1/chat/completions"),
    ("format", NonEmpty, "send `response_format`"),
    ("functions", NonEmpty, "a completion has no tools; use /v1/chat/completions"),
    ("image", NonEmpty, "a completion reads no images; use /v1/chat/completions"),
    ("images", NonEmpty, "a completion reads no images; use /v1/chat/completions"),
    ("input", NonEmpty, "this endpoint reads `prompt`"),
    ("input_extra", NonEmpty, "send the whole text in `prompt`"),
    ("input_prefix", NonEmpty, "send the text in `prompt`"),
    ("input_suffix", NonEmpty, "send the text in `suffix`"),
    ("instructions", NonEmpty, "this endpoint reads `prompt`"),
    ("mcp_servers", NonEmpty, "MCP servers are not supported"),
    ("messages", NonEmpty, "this endpoint reads `prompt`; use /v1/chat/completions"),
    ("nvext", GuidedMembers, "send the constraint at the top of the request"),
    ("options", NonEmpty, "send the options at the top of the request"),
    ("previous_response_id", Present, "the gateway stores no answers"),
    (
        "prompt_cache_options",
        Prewarm,
        "the engine manages its prompt cache; a request without an answer is not offered",
    ),
    ("prompt_embeds", NonEmpty, "send a text or token ids in `prompt`"),
    ("provider", ProviderConstraints, "choose providers by `filters` or a flavor"),
    ("raw", NonEmpty, "the provider decides on the template of a prompt; leave it out"),
    ("reasoning", NonEmpty, "a completion has no reasoning; use /v1/chat/completions"),
    ("reasoning_effort", NonEmpty, "a completion has no reasoning; use /v1/chat/completions"),
    ("session_params", NonEmpty, "the gateway stores no sessions"),
    ("stop_sequences", NonEmpty, "this endpoint reads `stop`"),
    ("system", NonEmpty, "a completion has no roles; use /v1/chat/completions"),
    ("template", NonEmpty, "the template of a prompt cannot be set"),
    ("thinking", NonEmpty, "a completion has no reasoning; use /v1/chat/completions"),
    ("thread", Present, "the gateway stores no conversations"),
    ("tools", NonEmpty, "a completion has no tools; use /v1/chat/completions"),
    ("web_search_options", Present, "web search is not supported"),
];

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

/// Error for `thread`. The client library recognises it by `error_code` and `unsupported`, and then sends the complete
/// history.
fn thread_error(path: &FieldPath<'_>) -> ApiError {
    let refusal = path
        .unsupported_error("the gateway stores no conversations; send the whole history without `thread`");
    let code = refusal.spec().code;
    refusal
        .with_details_member("error_code", "thread_unsupported_request")
        .with_details_member("unsupported", vec!["thread"])
        .with_details_member("code", code)
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
