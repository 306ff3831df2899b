//! Attempt at a provider up to its response head: connects, sends the request, and reads the status.

use super::wait::WaitOutcome;
use super::{FailoverRun, upstream_headers};
use crate::config::settings::Provider;
use crate::storage::spool::SpooledData;
use crate::telemetry::TraceContext;
use crate::time::clock;
use crate::upstream::connect::IdleConnections;
use crate::upstream::content_encoding::ContentDecoder;
use crate::upstream::http1::TransportError;
use crate::upstream::offer::OfferState;
use crate::upstream::send::SendError;
use crate::upstream::upstream_exchange::UpstreamExchange;
use crate::upstream::wire_format::WireFormat;
use bytes::{Bytes, BytesMut};
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, ApiError, AttemptTarget, Dialect, ErrorCode, InferenceRequest,
    RefusalScope, RequestBodyFormat, TokenUsage, UpstreamError, UpstreamErrorKind, UpstreamRequest,
    UsageBounds,
};
use penstock_dialect::FailedRequest;
use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Failure of an attempt.
pub enum AttemptError {
    /// The provider failed, or it reported an error of the client.
    Fault(UpstreamError),
    /// Request that cannot be sent to this offer; another offer may accept it.
    Incompatible(ApiError),
    /// The provider may have refused the request because of its number of choices: each choice is then requested
    /// separately. Contains the requests to which this refusal applies.
    SeparateChoices(RefusalScope),
    /// The answer is not used, because other choices of the request are of another model. It has the usage of a buffered
    /// answer; `None` for a stream.
    Discarded(Option<TokenUsage>),
    /// The gateway failed to process the response. No other provider is called, since the error would occur again.
    Internal(ApiError),
    /// The client has disconnected.
    Disconnected,
    /// The request has to end: its API key was revoked, its account was suspended, or the time to drain is over.
    Interrupted,
}

impl From<UpstreamError> for AttemptError {
    fn from(fault: UpstreamError) -> Self {
        Self::Fault(fault)
    }
}

/// Response of a provider with a success status (200 to 203) whose head has been read.
pub struct UpstreamResponse {
    /// Connection and response head.
    pub exchange: UpstreamExchange,
    /// Decoder of the content encoding.
    pub decoder: ContentDecoder,
    /// Deadline of this attempt.
    pub until: Instant,
}

/// Maximum number of bytes of an error body that are read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Timeout of reading an error body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the wire format of an offer: a dialect, or the format of a provider adapter.
pub fn wire_format(run: &FailoverRun<'_, '_>, offer: &OfferState) -> Result<WireFormat, AttemptError> {
    WireFormat::for_request(offer, run.request).ok_or_else(malformed)
}

/// Returns the parameters of an offer for its translator.
pub fn translation_parameters<'t>(
    run: &'t FailoverRun<'_, '_>,
    offer: &'t OfferState,
    dialect: Dialect,
    created: u64,
) -> AttemptTarget<'t> {
    let announced = run.exchange.caller.in_process_line().and_then(|line| line.answer_identity());
    AttemptTarget {
        model: &offer.offer.name,
        dialect,
        capabilities: &offer.offer.capabilities,
        preset: run.candidates.preset_parameters(offer),
        max_tokens: run.reduced_max_tokens(offer),
        adjustment: run.request_adjustment(offer),
        answer_model: run.candidates.response_model_name(offer),
        answer_id: announced.map_or(run.exchange.id.random_part(), |identity| &identity.unique),
        answer_created: announced.map_or(created, |identity| identity.created),
    }
}

/// Connects to the provider, sends the request, and reads the response head. If the idle connection was closed, sends it
/// once more, on a new one. A status other than 200 to 203 is an error.
pub async fn send_and_read_head(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    wire_format: WireFormat,
    call: &UpstreamRequest,
    first_byte: Duration,
) -> Result<UpstreamResponse, AttemptError> {
    let until = run.deadline.min(clock::cached_now() + offer.offer.provider.timeouts.total);
    let mut idle = IdleConnections::Use;
    loop {
        match try_connection(run, offer, (wire_format, call), (first_byte, until), idle).await {
            Err((_, true)) if matches!(idle, IdleConnections::Use) => idle = IdleConnections::Skip,
            Err((stop, _)) => return Err(stop),
            Ok(answering) => return Ok(answering),
        }
    }
}

/// Sends the request on one connection. An error comes with true if the request may be sent again on another one.
async fn try_connection(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    (wire_format, call): (WireFormat, &UpstreamRequest),
    (first_byte, until): (Duration, Instant),
    idle: IdleConnections,
) -> Result<UpstreamResponse, (AttemptError, bool)> {
    let connect = pin!(offer.provider.route.connect_with(idle));
    let upstream = match run.watch.wait_for_work(&mut run.exchange.caller, connect, until).await {
        WaitOutcome::Ready(upstream) => upstream.map_err(|fault| (AttemptError::Fault(fault), false))?,
        outcome => return Err((outcome.into_attempt_error(UpstreamErrorKind::Connect, run.deadline), false)),
    };
    let alarm = until.min(clock::cached_now() + first_byte);
    let without = run.request_adjustment(offer).omitted;
    let asked = {
        let trace = run
            .exchange
            .state
            .record
            .trace
            .as_deref()
            .filter(|_| !without.contains(AdjustableMember::TraceContext));
        let exchange = pin!(send(upstream, offer, wire_format, call, without, (run.upload.as_ref(), trace)));
        run.watch.wait_for_work(&mut run.exchange.caller, exchange, alarm).await
    };
    let (upstream, status) = match asked {
        WaitOutcome::Ready(sent) => sent.map_err(|(fault, resend)| (AttemptError::Fault(fault), resend))?,
        outcome => {
            return Err((
                outcome.into_attempt_error(UpstreamErrorKind::FirstByteTimeout, run.deadline),
                false,
            ));
        }
    };
    let cap = run.exchange.config.settings.limits.response_buffer;
    let decoder = ContentDecoder::new(upstream.header("content-encoding").unwrap_or_default(), cap).ok();
    if !is_answer_status(status) {
        let error = read_error(run, offer, (wire_format, call), (upstream, decoder), status);
        return Err((Box::pin(error).await, false));
    }
    let decoder = decoder.ok_or_else(|| (malformed(), false))?;
    Ok(UpstreamResponse { exchange: upstream, decoder, until })
}

/// Returns true for a status with an answer in its body. Proxies and queues in front of engines also answer 201 to 203.
const fn is_answer_status(status: u16) -> bool {
    matches!(status, 200..=203)
}

fn malformed() -> AttemptError {
    AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Malformed))
}

/// Writes head and body, then reads the response head, after a failed write too: a provider may answer early and stop
/// reading. An error comes with true if the request may be sent again on another connection.
async fn send(
    mut upstream: UpstreamExchange,
    offer: &OfferState,
    wire_format: WireFormat,
    call: &UpstreamRequest,
    without: AdjustableMemberSet,
    (upload, trace): (Option<&SpooledData>, Option<&TraceContext>),
) -> Result<(UpstreamExchange, u16), (UpstreamError, bool)> {
    let reset = |resend| (UpstreamError::new(UpstreamErrorKind::Reset), resend);
    let head = wire_format.request_head(offer).ok_or_else(|| reset(false))?;
    let shortened =
        (without.header_names().next().is_some()).then(|| head.without_headers(without.header_names()));
    let written = match upstream.send(shortened.as_ref().unwrap_or(head), call, upload, trace).await {
        Ok(()) => true,
        Err(SendError::NotSent) => {
            return Err(reset(upstream.allows_resend(TransportError::NotProcessed)));
        }
        Err(SendError::Stopped) => false,
        Err(SendError::UploadUnreadable(error)) => {
            return Err((UpstreamError::caller_error(crate::storage::files::io_to_api_error(&error)), false));
        }
    };
    match upstream.read_head().await {
        // If writing the request failed, only an error status is used, and not a success status.
        Ok(status) if !written && is_answer_status(status) => Err(reset(false)),
        Ok(status) => Ok((upstream, status)),
        Err(TransportError::Malformed) => Err((UpstreamError::new(UpstreamErrorKind::Malformed), false)),
        Err(broken) => Err(reset(upstream.allows_resend(broken))),
    }
}

/// Reads the body of a response with an error status and classifies the error. If its content encoding is unknown, only
/// the status is used.
async fn read_error(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    (wire_format, call): (WireFormat, &UpstreamRequest),
    (mut upstream, mut decoder): (UpstreamExchange, Option<ContentDecoder>),
    status: u16,
) -> AttemptError {
    let retry_after = upstream_headers::retry_after(&upstream, run.exchange.app.clock.calendar_now());
    let mut body = BytesMut::new();
    let alarm = clock::cached_now() + ERROR_BODY_TIMEOUT;
    let whole = loop {
        if clock::cached_now() >= alarm {
            break false;
        }
        let read = {
            let read = pin!(upstream.read_body());
            run.watch.wait_for_work(&mut run.exchange.caller, read, alarm).await
        };
        match read {
            WaitOutcome::Ready(Ok(Some(piece))) if body.len() + piece.len() <= MAX_ERROR_BODY => {
                let Some(Ok(piece)) = decoder.as_mut().map(|decoder| decoder.decode_next(piece)) else {
                    break false;
                };
                body.extend_from_slice(&piece);
            }
            WaitOutcome::Ready(Ok(None)) => break true,
            WaitOutcome::Disconnected => return AttemptError::Disconnected,
            WaitOutcome::Interrupted => return AttemptError::Interrupted,
            WaitOutcome::Ready(_) | WaitOutcome::Deadline => break false,
        }
    };
    if whole {
        upstream.return_to_pool().await;
    }
    let window = offer.offer.context_length;
    let sent = sent_body(call);
    let request = failed_request(run, &sent);
    let mut fault = penstock_dialect::classify_error(status, retry_after, &body, window, request);
    if let Some(refusal) = &mut fault.api_error {
        hide_secrets(&offer.offer.provider, refusal);
        translate_error_param(run.request, wire_format.dialect(), refusal);
    }
    AttemptError::Fault(fault)
}

/// Replaces the parameter path in the error of a provider by the name of this parameter in the client's dialect. If
/// the dialects differ, the position in the conversation is left out, because the provider's message numbers are not
/// those of the client's request. The exception is the path of a tool call, which the gateway has determined from the
/// client's request.
fn translate_error_param(request: &InferenceRequest, provider: Dialect, refusal: &mut ApiError) {
    let Some(path) = refusal.param.clone() else { return };
    if path.contains(".tool_calls[") && request.dialect.request_body_format() == RequestBodyFormat::Chat {
        *refusal = request.rename_error_param(refusal.clone());
        return;
    }
    let own = request.dialect.name_of_provider_member(provider, &path);
    if own != path {
        if let Some(about) = refusal.message.strip_prefix(&path).filter(|about| about.starts_with(": ")) {
            refusal.message = format!("{own}{about}").into();
        }
        refusal.param = Some(own.to_owned());
    }
}

/// Returns true for an error of the request that is about the text: its length or its content.
fn is_about_text(fault: &UpstreamError) -> bool {
    let is_refused =
        || fault.api_error.as_deref().is_some_and(|refusal| refusal.code == ErrorCode::ContentRefused);
    fault.kind == UpstreamErrorKind::Caller && (fault.is_output_length_error() || is_refused())
}

/// Classifies an error object inside a response with status 200. After content was sent, it is an error of the provider,
/// because the provider had accepted the request. Exceptions are a refusal of the content and a full context window:
/// these are due to the text, so another provider does not help, and the delivered part is charged.
pub fn reclassify_in_band_error(
    run: &mut FailoverRun<'_, '_>,
    offer: &OfferState,
    error: AttemptError,
) -> AttemptError {
    let AttemptError::Fault(fault) = error else { return error };
    if fault.in_band_body.is_none() {
        return AttemptError::Fault(fault);
    }
    let window = offer.offer.context_length;
    let original = run.progress.has_content().then(|| fault.clone());
    // The request is built again, because it is not stored while the response is read.
    let calls = run.build_upstream_requests(offer, AdjustableMemberSet::NONE).unwrap_or_default();
    let sent = match calls.as_slice() {
        [call] => sent_body(call),
        _ => Cow::Borrowed(&run.request.body[..]),
    };
    let mut fault = penstock_dialect::reclassify_in_band_error(fault, window, failed_request(run, &sent));
    if let Some(original) = original {
        if !is_about_text(&fault) {
            return AttemptError::Fault(match (original.kind, fault.kind) {
                (UpstreamErrorKind::Caller, UpstreamErrorKind::Caller) => {
                    UpstreamError::new(UpstreamErrorKind::InBandError)
                }
                (UpstreamErrorKind::Caller, _) => fault,
                _ => original,
            });
        }
        run.settled.charges_delivered = true;
    }
    if let Some(refusal) = &mut fault.api_error {
        hide_secrets(&offer.offer.provider, refusal);
    }
    AttemptError::Fault(fault)
}

/// Returns the body of a request as it was sent.
fn sent_body(call: &UpstreamRequest) -> Cow<'_, [u8]> {
    penstock_dialect::join_sent_body(&call.body, call.content_type == "application/json")
}

/// Returns the request as the classification of its error needs it.
fn failed_request<'r>(run: &'r FailoverRun<'_, '_>, sent: &'r [u8]) -> FailedRequest<'r> {
    let max_input_tokens = run.request.max_input_tokens(UsageBounds::MAX_IMAGE_TOKENS);
    FailedRequest { sent, client: &run.request.body, max_input_tokens }
}

/// Removes the provider's key and the values of its configured headers from the provider's error message, because some
/// providers repeat the request in it.
fn hide_secrets(provider: &Provider, refusal: &mut ApiError) {
    let headers = provider.headers.iter().map(|(_, value)| value);
    for secret in provider.api_key.iter().chain(headers).map(|secret| secret.reveal()) {
        if !secret.is_empty() && refusal.message.contains(secret) {
            refusal.message = refusal.message.replace(secret, "…").into();
        }
    }
}

/// Logs the error message of a provider, without any part of the request.
pub fn log_provider_refusal(run: &FailoverRun<'_, '_>, offer: &OfferState, refusal: &ApiError) {
    tracing::info!(
        name: "refused_by_provider",
        id = run.exchange.id.as_str(),
        provider = &*offer.offer.provider.id,
        model = &*offer.offer.model.card.id,
        code = refusal.spec().code,
        param = refusal.param.as_deref().unwrap_or_default(),
        says = &*refusal.message,
    );
}

/// Reads and decodes the next bytes of a response body; `None` at its end. Waits at most until `alarm` or the
/// deadline of the attempt. After that it returns a failure of the kind `silent`, or `DeadlineExceeded` if the
/// deadline of the request has passed.
pub async fn read_body_piece(
    run: &mut FailoverRun<'_, '_>,
    answering: &mut UpstreamResponse,
    alarm: Instant,
    silent: UpstreamErrorKind,
) -> Result<Option<Bytes>, AttemptError> {
    let alarm = alarm.min(answering.until);
    let read = if clock::cached_now() >= alarm {
        WaitOutcome::Deadline
    } else {
        let read = pin!(answering.exchange.read_body());
        run.watch.wait_for_work(&mut run.exchange.caller, read, alarm).await
    };
    match read {
        WaitOutcome::Ready(Ok(Some(piece))) => {
            answering.decoder.decode_next(piece).map(Some).map_err(|_| malformed())
        }
        WaitOutcome::Ready(Ok(None)) => Ok(None),
        WaitOutcome::Ready(Err(_)) => Err(AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Reset))),
        outcome => Err(outcome.into_attempt_error(silent, run.deadline)),
    }
}

impl<T> WaitOutcome<T> {
    /// Converts the outcome of a wait that gave no usable result into the error of the attempt. `silent` is the kind
    /// of error if the deadline of the wait has passed before `deadline`, the deadline of the request.
    pub fn into_attempt_error(self, silent: UpstreamErrorKind, deadline: Instant) -> AttemptError {
        match self {
            Self::Disconnected => AttemptError::Disconnected,
            Self::Interrupted => AttemptError::Interrupted,
            Self::Deadline if clock::cached_now() >= deadline => {
                AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::DeadlineExceeded))
            }
            Self::Deadline | Self::Ready(_) => AttemptError::Fault(UpstreamError::new(silent)),
        }
    }
}
