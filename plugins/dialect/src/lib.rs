//! Translation between the API dialects of clients and of providers, in both directions.
//!
//! A [`Translator`] translates between one dialect of clients and one of providers. It writes a request body from
//! slices of the client's bytes and new text. An answer is a list of neutral [`event::AnswerEvent`]s: the
//! [`decode::DialectDecoder`] of the provider's dialect produces them, and the [`write::DialectWriter`] of the client's
//! dialect serializes them. Between the two, a stream translator buffers and counts the events, compares them with
//! delivered text and handles a rescue. Strings keep their JSON escapes, so that they need not be unescaped and escaped
//! again.
//!
//! A new dialect of providers needs a row in [`penstock_core::DIALECTS`], a decoder in `src/decode/`, a folder
//! `src/any_to_<provider>/` with its `ProviderDialect`, a line in `providers::PROVIDERS`, and golden cases in
//! `testdata/<client>_<provider>/`.

pub mod background_response;
pub mod conformance;
pub mod decode;
mod discarded_usage;
mod echo;
pub mod event;
mod generated_output;
pub mod item_references;
pub mod listed_items;
pub mod parameters;
mod repeated_call_ids;
pub mod repeated_items;
mod repeated_text;
pub mod sealed_items;
pub mod stored_response;
pub mod write;

mod answer;
mod answer_sections;
#[cfg(test)]
mod answer_sections_tests;
mod any_to_responses;
mod argument_surrogates;
mod body_builder;
#[cfg(test)]
mod break_position_tests;
#[cfg(test)]
mod cache_control_tests;
mod charged_usage;
mod chat_to_chat;
mod chat_to_messages;
#[cfg(test)]
mod choice_count_tests;
mod choices;
mod classify;
pub mod completions;
mod constraint_conflicts;
mod continuation_mark;
#[cfg(test)]
mod continuation_tests;
mod delivered;
mod document_patches;
#[cfg(test)]
mod equal_constraint_tests;
#[cfg(test)]
mod extra_member_tests;
#[cfg(test)]
mod finish_tests;
mod json_cursor;
#[cfg(test)]
mod known_member_tests;
#[cfg(test)]
mod late_event_tests;
#[cfg(test)]
mod logprob_tests;
#[cfg(test)]
mod lone_surrogate_tests;
mod media_position;
mod messages_to_chat;
mod messages_to_messages;
mod output_config;
mod output_constraint;
mod output_limit;
mod partial_json;
mod prefill_repetition;
#[cfg(test)]
mod prefill_repetition_tests;
#[cfg(test)]
mod pretty_printed_tests;
mod providers;
mod reasoning_effort;
#[cfg(test)]
mod reasoning_parameter_tests;
mod reasoning_switch;
#[cfg(test)]
mod reasoning_switch_tests;
#[cfg(test)]
mod refused_member_tests;
#[cfg(test)]
mod removed_output_tests;
#[cfg(test)]
mod request_history_tests;
#[cfg(test)]
mod rescue_limit_tests;
mod response_constraints;
mod responses_to_any;
mod speakers;
#[cfg(test)]
mod stop_sequence_tests;
#[cfg(test)]
mod stream_format_tests;
mod stream_translator;
mod structured_output;
#[cfg(test)]
mod structured_output_tests;
mod system_messages;
#[cfg(test)]
mod system_messages_tests;
#[cfg(test)]
mod test_support;
mod token_cap;
#[cfg(test)]
mod tool_name_tests;
mod tool_names;
mod translator_def;
mod unanswered_tool_calls;

pub use answer::{AnswerChoice, DecodedAnswer, ToolCall};
pub use chat_to_messages::DEFAULT_MAX_TOKENS;
pub use choices::join_completions;
pub use classify::{
    FailedRequest, classify_error, join_sent_body, parse_retry_after, parse_retry_after_ms,
    reclassify_in_band_error,
};
pub use media_position::{MediaKind, first_media_path};
pub use response_constraints::ResponseConstraints;
pub use stream_translator::{StreamTranslator, new_stream_translation};
pub use structured_output::accepts_json_schema;

use penstock_core::{Dialect, Translator};

/// Returns the translators of all supported pairs of dialects.
pub fn translators() -> impl Iterator<Item = &'static dyn Translator> {
    providers::PROVIDERS.iter().flat_map(|row| row.translators).map(|pair| pair as &dyn Translator)
}

/// Returns the translator between these dialects: for requests of the client, and answers of the provider. `None` if
/// the pair is not supported.
#[must_use]
pub fn find_translator(client: Dialect, provider: Dialect) -> Option<&'static dyn Translator> {
    let pairs = providers::provider_dialect(provider).translators;
    pairs.iter().find(|pair| pair.client_dialect == client).map(|pair| pair as &dyn Translator)
}
