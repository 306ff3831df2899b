//! Translators between a client of any dialect and a provider of the responses dialect.
//!
//! The request is built as for a chat provider and then converted, so that capabilities, limits and presets are handled
//! in one module. The answer is decoded into neutral events and written in the client's dialect. Answers for responses
//! clients are written anew too, because they have ids of the gateway, members that repeat the client's own request,
//! and reasoning in the form in which the gateway reads it again.

mod input;
mod members;
#[cfg(test)]
mod message_rescue_tests;
#[cfg(test)]
mod message_tests;
mod request;
#[cfg(test)]
mod tests;
mod tools;

use crate::decode::responses::{ResponsesDecoder, decode_response};
use crate::translator_def::{ProviderDialect, translators_via_chat};
use penstock_core::Dialect;

/// Decoders and translators for providers of the responses dialect.
pub(crate) const PROVIDER_DIALECT: ProviderDialect = ProviderDialect {
    new_decoder: |_| Box::new(ResponsesDecoder::new()),
    decode_buffered: |body, _, events| decode_response(body, events).map(|()| None),
    has_message_boundaries: true,
    translators: &translators_via_chat(Dialect::Responses, request::convert_chat_body),
};
