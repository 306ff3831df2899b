//! Candidates of a request: the offers that can serve it, in the order in which they are called.

use super::exploration::{exploration_scope, is_small};
use super::filtered::FilteredSelection;
use crate::proxy::context_window::{self, OutputTokenBudget, WindowFit};
use crate::telemetry::SessionAffinityOutcome;
use crate::upstream::cache_affinity::SessionHistory;
use crate::upstream::config_snapshot::{ConfigSnapshot, ModelState};
use crate::upstream::offer::{OfferState, SelectionTime};
use crate::upstream::pools::{ExplorationMode, OfferPlan, PlanRequest};
use crate::upstream::sessions::SessionRecord;
use crate::upstream::wire_format::WireFormat;
use penstock_core::{AnswerModelName, ApiError, ErrorCode, InferenceRequest, TokenUsage, WorkUnit};
use penstock_dialect::parameters::has_engine_constraint;
use penstock_routing::{
    BALANCED, BATCH, Flavor, PlannedOffer, RequestSession, SessionKey, split_flavor, stable_hash,
};
use penstock_tokens::TokenCount;
use std::{sync::Arc, time::Duration};

/// Assumed number of bytes per token of a prompt, used only to choose among offers.
const BYTES_PER_TOKEN: usize = 4;
/// Expected number of tokens of a response if the model has no measurements.
const DEFAULT_OUTPUT_TOKENS: u64 = 256;

/// Candidates of one request.
#[derive(Clone)]
pub struct CandidateSet {
    /// Offers, the best first; the offers of fallback models come last.
    pub entries: Vec<PlannedOffer>,
    /// True if all candidates are ejected: the best of them is called anyway.
    pub all_ejected: bool,
    /// True for batch work, which prefers a low price and may wait.
    pub batch: bool,
    /// True if a broken stream is rescued.
    pub rescue: bool,
    /// Name of the model in the response.
    response_name: Box<str>,
    /// Requested model.
    model: Arc<ModelState>,
    /// Token counts of a prompt that may be too long for a window, by model of the catalogue.
    counts: Vec<(Box<str>, TokenCount)>,
    /// Maximum output tokens per choice that the reserve covers; `None` if the request has a cap, or is not prepaid.
    pub output_cap: Option<u64>,
    /// Caps on tokens that were lowered, by offer index: another offer of the same model may accept a higher cap.
    lowered_caps: Vec<(usize, u64)>,
    preset: Option<Box<str>>,
    /// Session of the request; `None` if offers are chosen without regard to sessions.
    pub session: Option<RequestSession>,
    /// True if the client chose a flavor other than `:balanced`.
    is_narrow_flavor: bool,
}

/// Returns the expected number of response tokens of this model. It is the same for each offer, so that offers are
/// compared by their prices and not by the lengths of their recent responses.
pub fn expected_output_tokens(
    live: &ConfigSnapshot,
    model: &ModelState,
    ask: &InferenceRequest,
    now: Duration,
) -> u64 {
    match ask.kind.spec().unit {
        WorkUnit::GeneratedTokens => {}
        WorkUnit::InputTokens => return 0,
        // Offers of images and audio are compared by their prices per image or minute, so tokens do not matter.
        WorkUnit::Images | WorkUnit::AudioSeconds => return 1,
    }
    let offers = model.offers.iter().filter_map(|index| live.offers.get(*index));
    let typical = offers.filter_map(|offer| offer.latency_stats.lock().typical_output_tokens(now)).max();
    let typical = typical.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    ask.max_tokens.map_or(typical, |cap| typical.min(cap))
}

/// Returns the refusal of an offer that cannot serve the request; `None` if it can. `constrained` is true if the
/// request has a constraint that not every engine knows.
#[must_use]
pub fn unsupported_by_offer_error(
    offer: &OfferState,
    ask: &InferenceRequest,
    constrained: bool,
    moment: SelectionTime,
) -> Option<ApiError> {
    let unsupported = || constrained.then(|| WireFormat::unsupported_constraint_error(offer, ask)).flatten();
    let too_many = || offer.unsupported_best_of_error(ask, || moment.steady);
    let missing = offer.missing_capability_error(ask).or_else(unsupported).or_else(too_many);
    missing.map(|refusal| ask.rename_error_param(refusal))
}

/// Offer that can serve the request, with the fit of the request into its window.
pub(super) struct AbleOffer<'l> {
    pub(super) offer: &'l Arc<OfferState>,
    pub(super) fit: WindowFit,
    /// True if the offer passes the filters only because its speed is unknown.
    pub(super) unsure: bool,
}

impl CandidateSet {
    /// Creates a set without candidates. `is_batch_line` is true for a batch line. `is_flavor_chosen` is true if the
    /// client chose the flavor.
    pub fn new(
        model: Arc<ModelState>,
        ask: &InferenceRequest,
        flavor: &'static dyn Flavor,
        is_batch_line: bool,
        is_flavor_chosen: bool,
    ) -> Self {
        Self {
            entries: Vec::new(),
            all_ejected: true,
            batch: is_batch_line || flavor.name() == BATCH.name(),
            rescue: model.model.rescue && ask.kind.generates_tokens(),
            response_name: match ask.dialect.spec().answer_model {
                AnswerModelName::WithoutFlavor => split_flavor(&ask.model).0.into(),
                AnswerModelName::AsSent => ask.model.clone(),
            },
            counts: Vec::new(),
            output_cap: None,
            lowered_caps: Vec::new(),
            preset: ask.preset.clone(),
            session: None,
            is_narrow_flavor: flavor != BALANCED && is_flavor_chosen,
            model,
        }
    }

    /// Adds the token count of the prompt for a model of the catalogue.
    pub fn add_token_count(&mut self, model: &str, count: TokenCount) {
        self.counts.push((model.into(), count));
    }

    /// Adds the suitable offers of a model in the order of the flavor; those with space for the whole output come first,
    /// then those that truncate it least.
    ///
    /// # Errors
    /// Returns a refusal if no offer supports the request.
    pub fn add_model_offers(
        &mut self,
        live: &ConfigSnapshot,
        model: &ModelState,
        flavor: &'static dyn Flavor,
        ask: &InferenceRequest,
        moment: SelectionTime,
    ) -> Result<(), ApiError> {
        let now = moment.steady;
        // A very small request counts as one token. With 0 tokens, all offers would have the same price.
        let prompt = u64::try_from(ask.prompt_bytes.div_ceil(BYTES_PER_TOKEN).max(1)).unwrap_or(u64::MAX);
        let output = expected_output_tokens(live, model, ask, now);
        let able = self.capable_offers(live, model, ask, moment)?;
        // True if no offer is preferred for its context window or its filters.
        let first_fit = able.first().map(|one| one.fit);
        let all_equal = able.iter().all(|one| !one.unsure && Some(one.fit) == first_fit);
        let small = is_small(ask, prompt);
        // A small request on the first turn of a session may explore an unmeasured offer. Otherwise a repeated short
        // prompt would always use the offer of its first answer, and the other offers would not be measured.
        let is_first_turn =
            small && flavor.allows_exploration() && self.session.is_some_and(|session| session.is_first_turn);
        let is_unmeasured =
            |one: &AbleOffer<'_>| one.offer.latency_stats.lock().last_observation_age(now).is_none();
        let session = self
            .planned_session(live, model, now)
            .filter(|_| !(is_first_turn && able.iter().any(is_unmeasured)));
        let is_held = session.is_some_and(|session| session.record.is_some());
        let explores = all_equal && self.entries.is_empty() && !self.batch;
        let scope = exploration_scope(flavor, small, is_first_turn, is_held).filter(|_| explores);
        let offers: Vec<usize> = able.iter().map(|one| one.offer.offer.index).collect();
        let OfferPlan { mut entries, all_ejected } = model.pool.plan_candidates(
            flavor,
            &PlanRequest {
                now,
                prompt_tokens: prompt,
                output_tokens: output,
                seed: rand::random(),
                exploration: scope.map_or(ExplorationMode::Denied, |scope| ExplorationMode::Allowed {
                    scope,
                    seed: rand::random(),
                }),
                session,
                offers: &offers,
            },
        );
        self.all_ejected &= all_ejected;
        let known =
            |entry: &PlannedOffer| offers.binary_search(&entry.offer).ok().and_then(|at| able.get(at));
        let fit = |entry: &PlannedOffer| known(entry).map_or(WindowFit::Full, |one| one.fit);
        // If the input certainly fits no offer, all offers stay candidates, and the providers report the error.
        if able.iter().any(|one| one.fit != WindowFit::TooLong) {
            entries.retain(|entry| fit(entry) != WindowFit::TooLong);
        }
        if !all_equal {
            entries.sort_by_key(|entry| (fit(entry), known(entry).is_some_and(|one| one.unsure)));
        }
        self.entries.append(&mut entries);
        Ok(())
    }

    /// Returns the session of the request, with its last answer; `None` without a session, affinity or a second offer.
    fn planned_session(
        &self,
        live: &ConfigSnapshot,
        model: &ModelState,
        now: Duration,
    ) -> Option<SessionHistory> {
        let session = self.session.filter(|_| model.model.affinity && model.offers.len() > 1)?;
        let key = SessionKey(stable_hash(session.key.0, model.model.card.id.as_bytes()));
        let record = live.sessions.get(key, now, live.settings.routing.session_lifetime);
        Some(SessionHistory { key, record })
    }

    /// Records that an offer has answered the session, and learns from the cached tokens that it reports. Returns
    /// whether the session stayed at its offer; `None` if no session is kept at this model.
    pub fn record_session_answer(
        &self,
        live: &ConfigSnapshot,
        offer: &OfferState,
        usage: &TokenUsage,
        now: Duration,
    ) -> Option<SessionAffinityOutcome> {
        let model = live.model(&offer.offer.model.card.id)?;
        let SessionHistory { key, record } = self.planned_session(live, model, now)?;
        let outcome = match record {
            None => SessionAffinityOutcome::New,
            Some(record) if record.offer_hash == offer.cache_affinity.offer_identity_hash() => {
                offer.cache_affinity.record_hits(record, usage);
                SessionAffinityOutcome::Stayed
            }
            Some(_) => SessionAffinityOutcome::Moved,
        };
        let tokens = u32::try_from(usage.input.saturating_add(usage.output)).unwrap_or(u32::MAX);
        let record = SessionRecord { offer_hash: offer.cache_affinity.offer_identity_hash(), tokens };
        live.sessions.record_answer(key, record, now);
        Some(outcome)
    }

    /// Returns the offers of a model that can serve the request.
    fn capable_offers<'l>(
        &self,
        live: &'l ConfigSnapshot,
        model: &ModelState,
        ask: &InferenceRequest,
        moment: SelectionTime,
    ) -> Result<Vec<AbleOffer<'l>>, ApiError> {
        let mut excluded = Vec::new();
        let mut able: Vec<AbleOffer<'l>> = Vec::with_capacity(model.offers.len());
        let count = self.token_count(&model.model.card.id);
        let constrained = has_engine_constraint(ask);
        for offer in model.offers.iter().filter_map(|index| live.offers.get(*index)) {
            match unsupported_by_offer_error(offer, ask, constrained, moment) {
                None => able.push(AbleOffer {
                    offer,
                    fit: context_window::window_fit(count, offer, ask, moment.steady),
                    unsure: false,
                }),
                Some(refusal) => excluded.push((&**offer, refusal)),
            }
        }
        if able.is_empty() {
            let lacks = excluded.into_iter().next().map(|(_, refusal)| refusal);
            return Err(lacks.unwrap_or_else(|| self.unavailable_error().with_retry_after(5)));
        }
        if let Some(filters) = &ask.filters {
            FilteredSelection { filters, ask, excluded: &excluded, moment, is_batch: self.batch }
                .retain_allowed_offers(&mut able)?;
        }
        Ok(able)
    }

    /// Returns the refusal for the case that no provider can answer now.
    pub fn unavailable_error(&self) -> ApiError {
        let refusal = ApiError::new(ErrorCode::Unavailable);
        if !self.is_narrow_flavor {
            return refusal;
        }
        let sentence = format!("{} The flavor :balanced widens the choice.", refusal.message);
        ApiError::with_message(ErrorCode::Unavailable, sentence)
    }

    /// Returns the value of `model` in the response: the requested name, or the fallback that answered.
    pub fn response_model_name<'s>(&'s self, offer: &'s OfferState) -> &'s str {
        let answering = &offer.offer.model.card.id;
        if *answering == self.model.model.card.id { &self.response_name } else { answering }
    }

    /// Returns the sampling parameters of the request's preset.
    pub fn preset_parameters<'s>(&self, offer: &'s OfferState) -> &'s [(Box<str>, Box<str>)] {
        let Some(name) = &self.preset else { return &[] };
        offer.offer.model.presets.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the cap on generated tokens to send; `None` to send that of the client or the dialect, if there is one.
    pub fn reduced_max_tokens(&self, offer: &OfferState, ask: &InferenceRequest) -> Option<u64> {
        let lowered =
            self.lowered_caps.iter().rfind(|(index, _)| *index == offer.offer.index).map(|(_, left)| *left);
        let open_end = offer.default_completion_max_tokens(ask);
        let wanted = context_window::requested_output_tokens(ask, offer).or(open_end);
        let left = lowered.or_else(|| Some(self.remaining_window(offer, wanted?)?.left));
        let most = [left, offer.offer.max_output].into_iter().flatten().min();
        match self.output_cap.filter(|cap| ask.max_tokens.is_none() && *cap < offer.max_output_tokens()) {
            None => most.filter(|most| wanted.is_some_and(|wanted| wanted > *most)).or(open_end),
            Some(cap) => [Some(cap), most, wanted, self.preset_max_tokens(offer)].into_iter().flatten().min(),
        }
    }

    fn preset_max_tokens(&self, offer: &OfferState) -> Option<u64> {
        let mut preset = self.preset_parameters(offer).iter();
        let (_, value) =
            preset.find(|(name, _)| matches!(&**name, "max_tokens" | "max_completion_tokens"))?;
        value.parse().ok()
    }

    fn remaining_window(&self, offer: &OfferState, wanted_tokens: u64) -> Option<OutputTokenBudget> {
        let count = self.token_count(&offer.offer.model.card.id)?;
        context_window::limited_output_budget(offer.offer.context_length, count, wanted_tokens)
    }

    /// Returns the token count of the prompt for a model; `None` if the prompt was not counted.
    pub fn token_count(&self, model: &str) -> Option<&TokenCount> {
        self.counts.iter().find(|(id, _)| &**id == model).map(|(_, count)| count)
    }

    /// Lowers the cap for a provider that refused it; to `named_maximum` if the provider named a number. Returns true
    /// if the provider can be called again with the lower cap.
    pub fn lower_refused_output_cap(
        &mut self,
        offer: &OfferState,
        ask: &InferenceRequest,
        named_maximum: Option<u64>,
    ) -> bool {
        let wanted =
            context_window::requested_output_tokens(ask, offer).or(offer.default_completion_max_tokens(ask));
        let certain = wanted.and_then(|wanted| self.remaining_window(offer, wanted)?.certain_tokens);
        let asked = self.reduced_max_tokens(offer, ask).or(wanted);
        let left = named_maximum.or(certain).filter(|left| asked.is_some_and(|asked| *left < asked));
        self.lowered_caps.extend(left.map(|left| (offer.offer.index, left)));
        left.is_some()
    }

    /// Returns the expected number of response tokens at the requested model.
    pub fn expected_output_tokens(
        &self,
        live: &ConfigSnapshot,
        ask: &InferenceRequest,
        now: Duration,
    ) -> u64 {
        expected_output_tokens(live, &self.model, ask, now)
    }

    /// Returns the requested model, in whose hourly statistics the response is counted.
    pub fn requested_model(&self) -> &ModelState {
        &self.model
    }
}
