//! Explanation of the candidates of a request: the offers in the order of a flavor with the terms of their scores, and
//! the offers that cannot serve the request, each with its reason. It uses the checks and the scores of real requests.

use crate::proxy::context_window::{WindowFit, window_fit};
use crate::proxy::failover::{expected_output_tokens, unsupported_by_offer_error};
use crate::upstream::config_snapshot::{ConfigSnapshot, ModelState};
use crate::upstream::offer::{OfferState, SelectionTime};
use penstock_core::{ApiError, InferenceRequest, OfferFilterKind};
use penstock_dialect::parameters::has_engine_constraint;
use penstock_routing::{Candidate, ExplainedOffer, Flavor, explain_plan};
use penstock_tokens::{CountMethod, TokenCount};
use std::sync::Arc;

/// Reason for which an offer cannot serve a request.
#[derive(Debug)]
pub enum ExclusionReason {
    /// The key may not use the model.
    KeyPolicy,
    /// The offer lacks something that the request needs.
    Capability(ApiError),
    /// The offer does not meet these filters of the request.
    Filters(Vec<OfferFilterKind>),
    /// The prompt alone exceeds the context window of the offer.
    ContextWindow,
}

impl ExclusionReason {
    /// Returns the name of the reason: `key`, the parameter that the offer lacks, the first unmet filter, or
    /// `context_window`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::KeyPolicy => "key".to_owned(),
            Self::Capability(refusal) => refusal.param.as_deref().unwrap_or("capability").to_owned(),
            Self::Filters(filters) => filters.first().map(ToString::to_string).unwrap_or_default(),
            Self::ContextWindow => "context_window".to_owned(),
        }
    }

    /// Returns the reason as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::KeyPolicy => "This API key may not use this model.".to_owned(),
            Self::Capability(refusal) => refusal.message.to_string(),
            Self::Filters(filters) => {
                let names: Vec<&str> = filters.iter().map(|filter| filter.name()).collect();
                format!("The offer does not meet these filters: {}.", names.join(", "))
            }
            Self::ContextWindow => "The prompt exceeds the context window of this offer.".to_owned(),
        }
    }
}

/// Candidate of an explained request.
pub struct ExplainedCandidate {
    /// Offer of the candidate.
    pub offer: Arc<OfferState>,
    /// Values that were scored.
    pub candidate: Candidate,
    /// Group and score of the candidate.
    pub explained: ExplainedOffer,
    /// Fit of the request into the context window of the offer.
    pub fit: WindowFit,
    /// True if the offer meets the filters only because its speed is unknown.
    pub has_unmeasured_speed: bool,
}

/// Order of the offers for one flavor.
pub struct RouteExplanation {
    /// Flavor by which the offers are ordered.
    pub flavor: &'static dyn Flavor,
    /// Candidates of the request, the best first.
    pub candidates: Vec<ExplainedCandidate>,
    /// Offers that cannot serve the request.
    pub excluded: Vec<(Arc<OfferState>, ExclusionReason)>,
    /// Expected number of output tokens, which is the same for each offer.
    pub output_tokens: u64,
}

/// Candidate before its score.
struct AbleOffer {
    offer: Arc<OfferState>,
    fit: WindowFit,
    has_unmeasured_speed: bool,
}

/// Explains the order of a model's offers for a request with this number of prompt tokens. `has_permission` is false if
/// the key of the request may not use the model.
#[must_use]
pub fn explain_routes(
    live: &ConfigSnapshot,
    model: &ModelState,
    (ask, prompt_tokens): (&InferenceRequest, u64),
    flavor: &'static dyn Flavor,
    has_permission: bool,
    moment: SelectionTime,
) -> RouteExplanation {
    let output_tokens = expected_output_tokens(live, model, ask, moment.steady);
    let count = TokenCount { tokens: prompt_tokens, method: CountMethod::Exact };
    let constrained = has_engine_constraint(ask);
    let (mut able, mut excluded) = (Vec::new(), Vec::new());
    for offer in model.offers.iter().filter_map(|index| live.offers.get(*index)) {
        let fit = window_fit(Some(&count), offer, ask, moment.steady);
        match exclusion(offer, ask, (has_permission, constrained), flavor.is_low_priority(), moment) {
            Some(reason) => excluded.push((offer.clone(), reason)),
            None => able.push(AbleOffer {
                offer: offer.clone(),
                fit,
                has_unmeasured_speed: has_unmeasured_speed(offer, ask, moment),
            }),
        }
    }
    // As for a real request, all able offers are scored first. Then those whose context window is too small are left
    // out. If no offer remains, the gateway or the provider refuses the request, or a fallback model answers it.
    let mut candidates = ranked(&able, flavor, (prompt_tokens, output_tokens), moment);
    let too_long = candidates.extract_if(.., |one| one.fit == WindowFit::TooLong);
    excluded.extend(too_long.map(|one| (one.offer, ExclusionReason::ContextWindow)));
    mark_first(&mut candidates);
    RouteExplanation { flavor, candidates, excluded, output_tokens }
}

/// Returns the reason for which an offer cannot serve the request, apart from its context window; `None` if it can.
fn exclusion(
    offer: &OfferState,
    ask: &InferenceRequest,
    (has_permission, constrained): (bool, bool),
    is_batch: bool,
    moment: SelectionTime,
) -> Option<ExclusionReason> {
    if !has_permission {
        return Some(ExclusionReason::KeyPolicy);
    }
    if let Some(refusal) = unsupported_by_offer_error(offer, ask, constrained, moment) {
        return Some(ExclusionReason::Capability(refusal));
    }
    let filters = ask.filters.as_ref()?;
    let facts = offer.offer_properties(moment, is_batch);
    let unmet =
        OfferFilterKind::ALL.into_iter().filter(|filter| !filters.filter_allows_offer(*filter, &facts));
    Some(unmet.collect::<Vec<_>>()).filter(|unmet| !unmet.is_empty()).map(ExclusionReason::Filters)
}

fn has_unmeasured_speed(offer: &OfferState, ask: &InferenceRequest, moment: SelectionTime) -> bool {
    let facts = offer.offer_properties(moment, false);
    ask.filters.as_ref().is_some_and(|filters| filters.is_speed_unverified(&facts))
}

/// Scores the offers, and orders them as for a request without a session, apart from explorations and the shuffle of
/// ties.
fn ranked(
    able: &[AbleOffer],
    flavor: &'static dyn Flavor,
    (prompt, output): (u64, u64),
    moment: SelectionTime,
) -> Vec<ExplainedCandidate> {
    let candidates: Vec<Candidate> = able
        .iter()
        .enumerate()
        .map(|(at, one)| Candidate {
            offer: at,
            ..one.offer.candidate(moment.steady, prompt, output, None).0
        })
        .collect();
    let explained = explain_plan(flavor, &candidates).into_iter().filter_map(|explained| {
        let (one, candidate) = (able.get(explained.offer)?, *candidates.get(explained.offer)?);
        let (offer, fit, has_unmeasured_speed) = (one.offer.clone(), one.fit, one.has_unmeasured_speed);
        Some(ExplainedCandidate { offer, candidate, explained, fit, has_unmeasured_speed })
    });
    let mut explained: Vec<ExplainedCandidate> = explained.collect();
    explained.sort_by_key(|one| (one.fit, one.has_unmeasured_speed));
    explained
}

/// Marks the candidates that share the first place: those whose score ties with the best one, and whose window and
/// speed are in the same group as those of the first candidate.
fn mark_first(candidates: &mut [ExplainedCandidate]) {
    let ties: Vec<_> = candidates
        .iter()
        .map(|one| (one.explained.is_tied_for_first, (one.fit, one.has_unmeasured_speed)))
        .collect();
    for (one, shares) in candidates.iter_mut().zip(tied_first_flags(&ties)) {
        one.explained.is_tied_for_first = shares;
    }
}

/// Returns one flag per candidate, in their order: true if it shares the first place. `ties` has for each candidate
/// whether its score ties with the best one, and its group. A single candidate in the first place does not share it.
fn tied_first_flags<G: Copy + PartialEq>(ties: &[(bool, G)]) -> Vec<bool> {
    let group = ties.first().filter(|(is_tied, _)| *is_tied).map(|(_, group)| *group);
    let shares: Vec<bool> = ties.iter().map(|(is_tied, of)| *is_tied && Some(*of) == group).collect();
    let count = shares.iter().filter(|shares| **shares).count();
    if count > 1 { shares } else { vec![false; ties.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_is_shared_by_two_or_more_of_one_group() {
        for (ties, expected) in [
            (vec![(true, 0), (true, 0), (false, 0)], vec![true, true, false]),
            (vec![(true, 0), (false, 0)], vec![false, false]),
            (vec![(true, 0), (true, 1)], vec![false, false]),
            (vec![(false, 0), (true, 1), (true, 1)], vec![false, false, false]),
            (vec![(true, 0)], vec![false]),
            (Vec::new(), Vec::new()),
        ] {
            assert_eq!(tied_first_flags(&ties), expected, "{ties:?}");
        }
    }
}
