//! Quote of a chat request: the expected price and footprint at the offer that would be called first, and the
//! reservation that the request would need. The quote uses the same filters, prices and factors as real requests.

use super::downstream::Downstream;
use super::exchange::{Exchange, ExchangeState};
use super::failover::CandidateSet;
use super::filters::{
    InferenceContext, ParseRequest, RequestBody, RequestFilterChain, SelectCandidates, highest_reservation,
};
use super::{InProcessSession, PlaygroundRequest, RequestSource};
use crate::billing::ReserveAmounts;
use crate::proxy::endpoint::{ChatCompletionsEndpoint, Endpoint, parse_chat_request};
use crate::state::AppState;
use crate::upstream::pricing::ChargeContext;
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, TokenUsage, WorkDone};
use penstock_pricing::PayingWallet;
use penstock_response_metadata::AmountFormat;
use rust_decimal::Decimal;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Filters of a quote: the filters of a request before its limits and its reservation.
type QuoteFilters = (ParseRequest, SelectCandidates);

/// Quote of a chat request.
#[derive(Clone, Debug)]
pub struct RequestQuote {
    /// Members `environment_impact` and `billing_cost` that the response would have, if the answer has the expected
    /// length.
    pub expected: Value,
    /// Expected charge of the request, in EUR.
    pub expected_eur: Decimal,
    /// Expected number of output tokens.
    pub output_tokens: u64,
    /// Reservation that the request would need: its highest possible charge.
    pub highest: ReserveAmounts,
}

/// Computes the quote of a request to `path`.
///
/// # Errors
/// Returns the refusal of the key, or the refusal of a filter.
pub(super) async fn compute_quote(
    app: &Arc<AppState>,
    local: Arc<PlaygroundRequest>,
    path: &str,
    body: Bytes,
) -> Result<RequestQuote, ApiError> {
    let session = InProcessSession::for_playground(local.clone(), path, Bytes::new());
    let mut session = session.map_err(|_| ApiError::new(ErrorCode::Internal))?;
    let mut state = ExchangeState::new(app);
    state.principal = local.principal().clone();
    app.key_cache.authorize_without_secret(&state.principal)?;
    state.principal.require_scope(ChatCompletionsEndpoint.required_scope())?;
    let caller = Downstream::new(&mut session, Some(RequestSource::Playground(local)));
    let mut exchange = Exchange { app, caller, state: &mut state };
    let mut request = InferenceContext::new(&mut exchange, RequestBody::Json(body, parse_chat_request));
    // No filter of a quote ends the request early, and no client can disconnect, so the result is not used.
    let _ = QuoteFilters::check(&mut request).await?;
    let InferenceContext {
        exchange, ask: Some(ask), candidates: Some(chosen), selected_at: received_at, ..
    } = request
    else {
        return Err(ApiError::new(ErrorCode::Internal));
    };
    price(exchange, &ask, &chosen, received_at)
}

/// Prices the expected answer of the first candidate.
fn price(
    x: &Exchange<'_>,
    ask: &InferenceRequest,
    chosen: &CandidateSet,
    at: u64,
) -> Result<RequestQuote, ApiError> {
    let first = chosen.entries.first().and_then(|entry| x.config.offers.get(entry.offer));
    let offer = first.ok_or_else(|| chosen.unavailable_error())?;
    let settings = &x.config.settings;
    let output_tokens = chosen.expected_output_tokens(&x.config, ask, x.app.clock.steady_now());
    let usage = TokenUsage { output: output_tokens, ..ask.estimate_unreported_usage(0) };
    let is_by_energy = offer.pricing.is_priced_by_energy(at);
    let terms = ChargeContext {
        eur_per_credit: settings.billing.eur_per_credit,
        provenance: true,
        amounts: AmountFormat::Numbers,
        batch: chosen.batch,
        wallet: if is_by_energy { PayingWallet::Energy } else { PayingWallet::Credits },
        at,
    };
    let done = WorkDone::Tokens(usage);
    let priced = offer.pricing.price_answer(done, done, None, Duration::ZERO, None, terms);
    let members = [b"{", priced.members.as_slice(), b"}"].concat();
    let expected = serde_json::from_slice(&members).map_err(|_| ApiError::new(ErrorCode::Internal))?;
    Ok(RequestQuote {
        expected,
        expected_eur: priced.charge.eur,
        output_tokens,
        highest: highest_reservation(x, ask, chosen, at),
    })
}
