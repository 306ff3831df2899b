//! Counts the tokens of a prompt at the inference engine that serves the model, through its tokenize API. Nothing is
//! generated. A failure does not count as a failure of the offer, but the engine is then not asked to count for 30
//! seconds, so that no request waits for it. A count that the prompt cannot have is a failure. A timeout counts as a
//! failure unless the prompt is long or little time was left. The refusal of one prompt is no failure.

use super::count_queue::{MAX_INLINE_COUNT_BYTES, TokenCountContext};
use super::offer::OfferState;
use super::request_head;
use crate::time::clock;
use crate::upstream::config_snapshot::ModelState;
use bytes::{Bytes, BytesMut};
use http::header;
use parking_lot::Mutex;
use penstock_core::{Dialect, InferenceRequest, RequestBodyFormat, UpstreamErrorKind};
use penstock_tokens::PromptConversation;
use penstock_tokens::engine::{
    self, CountInput, CountProgress, EngineCall, EngineError, MAX_ANSWER_BYTES, TokenizeApi,
};
use pingora_http::RequestHeader;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// Time limit of a count, for all engines of a model together.
const COUNT_TIMEOUT: Duration = Duration::from_secs(1);
/// Size in bytes of a request body above which the prompt is so long that a timeout does not count as a failure of the
/// engine.
const LONG_PROMPT: usize = 1 << 20;
/// Minimum time that an engine must have had for its answer, so that a timeout counts as its failure.
const FAIR_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which an engine is not called after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// Pause after a failure, in which the engine of an offer is not asked to count tokens.
#[derive(Default)]
pub struct TokenizeBackoff(Mutex<Option<Instant>>);

impl TokenizeBackoff {
    /// Begins a call of the engine at `now`; `None` during a pause. After a pause, only one request calls the engine;
    /// other requests skip the engine until that call ends.
    fn begin_call(&self, now: Instant) -> Option<TokenizeAttempt<'_>> {
        let mut paused_until = self.0.lock();
        let is_probe = match *paused_until {
            None => false,
            Some(until) if now < until => return None,
            Some(_) => {
                *paused_until = Some(now + FAILURE_PAUSE);
                true
            }
        };
        Some(TokenizeAttempt { backoff: self, began: now, is_probe })
    }
}

/// Call of an engine. A call after a pause that is dropped without a result lets the next request call the engine.
struct TokenizeAttempt<'b> {
    backoff: &'b TokenizeBackoff,
    began: Instant,
    /// True for the call after a pause.
    is_probe: bool,
}

impl TokenizeAttempt<'_> {
    fn record_success(mut self) {
        self.is_probe = false;
        *self.backoff.0.lock() = None;
    }

    /// Records a failure. Returns true if the previous call did not fail.
    fn record_failure(mut self, now: Instant) -> bool {
        self.is_probe = false;
        self.backoff.0.lock().replace(now + FAILURE_PAUSE).is_none()
    }
}

impl Drop for TokenizeAttempt<'_> {
    fn drop(&mut self) {
        let mut paused_until = self.backoff.0.lock();
        if self.is_probe && *paused_until == Some(self.began + FAILURE_PAUSE) {
            *paused_until = Some(self.began);
        }
    }
}

/// Failure of an engine: no connection, no answer, an invalid answer, or an implausible count.
struct TokenizeFailure;

/// Timer that records the wait for an engine when it is dropped, also if the client has disconnected meanwhile.
struct EngineWaitTimer<'c> {
    counting: &'c TokenCountContext,
    began: Instant,
}

impl Drop for EngineWaitTimer<'_> {
    fn drop(&mut self) {
        self.counting.add_engine_wait(clock::cached_now().saturating_duration_since(self.began));
    }
}

/// Returns the token count of the first engine that can count this prompt; `None` if none can within the time limit.
/// Only offers that meet the filters of the request are asked, because the call contains the whole prompt.
pub async fn count_tokens_at_provider(
    counting: &TokenCountContext,
    model: &ModelState,
    ask: &InferenceRequest,
) -> Option<u64> {
    let mut until = clock::cached_now() + COUNT_TIMEOUT;
    let is_plausible = |offer: &OfferState, tokens| {
        ask.is_plausible_prompt_count(tokens, offer.offer.capabilities.image_token_bound())
    };
    for offer in counting.offers_matching_filters(model, ask) {
        let Some(shape) = offer.offer.provider.token_count_api else { continue };
        let began = clock::cached_now();
        let Some(first_call) = first_call(counting, offer, shape, ask).await else { continue };
        let now = clock::cached_now();
        // The time for preparing the call does not count towards the time limit of the engines.
        until += now.saturating_duration_since(began);
        if now >= until {
            return None;
        }
        let Some(attempt) = offer.tokenize_backoff.begin_call(now) else { continue };
        let wait = EngineWaitTimer { counting, began: now };
        let counted = timeout_at(until.into(), count_with_engine(offer, shape, first_call)).await;
        drop(wait);
        match counted {
            Ok(Ok(Some(tokens))) if is_plausible(offer, tokens) => {
                attempt.record_success();
                return Some(tokens);
            }
            Ok(Ok(None)) => {}
            Err(_) if ask.body.len() > LONG_PROMPT || until.saturating_duration_since(now) < FAIR_TIMEOUT => {
                return None;
            }
            Ok(Ok(Some(_)) | Err(TokenizeFailure)) | Err(_) => {
                if attempt.record_failure(clock::cached_now()) {
                    let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
                    tracing::warn!(name: "count_failed", provider, model);
                }
            }
        }
    }
    None
}

/// Builds the first call to the engine; `None` if its API cannot count this request. A long body is parsed on a
/// blocking thread; a body whose parsed form would take too much memory is not counted.
async fn first_call(
    counting: &TokenCountContext,
    offer: &OfferState,
    shape: TokenizeApi,
    ask: &InferenceRequest,
) -> Option<EngineCall> {
    let (body, form, offer) = (ask.body.clone(), ask.dialect.request_body_format(), offer.offer.clone());
    let quick = body.len() <= MAX_INLINE_COUNT_BYTES;
    let work = move |_: &AtomicBool| {
        if !PromptConversation::fits_parse_memory_limit(&body) {
            return None;
        }
        let input = match form {
            RequestBodyFormat::Chat => CountInput::Chat(&body),
            RequestBodyFormat::Messages => CountInput::Messages(&body),
        };
        engine::build_call(shape, &offer.name, input).ok()
    };
    if quick { work(&AtomicBool::new(false)) } else { counting.run_with_permit(work).await.ok().flatten() }
}

/// Counts tokens with one engine, in one or two calls; `None` if there is no count but the engine did not fail.
async fn count_with_engine(
    offer: &OfferState,
    shape: TokenizeApi,
    first_call: EngineCall,
) -> Result<Option<u64>, TokenizeFailure> {
    let second = match call(offer, shape, first_call).await? {
        Some(CountProgress::NextCall(second)) => second,
        Some(CountProgress::Tokens(tokens)) => return Ok(Some(tokens)),
        None => return Ok(None),
    };
    match call(offer, shape, second).await? {
        Some(CountProgress::Tokens(tokens)) => Ok(Some(tokens)),
        Some(CountProgress::NextCall(_)) => Err(TokenizeFailure),
        None => Ok(None),
    }
}

async fn call(
    offer: &OfferState,
    shape: TokenizeApi,
    call: EngineCall,
) -> Result<Option<CountProgress>, TokenizeFailure> {
    let Some(head) = head(offer, &call) else { return Ok(None) };
    let mut upstream = match offer.provider.route.connect().await {
        Ok(upstream) => upstream,
        Err(fault) if fault.kind == UpstreamErrorKind::NoDescriptors => return Ok(None),
        Err(_) => return Err(TokenizeFailure),
    };
    // The read timeout is longer than the time limit of the count, so that the limit ends the count.
    upstream.set_read_timeout(COUNT_TIMEOUT * 2);
    let status = match upstream.send_for_status(head, Bytes::from(call.body)).await {
        Ok(status) => status,
        // The provider had already closed the connection from the pool, which is no failure of the engine.
        Err(broken) if upstream.allows_resend(broken) => return Ok(None),
        Err(_) => return Err(TokenizeFailure),
    };
    let mut answer = BytesMut::new();
    while let Some(piece) = upstream.read_body().await.map_err(|_| TokenizeFailure)? {
        if answer.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(TokenizeFailure);
        }
        answer.extend_from_slice(&piece);
    }
    upstream.return_to_pool().await;
    match engine::parse_count_response(shape, status, &answer) {
        Ok(progress) => Ok(Some(progress)),
        // A refusal of one prompt is no failure of the engine, so that a client cannot make the engine unavailable to
        // others.
        Err(EngineError::Status(400 | 413 | 422)) => Ok(None),
        Err(_) => Err(TokenizeFailure),
    }
}

fn head(offer: &OfferState, call: &EngineCall) -> Option<RequestHeader> {
    let provider = &offer.offer.provider;
    // The root URL of the engine is its base URL without `/v1`.
    let root = provider.base_url.path_prefix.strip_suffix("/v1").unwrap_or(&provider.base_url.path_prefix);
    let path = format!("{root}{}", call.path);
    let dialect = offer.offer.dialects.first().copied().unwrap_or(Dialect::Chat);
    let mut head = request_head::authenticated_head("POST", provider, dialect, &path).ok()?;
    head.insert_header(header::CONTENT_TYPE, "application/json").ok()?;
    head.insert_header(header::CONTENT_LENGTH, call.body.len()).ok()?;
    Some(head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_failed_engine_is_paused_and_then_called_by_one_request_at_a_time() {
        let (engine, start) = (TokenizeBackoff::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let begin = |seconds| engine.begin_call(at(seconds));
        assert!(begin(0).is_some() && begin(0).is_some());
        assert!(begin(0).unwrap().record_failure(at(1)));
        assert!(begin(1).is_none() && begin(30).is_none());
        let probe = begin(31).unwrap();
        assert!(begin(31).is_none(), "one request calls it");
        assert!(!probe.record_failure(at(32)), "not the first failure");
        assert!(begin(61).is_none());
        drop(begin(62).unwrap());
        let probe = begin(62).expect("the call before had no result");
        assert!(begin(63).is_none());
        probe.record_success();
        assert!(begin(63).is_some() && begin(63).is_some(), "available again");
    }
}
