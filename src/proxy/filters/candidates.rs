//! Selection of candidates: the model behind a name, and its offers that can serve a request, best first.

use super::request::{InferenceContext, RequestFilter};
use crate::proxy::context_window;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover::CandidateSet;
use crate::upstream::config_snapshot::{ConfigSnapshot, ModelState};
use penstock_core::{ApiError, ErrorCode, InferenceRequest};
use penstock_limits::{CostEstimate, WorkClass};
use penstock_routing::{BATCH, FLAVORS, SPEED, default_flavor, request_session, split_flavor};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of characters of a model name that an error repeats.
const MAX_SHOWN_CHARS: usize = 100;

/// Filter that selects the candidate offers. If the prompt may be too long for a window, its tokens are counted; a long
/// prompt is counted on another thread. The client may disconnect during the count.
pub struct SelectCandidates;

impl RequestFilter for SelectCandidates {
    const NAME: &'static str = "candidates";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        let Some(ask) = &request.ask else { return Ok(ControlFlow::Continue(())) };
        request.candidates = match select_candidates(request.exchange, ask).await {
            // A request whose prompt is too long counts towards the request limits, because counting its tokens took
            // work.
            Err(refusal) if refusal.code == ErrorCode::ContextLength => {
                if let Some((entry, _)) = request.provisional_permit.take() {
                    request.exchange.reserve_limits(entry, &CostEstimate::default())?;
                }
                return Err(refusal);
            }
            selected => selected?,
        };
        request.selected_at = request.exchange.app.clock.unix_seconds();
        Ok(match request.candidates {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(WriteOutcome::Disconnected),
        })
    }
}

/// Selects the candidates of a request; `None` if the client disconnected meanwhile.
///
/// # Errors
/// Returns a refusal if the model is unknown, if this key may not use it, if no offer supports the request, if the
/// prompt is too long, or if too many other token counts are waiting.
pub(super) async fn select_candidates(
    x: &mut Exchange<'_>,
    ask: &InferenceRequest,
) -> Result<Option<CandidateSet>, ApiError> {
    let counting = x.token_count_context();
    let live = &counting.config;
    let (name, flavor) = split_flavor(&ask.model);
    let model = model_for_request(x, ask, name)?;
    let line = x.work == WorkClass::BatchLine;
    let given = flavor.is_some();
    let flavor = flavor.unwrap_or_else(|| match ask.preset.as_deref() {
        _ if line => BATCH,
        Some("non_reasoning") if live.settings.compatibility.preset_flavor => SPEED,
        _ => default_flavor(ask.kind),
    });
    x.record.flavor = Some(flavor.name());
    let mut selection = CandidateSet::new(model.clone(), ask, flavor, line, given);
    if model.model.affinity && !line {
        selection.session = request_session(&x.principal.account.id, ask, x.caller.header_fields());
    }
    let mut refusal = None;
    let fallbacks = model.model.fallbacks.iter().filter_map(|id| live.model(id).cloned());
    for candidate in std::iter::once(model.clone()).chain(fallbacks) {
        if !x.principal.may_use_model(&candidate.model.card.id) {
            continue;
        }
        let fits = tokio::select! {
            biased;
            fits = context_window::check_prompt_length(&counting, &candidate, ask) => Some(fits),
            () = x.caller.wait_for_disconnect() => None,
        };
        x.record.waited += counting.take_engine_wait();
        let Some(fits) = fits else { return Ok(None) };
        match fits {
            Ok(count) => {
                if let Some(count) = count {
                    selection.add_token_count(&candidate.model.card.id, count);
                }
                if let Err(lacks) = selection.add_model_offers(live, &candidate, flavor, ask, counting.moment)
                {
                    refusal.get_or_insert(lacks);
                }
            }
            // The token count failed, so it would also fail for the fallback models.
            Err(unknown) if matches!(unknown.code, ErrorCode::Overloaded | ErrorCode::Internal) => {
                return Err(unknown);
            }
            Err(too_long) => {
                refusal.get_or_insert(too_long);
            }
        }
    }
    if selection.entries.is_empty() {
        return Err(refusal.unwrap_or_else(|| selection.unavailable_error().with_retry_after(5)));
    }
    Ok(Some(selection))
}

/// Returns the model with this name, if the key may use it for the request.
///
/// # Errors
/// Returns a refusal if the model is unknown, of another kind, or not allowed for this key.
pub fn model_for_request(
    x: &mut Exchange<'_>,
    ask: &InferenceRequest,
    name: &str,
) -> Result<Arc<ModelState>, ApiError> {
    let model = find_model(&x.config, name)?;
    if model.model.kind != ask.kind {
        return Err(model_kind_mismatch(&model));
    }
    if !x.principal.may_use_model(&model.model.card.id) {
        let message = "This API key may not use this model.";
        return Err(ApiError::with_message(ErrorCode::InsufficientScope, message).with_param("model"));
    }
    x.record.model = Some(model.model.card.id.as_str().into());
    Ok(model)
}

/// Returns the model with this id or alias.
///
/// # Errors
/// Returns a refusal if the model is unknown.
pub fn find_model(live: &ConfigSnapshot, name: &str) -> Result<Arc<ModelState>, ApiError> {
    let found = live.catalog.resolve(name).and_then(|card| live.model(&card.id));
    found.cloned().ok_or_else(|| model_not_found_error(live, name))
}

/// Returns the refusal of an unknown model. If only the flavor suffix of the name is unknown, the refusal lists the
/// flavors.
pub fn model_not_found_error(live: &ConfigSnapshot, name: &str) -> ApiError {
    let shown = |text: &str| text.chars().take(MAX_SHOWN_CHARS).collect::<String>();
    let suffixed = name.rsplit_once(':').filter(|(base, _)| live.catalog.resolve(base).is_some());
    let Some((base, suffix)) = suffixed else {
        let message = format!("The model '{}' does not exist.", shown(name));
        return ApiError::with_message(ErrorCode::ModelNotFound, message).with_param("model");
    };
    let flavors: Vec<&str> = FLAVORS.iter().map(|flavor| flavor.name()).collect();
    let message = if flavors.contains(&suffix) {
        format!("The model '{}' takes one flavor, not several.", shown(base))
    } else {
        format!(
            "The model '{}' has no flavor '{}'; the flavors are :{}.",
            shown(base),
            shown(suffix),
            flavors.join(", :")
        )
    };
    ApiError::with_message(ErrorCode::ModelNotFound, message)
        .with_param("model")
        .with_details_member("flavors", flavors)
}

fn model_kind_mismatch(model: &ModelState) -> ApiError {
    let path = model.model.kind.spec().paths;
    ApiError::unsupported("model", format!("This model is used at {path}."))
}
