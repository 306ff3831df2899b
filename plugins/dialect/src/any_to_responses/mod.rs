//! Translators for a responses provider, and a client of any dialect.
//!
//! The request is built as for a chat provider, by the translator of that pair, and then converted, so that
//! capabilities, limits and presets are handled in one module. The answer is decoded into neutral events and written in
//! the client's dialect. This applies to responses clients too, because the gateway generates the ids, the repeated
//! members and the reasoning that a client sends back.

mod input;
mod members;
#[cfg(test)]
mod message_tests;
mod request;
#[cfg(test)]
mod tests;
mod tools;

use crate::decode::responses::{ResponsesDecoder, decode_response};
use crate::translator_def::{ProviderDialect, converted_translators};
use penstock_core::Dialect;

/// Definition of the dialect.
pub(crate) const PROVIDER: ProviderDialect = ProviderDialect {
    new_decoder: |_| Box::new(ResponsesDecoder::new()),
    decode_buffered: |body, _, events| decode_response(body, events).map(|()| None),
    translators: &converted_translators(Dialect::Responses, request::convert_chat_body),
};
