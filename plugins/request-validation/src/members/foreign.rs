//! Members of other services, engines and endpoints that would change the answer. Endpoints for texts refuse them.

use super::RefusedMember;
use super::RefusedValues::{
    BigEndian, FormatNotText, GuidedMembers, ModeNotOff, NestedFormat, NonEmpty, NonTextModalities, NotFloat,
    NotFloat32, NotTrue, Present, ProviderConstraints, RunnerOptions, SeveralChoices,
};

const FORMAT: &str = "the format of the response is set by `response_format` on chat and text completions, `output_config.format` on messages, and `text.format` on responses";
const HISTORY: &str = "stored conversations are not supported; send the whole history in the request";
const LENGTH: &str = "the normalization of vectors cannot be changed";
const NUMBERS: &str =
    "only 32-bit floating-point vectors are supported; `encoding_format` can be `float` or `base64`";
const SCALE: &str = "scores are always from 0 to 1";
const INPUT: &str =
    "send the conversation as messages; token ids and embeddings are not supported at this endpoint";
const STOP: &str = "use `stop_sequences` on messages, and `stop` on other endpoints";
const SYSTEM: &str = "send the system prompt as a message with the role \"system\" on chat, as `system` on messages, and as `instructions` on responses";
const TEXTS: &str = "stored documents and document search are not supported; send the text in the request";
const TOP: &str = "send its members as top-level parameters, with the names of this endpoint";

/// Members that every endpoint for texts refuses, unless its own table lists them; sorted by name.
#[rustfmt::skip]
pub const COMMON_REFUSED_MEMBERS: &[RefusedMember] = &[
    ("audio", NonEmpty, "audio output is not supported"),
    ("cachedContent", Present, "stored cached contents are not supported; send the content in the request"),
    ("candidate_count", SeveralChoices, "use `n` on chat and text completions; other endpoints return one choice"),
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
    ("max_length", NonEmpty, "use `max_output_tokens` on responses, and `max_tokens` on other endpoints"),
    ("max_price", NonEmpty, "choose providers with `filters` or a flavor"),
    ("modalities", NonTextModalities, "only answers in text are supported"),
    ("num_return_sequences", SeveralChoices, "use `n` on chat and text completions; other endpoints return one choice"),
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
    ("function_call", NonEmpty, "use `tool_choice` instead"),
    ("functions", NonEmpty, "use `tools` instead"),
    ("input", NonEmpty, "use `messages` instead"),
    ("instructions", NonEmpty, "use `system` instead"),
    ("logprobs", NonEmpty, "log probabilities are not supported at this endpoint; use /v1/chat/completions"),
    ("n", SeveralChoices, "only one choice is supported"),
    ("text", NestedFormat, FORMAT),
    (
        "top_logprobs",
        NonEmpty,
        "log probabilities are not supported at this endpoint; use /v1/chat/completions",
    ),
];

/// Members that would change vectors, and that `/v1/embeddings` cannot honour; sorted by name.
#[rustfmt::skip]
pub const REFUSED_EMBEDDING_MEMBERS: &[RefusedMember] = &[
    ("activation", NotTrue, LENGTH),
    ("embed_dtype", NotFloat32, NUMBERS),
    ("embedding_type", NotFloat, NUMBERS),
    ("embedding_types", NotFloat, NUMBERS),
    ("endianness", BigEndian, "base64 vectors are always little-endian"),
    ("late_chunking", NonEmpty, "each input is embedded separately"),
    ("messages", NonEmpty, "use `input` instead"),
    ("normalize", NotTrue, LENGTH),
    ("normalized", NotTrue, LENGTH),
    ("outputDimensionality", NonEmpty, "use `dimensions` instead"),
    ("output_dimension", NonEmpty, "use `dimensions` instead"),
    ("output_dimensionality", NonEmpty, "use `dimensions` instead"),
    ("output_dtype", NotFloat, NUMBERS),
    ("prompt", NonEmpty, "use `input` instead"),
    ("provider", ProviderConstraints, "choose providers with `filters` or a flavor"),
    ("texts", NonEmpty, "use `input` instead"),
    ("use_activation", NotTrue, LENGTH),
];

/// Members that would change a ranking, and that `/v1/rerank` cannot honour; sorted by name.
pub const REFUSED_RERANK_MEMBERS: &[RefusedMember] = &[
    ("activation", NotTrue, SCALE),
    ("provider", ProviderConstraints, "choose providers with `filters` or a flavor"),
    ("raw_scores", NonEmpty, SCALE),
    (
        "score_threshold",
        NonEmpty,
        "all documents are returned; filter the results by `relevance_score`, or use `top_n`",
    ),
    ("texts", NonEmpty, "use `documents` instead"),
    ("use_activation", NotTrue, SCALE),
];
