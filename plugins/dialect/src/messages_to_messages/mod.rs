//! Translator for a messages client and a messages provider, which forwards bytes unchanged where possible.
//!
//! The request consists of the client's members. The gateway changes only `model`, a `max_tokens` that it lowers,
//! members and texts that no provider should receive, and values that this provider rejects. In the answer, the gateway
//! changes the model name, removes thinking that the client did not request, repairs values on which client libraries
//! fail, and writes the last events itself.

mod collected_message;
mod content;
mod conversation;
mod hidden_thinking;
mod message_events;
mod message_members;
#[cfg(test)]
mod missing_member_tests;
#[cfg(test)]
mod odd_block_tests;
#[cfg(test)]
mod other_form_tests;
mod passthrough;
mod repair;
#[cfg(test)]
mod repair_tests;
mod request;
#[cfg(test)]
mod setting_tests;
mod thinking_budget;

use crate::answer::DecodedAnswer;
use crate::body_builder;
use crate::decode::{self, messages::without_lone_surrogates};
use crate::translator_def::{self, TranslatorDef};
use crate::write::messages;
use bytes::Bytes;
use collected_message::collect_message;
use passthrough::StreamPassthrough;
use penstock_core::{
    AttemptTarget, BufferedResponse, Dialect, FinishReason, InferenceRequest, StreamTranslation,
    UpstreamError, WorkDone,
};
use penstock_json_scan::json;

/// Translator from messages clients to messages providers.
pub(crate) const TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Messages,
    provider_dialect: Dialect::Messages,
    path: Dialect::Messages.spec().provider_path,
    build_request: request::build_request,
    convert: None,
    translate_buffered,
    translate_stream,
};

/// Returns the provider's body after repairs, with the model name that the client used, and without thinking that the
/// client did not request. If the body is a stream, the message of its events is repaired. If calls or text may have to
/// be cut, writes a new message instead.
fn translate_buffered(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    if requires_translation(ask, target) {
        return messages::translate_buffered(ask, target, body);
    }
    let body = decode::without_byte_order_mark(body);
    let is_stream = decode::is_event_stream(&body);
    let body = if is_stream { body } else { without_lone_surrogates(body) };
    let answer = DecodedAnswer::decode(ask, target, body.clone())?;
    let message = match is_stream {
        true => collect_message(&body, target.answer_id).map(without_lone_surrogates),
        false => Some(body.clone()),
    };
    let Some(body) = message.filter(|_| !answer.observation.exceeds_output_limit) else {
        return messages::translate_buffered(ask, target, body);
    };
    let finish =
        answer.choices.first().and_then(|candidate| candidate.finish_reason).unwrap_or(FinishReason::Stop);
    let trimmed = body_builder::shared_slice(&body, json::trim(&body)).unwrap_or_default();
    let body = repair::repair_message(&trimmed, &answer, target, ask.thinking);
    let output_bytes = answer.output_bytes();
    Ok(BufferedResponse {
        body,
        work: answer.usage.map(WorkDone::Tokens),
        provider_work: answer.provider_usage.map(WorkDone::Tokens),
        measured_energy: answer.measured_energy,
        finish_reason: finish,
        output_bytes,
        images: Vec::new(),
        observation: answer.observation,
    })
}

/// Returns a translation that forwards the provider's events, unless calls or text may have to be cut from them.
fn translate_stream(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Box<dyn StreamTranslation> {
    if requires_translation(ask, target) {
        return translator_def::new_stream_translation_to_messages(ask, target);
    }
    Box::new(StreamPassthrough::new(ask, target))
}

/// Returns true if the gateway may have to cut the answer: it then writes all of the answer itself.
fn requires_translation(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    request::needs_stop_sequence_enforcement(ask, target) || !ask.parallel_tools
}
