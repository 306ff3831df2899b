//! Asks an engine that serves a model how many tokens a prompt has. Nothing is
//! generated; an engine that cannot say is no failure of its offer. One that is
//! silent or fails is left alone for a while: no request waits for it meanwhile.

use super::count_queue::{INLINE_COUNT_BYTES, TokenCountQueue};
use super::offer::OfferState;
use super::request_head;
use crate::telemetry::log;
use crate::time::clock;
use crate::upstream::config_snapshot::ModelState;
use bytes::{Bytes, BytesMut};
use http::header;
use parking_lot::Mutex;
use penstock_core::{Dialect, InferenceRequest, RequestForm, UpstreamErrorKind};
use penstock_tokens::TokenizedConversation;
use penstock_tokens::engine::{
    self, CountInput, CountProgress, EngineCall, EngineError, MAX_ANSWER_BYTES, TokenizeApi,
};
use pingora_http::RequestHeader;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// Time that all engines of a model together may take to count.
const WAIT: Duration = Duration::from_secs(1);
/// A longer prompt, or less time than this, says nothing of an engine that was not done.
const LONG: usize = 1 << 20;
const FAIR: Duration = Duration::from_millis(500);
/// Pause after a failed engine.
const REST: Duration = Duration::from_secs(30);

/// State of the engine behind an offer as a token counter.
#[derive(Default)]
pub struct TokenizeEndpoint(Mutex<Option<Instant>>);

impl TokenizeEndpoint {
    /// Returns true if the engine may be asked now: after its pause one request asks, and others skip it until that
    /// request is answered.
    fn may_be_asked(&self, now: Instant) -> bool {
        let mut rests = self.0.lock();
        match *rests {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *rests = Some(now + REST);
                true
            }
        }
    }

    fn answered(&self) {
        *self.0.lock() = None;
    }

    /// Records a failure. Returns true if it is the first in a row.
    fn failed(&self, now: Instant) -> bool {
        self.0.lock().replace(now + REST).is_none()
    }
}

/// The engine was silent, or answered as none does that counts.
struct TokenizeFailure;

/// The count of the first engine that can say.
pub async fn count_at_provider(
    counting: &TokenCountQueue,
    model: &ModelState,
    ask: &InferenceRequest,
) -> Option<u64> {
    let offers = model.offers.iter().filter_map(|index| counting.live.offers.get(*index));
    let mut until = clock::cached_now() + WAIT;
    for offer in offers {
        let Some(shape) = offer.offer.provider.token_count_api else { continue };
        let began = clock::cached_now();
        let Some(first) = first(counting, offer, shape, ask).await else { continue };
        let now = clock::cached_now();
        // The engines have no part in this.
        until += now.saturating_duration_since(began);
        if now >= until {
            return None;
        }
        if !offer.engine.may_be_asked(now) {
            continue;
        }
        match timeout_at(until.into(), one(offer, shape, first)).await {
            Ok(Ok(Some(tokens))) => {
                offer.engine.answered();
                return Some(tokens);
            }
            Ok(Ok(None)) => {}
            Err(_) if ask.body.len() > LONG || until.saturating_duration_since(now) < FAIR => return None,
            Ok(Err(TokenizeFailure)) | Err(_) => {
                if offer.engine.failed(clock::cached_now()) {
                    let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
                    log::event(log::warn(), "count_failed", &[("provider", provider), ("model", model)]);
                }
            }
        }
    }
    None
}

/// The first call, if the engine has one for this. A long body is taken apart away from the async threads; one that
/// cannot be in memory of a few times its size is not sent.
async fn first(
    counting: &TokenCountQueue,
    offer: &OfferState,
    shape: TokenizeApi,
    ask: &InferenceRequest,
) -> Option<EngineCall> {
    let (body, form, offer) = (ask.body.clone(), ask.dialect.request_form(), offer.offer.clone());
    let quick = body.len() <= INLINE_COUNT_BYTES;
    let work = move |_: &AtomicBool| {
        if !TokenizedConversation::is_readable(&body) {
            return None;
        }
        let input = match form {
            RequestForm::Chat => CountInput::Chat(&body),
            RequestForm::Messages => CountInput::Messages(&body),
        };
        engine::build_call(shape, &offer.name, input).ok()
    };
    if quick { work(&AtomicBool::new(false)) } else { counting.in_turn(work).await.ok().flatten() }
}

/// Counts with one engine; `None` where the engine is not at fault.
async fn one(
    offer: &OfferState,
    shape: TokenizeApi,
    first: EngineCall,
) -> Result<Option<u64>, TokenizeFailure> {
    let second = match call(offer, shape, first).await? {
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
    // The time for all ends before.
    upstream.set_read_timeout(WAIT * 2);
    let status = match upstream.send_for_status(head, Bytes::from(call.body)).await {
        Ok(status) => status,
        // Closed at the very moment it was used.
        Err(broken) if upstream.stale_retries(broken) > 0 => return Ok(None),
        Err(_) => return Err(TokenizeFailure),
    };
    let mut answer = BytesMut::new();
    while let Some(piece) = upstream.read_body().await.map_err(|_| TokenizeFailure)? {
        if answer.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(TokenizeFailure);
        }
        answer.extend_from_slice(&piece);
    }
    upstream.release().await;
    match engine::parse(shape, status, &answer) {
        Ok(progress) => Ok(Some(progress)),
        // This prompt alone: no caller takes the engine from the others.
        Err(EngineError::Status(400 | 413 | 422)) => Ok(None),
        Err(_) => Err(TokenizeFailure),
    }
}

fn head(offer: &OfferState, call: &EngineCall) -> Option<RequestHeader> {
    let provider = &offer.offer.provider;
    // The engine's root is above the `/v1` of its base URL.
    let root = provider.base_url.path_prefix.strip_suffix("/v1").unwrap_or(&provider.base_url.path_prefix);
    let path = format!("{root}{}", call.path);
    let dialect = offer.offer.dialects.first().copied().unwrap_or(Dialect::Chat);
    let mut head = request_head::signed("POST", provider, dialect, &path).ok()?;
    head.insert_header(header::CONTENT_TYPE, "application/json").ok()?;
    head.insert_header(header::CONTENT_LENGTH, call.body.len()).ok()?;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_failed_rests_and_is_then_asked_by_one_at_a_time() {
        let (engine, start) = (TokenizeEndpoint::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(engine.may_be_asked(at(0)) && engine.may_be_asked(at(0)));
        assert!(engine.failed(at(1)));
        assert!(!engine.may_be_asked(at(1)) && !engine.may_be_asked(at(30)));
        assert!(engine.may_be_asked(at(31)) && !engine.may_be_asked(at(31)), "one asks");
        assert!(!engine.failed(at(32)), "no news");
        assert!(!engine.may_be_asked(at(61)) && engine.may_be_asked(at(62)));
        engine.answered();
        assert!(engine.may_be_asked(at(62)) && engine.may_be_asked(at(62)), "it is well again");
    }
}
