//! Translator for a messages client and a messages provider, which forwards bytes unchanged where possible.
//!
//! The request retains the client's members. Only `model`, a clamped `max_tokens`,
//! members and texts that no provider should receive, and system messages that this
//! provider rejects are changed. In the answer, `model` and the last event are changed.

mod hidden;
mod mend;
#[cfg(test)]
mod mend_tests;
mod passing;
mod request;
mod said;
mod turns;

use crate::answer::DecodedAnswer;
use crate::body_builder;
use crate::decode;
use crate::translator_def::{self, TranslatorDef};
use crate::write::messages;
use bytes::Bytes;
use passing::Passing;
use penstock_core::{
    AttemptTarget, BufferedResponse, Dialect, FinishReason, InferenceRequest, StreamTranslation,
    UpstreamError, UpstreamErrorKind, WorkDone,
};
use penstock_http_wire::json;

/// Definition of the translator.
pub(crate) const PAIR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Messages,
    provider_dialect: Dialect::Messages,
    path: "/messages",
    build_request: request::body,
    translate_buffered: whole,
    translate_stream: reply,
};

/// Returns the provider's body, repaired, with the client's name for the model and without thinking that the client did
/// not request. If calls or text must be cut, or the body is a stream, writes the message anew.
fn whole(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    if cuts(ask, target) || decode::is_event_stream(&body) {
        return messages::translate_buffered(ask, target, body);
    }
    let answer = DecodedAnswer::decode(ask, target, body.clone())?;
    let finish =
        answer.choices.first().and_then(|candidate| candidate.finish_reason).unwrap_or(FinishReason::Stop);
    let trimmed = body_builder::shared_slice(&body, json::trim(&body)).unwrap_or_default();
    let body = mend::message(&trimmed, &answer, target, ask.thinking)
        .ok_or(UpstreamError::new(UpstreamErrorKind::Malformed))?;
    let output_bytes = answer.output_bytes();
    Ok(BufferedResponse {
        body,
        work: answer.usage.map(WorkDone::Tokens),
        measured_energy: answer.measured_energy,
        finish_reason: finish,
        output_bytes,
        images: Vec::new(),
        observation: answer.observation,
    })
}

/// Returns a translator that forwards the provider's events, unless calls or text must be cut from them.
fn reply(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Box<dyn StreamTranslation> {
    if cuts(ask, target) {
        return translator_def::stream_as_messages(ask, target);
    }
    Box::new(Passing::new(ask, target))
}

/// Returns true if the gateway may have to cut the answer, so that it must write the answer anew.
fn cuts(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    request::enforced_stops(ask, target) || !ask.parallel_tools
}
