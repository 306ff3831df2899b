//! Members of other services, engines and endpoints that would change the answer. Endpoints for texts refuse them.

use super::RefusedMember;
use super::RefusedValues::{
    BigEndian, FormatNotText, GuidedMembers, ModeNotOff, NestedFormat, NonEmpty, NonTextModalities, NotFloat,
    NotFloat32, NotTrue, Present, ProviderConstraints, RunnerOptions, SeveralChoices,
};

const FORMAT: &str = "the format of the answer is `response_format` on chat and completions, `output_config.format` on messages and `text.format` on responses";
const HISTORY: &str = "the gateway stores no conversations; send the whole history in the request";
const LENGTH: &str = "the length of vectors cannot be set";
const NUMBERS: &str = "vectors are numbers; `encoding_format` may be `float` or `base64`";
const SCALE: &str = "scores have one scale";
const INPUT: &str = "send the conversation as messages; token ids and embeddings are not read here";
const STOP: &str = "stop sequences are `stop_sequences` on messages, and `stop` elsewhere";
const SYSTEM: &str = "the system prompt is a message of the role \"system\" on chat, `system` on messages and `instructions` on responses";
const TEXTS: &str = "the gateway stores and searches no documents; send their texts in the request";
const TOP: &str = "send its members at the top of the request, under the names of this endpoint";

/// Members that every endpoint for texts refuses, unless its own table lists them; sorted by name.
#[rustfmt::skip]
pub const COMMON_REFUSED_MEMBERS: &[RefusedMember] = &[
    ("audio", NonEmpty, "audio output is not supported"),
    ("cachedContent", Present, "the gateway stores no cached contents; send them in the request"),
    ("candidate_count", SeveralChoices, "the number of answers is `n` on chat and completions, and 1 elsewhere"),
    ("chat_history", NonEmpty, HISTORY),
    ("connectors", NonEmpty, TEXTS),
    ("custom_stopping_strings", NonEmpty, STOP),
    ("data_sources", NonEmpty, TEXTS),
    ("extra_body", NonEmpty, TOP),
    ("file_ids", NonEmpty, TEXTS),
    ("format", NonEmpty, FORMAT),
    ("generationConfig", NonEmpty, TOP),
    ("generation_config", NonEmpty, TOP),
    ("input_ids", NonEmpty, INPUT),
    ("json_mode", NonEmpty, FORMAT),
    ("max_length", NonEmpty, "the cap on generated tokens is `max_tokens`, and `max_output_tokens` on responses"),
    ("max_price", NonEmpty, "choose providers by `filters` or a flavor"),
    ("modalities", NonTextModalities, "only answers in text are supported"),
    ("num_return_sequences", SeveralChoices, "the number of answers is `n` on chat and completions, and 1 elsewhere"),
    ("nvext", GuidedMembers, TOP),
    ("options", RunnerOptions, TOP),
    ("output_config", NestedFormat, FORMAT),
    ("output_format", FormatNotText, FORMAT),
    ("preamble", NonEmpty, SYSTEM),
    ("prompt_embeds", NonEmpty, INPUT),
    ("sampling_params", NonEmpty, TOP),
    ("search_parameters", ModeNotOff, "web search is not supported"),
    ("session_params", NonEmpty, HISTORY),
    ("stop_strings", NonEmpty, STOP),
    ("stop_words", NonEmpty, STOP),
    ("stopping_strings", NonEmpty, STOP),
    ("system", NonEmpty, SYSTEM),
    ("systemInstruction", NonEmpty, SYSTEM),
    ("system_instruction", NonEmpty, SYSTEM),
    ("system_prompt", NonEmpty, SYSTEM),
    ("vector_store_ids", NonEmpty, TEXTS),
    ("web_search_options", Present, "web search is not supported"),
];

/// Members of the chat and responses endpoints that `/v1/messages` refuses; sorted by name.
pub const REFUSED_MESSAGES_MEMBERS: &[RefusedMember] = &[
    ("function_call", NonEmpty, "this endpoint reads `tool_choice`"),
    ("functions", NonEmpty, "this endpoint reads `tools`"),
    ("input", NonEmpty, "this endpoint reads `messages`"),
    ("instructions", NonEmpty, "this endpoint reads `system`"),
    ("logprobs", NonEmpty, "this endpoint has no log probabilities; use /v1/chat/completions"),
    ("n", SeveralChoices, "a message has one answer"),
    ("text", NestedFormat, FORMAT),
    ("top_logprobs", NonEmpty, "this endpoint has no log probabilities; use /v1/chat/completions"),
];

/// Members that would change vectors, and that `/v1/embeddings` cannot honour; sorted by name.
#[rustfmt::skip]
pub const REFUSED_EMBEDDING_MEMBERS: &[RefusedMember] = &[
    ("activation", NotTrue, LENGTH),
    ("embed_dtype", NotFloat32, NUMBERS),
    ("embedding_type", NotFloat, NUMBERS),
    ("embedding_types", NotFloat, NUMBERS),
    ("endianness", BigEndian, "base64 is little-endian"),
    ("late_chunking", NonEmpty, "inputs are embedded one by one"),
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("normalize", NotTrue, LENGTH),
    ("normalized", NotTrue, LENGTH),
    ("outputDimensionality", NonEmpty, "send `dimensions`"),
    ("output_dimension", NonEmpty, "send `dimensions`"),
    ("output_dimensionality", NonEmpty, "send `dimensions`"),
    ("output_dtype", NotFloat, NUMBERS),
    ("prompt", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, "choose providers by `filters` or a flavor"),
    ("texts", NonEmpty, "this endpoint reads `input`"),
    ("use_activation", NotTrue, LENGTH),
];

/// Members that would change a ranking, and that `/v1/rerank` cannot honour; sorted by name.
pub const REFUSED_RERANK_MEMBERS: &[RefusedMember] = &[
    ("activation", NotTrue, SCALE),
    ("provider", ProviderConstraints, "choose providers by `filters` or a flavor"),
    ("raw_scores", NonEmpty, SCALE),
    ("score_threshold", NonEmpty, "every document has a score; filter the results by `relevance_score`"),
    ("texts", NonEmpty, "this endpoint reads `documents`"),
    ("use_activation", NotTrue, SCALE),
];
