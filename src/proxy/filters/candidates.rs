//! Selection of candidates: the model behind a name, and its offers that can serve a request, best first.

use super::request::{InferenceRequest, RequestFilter};
use crate::proxy::context_window;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover::{Moment, Selection};
use crate::upstream::config_snapshot::{Live, ModelLive};
use penstock_contract::{Ask, Code, Kind, Refusal};
use penstock_limits::{Cost, Work};
use penstock_routing::{BATCH, FLAVORS, SPEED, default_for, split};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most characters of a client's name of a model that an error repeats.
const SHOWN: usize = 100;

/// Filter that selects the offers that may be asked. Where the prompt may be too long for a window, its tokens are
/// counted on other threads, so that a client may leave meanwhile.
pub struct SelectCandidates;

impl RequestFilter for SelectCandidates {
    const NAME: &'static str = "candidates";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        let Some(ask) = &request.ask else { return Ok(ControlFlow::Continue(())) };
        request.candidates = match select(request.x, ask).await {
            // Counting took work: a prompt that is too long counts as a request.
            Err(refusal) if refusal.code == Code::ContextLength => {
                if let Some((entry, _)) = request.entry.take() {
                    request.x.pass(entry, &Cost::default())?;
                }
                return Err(refusal);
            }
            selected => selected?,
        };
        request.at = request.x.house.clock.unix();
        Ok(match request.candidates {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(Ended::Left),
        })
    }
}

/// Selects the candidates of a request; `None` if the client left meanwhile.
///
/// # Errors
/// No such model, none that this key may use, or none that can do what the request asks for.
pub(super) async fn select(x: &mut Exchange<'_>, ask: &Ask) -> Result<Option<Selection>, Refusal> {
    let counting = x.counting();
    let live = &counting.live;
    let (name, flavor) = split(&ask.model);
    let model = model_of(x, ask, name)?;
    let line = x.work == Work::BatchLine;
    let given = flavor.is_some();
    let flavor = flavor.unwrap_or_else(|| match ask.preset.as_deref() {
        _ if line => BATCH,
        Some("non_reasoning") if live.settings.compatibility.preset_flavor => SPEED,
        _ => default_for(ask.kind),
    });
    x.record.flavor = Some(flavor.name());
    let mut selection = Selection::new(model.clone(), ask, flavor, line, given);
    let moment = Moment { now: x.house.clock.now(), at: x.house.clock.unix() };
    let mut refusal = None;
    let fallbacks = model.model.fallbacks.iter().filter_map(|id| live.model(id).cloned());
    for candidate in std::iter::once(model.clone()).chain(fallbacks) {
        if !x.grant.may_use(&candidate.model.card.id) {
            continue;
        }
        let fits = tokio::select! {
            biased;
            fits = context_window::fits(&counting, &candidate, ask) => fits,
            () = x.caller.gone() => return Ok(None),
        };
        match fits {
            Ok(count) => {
                if let Some(count) = count {
                    selection.add_count(&candidate.model.card.id, count);
                }
                if let Err(lacks) = selection.add(live, &candidate, flavor, ask, moment) {
                    refusal.get_or_insert(lacks);
                }
            }
            // The prompt was not counted, so other models are not tried either.
            Err(unknown) if matches!(unknown.code, Code::Overloaded | Code::Internal) => return Err(unknown),
            Err(too_long) => {
                refusal.get_or_insert(too_long);
            }
        }
    }
    if selection.entries.is_empty() {
        return Err(refusal.unwrap_or_else(|| selection.unavailable().retry_after(5)));
    }
    Ok(Some(selection))
}

/// Returns the model with this name, if the key may use it for the request.
///
/// # Errors
/// No such model, one for other work, or one that this key may not use.
pub fn model_of(x: &mut Exchange<'_>, ask: &Ask, name: &str) -> Result<Arc<ModelLive>, Refusal> {
    let model = model_named(&x.live, name)?;
    if model.model.kind != ask.kind {
        return Err(wrong_kind(&model));
    }
    if !x.grant.may_use(&model.model.card.id) {
        let message = "This API key may not use this model.";
        return Err(Refusal::because(Code::InsufficientScope, message).at("model"));
    }
    x.record.model = Some(model.model.card.id.as_str().into());
    Ok(model)
}

/// Returns the model with this id or alias.
///
/// # Errors
/// There is none.
pub fn model_named(live: &Live, name: &str) -> Result<Arc<ModelLive>, Refusal> {
    let found = live.catalog.resolve(name).and_then(|card| live.model(&card.id));
    found.cloned().ok_or_else(|| no_model(live, name))
}

/// Refusal of an unknown model. If the name is that of a model with an unknown suffix, it lists the flavors.
pub fn no_model(live: &Live, name: &str) -> Refusal {
    let shown = |text: &str| text.chars().take(SHOWN).collect::<String>();
    let suffixed = name.rsplit_once(':').filter(|(base, _)| live.catalog.resolve(base).is_some());
    let Some((base, suffix)) = suffixed else {
        let message = format!("The model '{}' does not exist.", shown(name));
        return Refusal::because(Code::ModelNotFound, message).at("model");
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
    Refusal::because(Code::ModelNotFound, message).at("model").with("flavors", flavors)
}

fn wrong_kind(model: &ModelLive) -> Refusal {
    let path = match model.model.kind {
        Kind::Chat => "/v1/chat/completions or /v1/messages",
        Kind::Embedding => "/v1/embeddings",
        Kind::Rerank => "/v1/rerank",
        Kind::Image => "/v1/images/generations",
        Kind::Transcription => "/v1/audio/transcriptions",
    };
    Refusal::unsupported("model", format!("This model is used at {path}."))
}
