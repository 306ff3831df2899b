//! A messages client and a messages provider: what passes, passes as it came.
//!
//! The request keeps the client's own members; only `model`, a clamped
//! `max_tokens`, members and texts that no provider should see, and system turns
//! that this one does not take are touched. Of the
//! answer only `model` and the last event are.

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
use penstock_contract::{
    AttemptTarget, BufferedResponse, Dialect, FinishReason, InferenceRequest, StreamTranslation,
    UpstreamError, UpstreamErrorKind, WorkDone,
};
use penstock_wire::json;

/// The pair.
pub(crate) const PAIR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Messages,
    provider_dialect: Dialect::Messages,
    path: "/messages",
    build_request: request::body,
    translate_buffered: whole,
    translate_stream: reply,
};

/// The provider's own body with the client's name for the model, mended, and without thinking that nobody asked for,
/// unless calls or text have to be cut from it, or it came as a stream.
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

/// The provider's own events, unless calls or text have to be cut from them.
fn reply(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Box<dyn StreamTranslation> {
    if cuts(ask, target) {
        return translator_def::stream_as_messages(ask, target);
    }
    Box::new(Passing::new(ask, target))
}

/// Whether the gateway may have to cut the answer: then it speaks it itself.
fn cuts(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> bool {
    request::enforced_stops(ask, target) || !ask.parallel_tools
}
