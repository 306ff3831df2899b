//! Combined charge of choices that were requested one by one. All choices are charged at the price of the first
//! choice's offer; the energy of each choice is computed with the factors of its own offer.

use super::super::{FailoverRun, settle};
use crate::upstream::offer::OfferState;
use penstock_core::{MeasuredEnergy, StreamTranslation, TokenUsage, UsageSource, WorkDone};
use penstock_http_wire::usage::sum_energy;
use std::sync::Arc;
use std::time::Duration;

/// Usage of one choice, or of several in one response.
pub(crate) struct ChoiceUsage {
    /// Offer of the choice.
    pub(crate) offer: Arc<OfferState>,
    /// Usage that the client is charged for.
    pub(crate) charged_usage: TokenUsage,
    /// Usage of this offer; it differs from the charged usage if other offers did a part of the work.
    pub(crate) provider_usage: TokenUsage,
    /// Energy that the provider measured.
    pub(crate) measured: Option<MeasuredEnergy>,
    /// Duration of the attempt.
    pub(crate) took: Duration,
}

impl ChoiceUsage {
    /// Returns the usage of a stream that ended before all choices were complete; `None` if the stream had no content.
    pub(super) fn from_partial_stream(
        run: &FailoverRun<'_, '_>,
        reply: &dyn StreamTranslation,
    ) -> Option<Self> {
        let offer = run.current_offer.clone().filter(|_| run.progress.has_content())?;
        let own = reply.attempt_usage();
        let done = reply
            .usage()
            .unwrap_or_else(|| run.request.estimate_unreported_usage(reply.delivered_text_bytes()));
        let took = run.exchange.record.attempts.last().map_or(Duration::ZERO, |note| note.duration);
        Some(Self {
            offer,
            charged_usage: done,
            provider_usage: own,
            measured: reply.measured_energy().or(run.header_energy),
            took,
        })
    }
}

/// Returns the sum of the charged usage.
pub(super) fn total_usage(parts: &[ChoiceUsage]) -> TokenUsage {
    parts.iter().fold(TokenUsage::default(), |sum, part| add_usage(sum, part.charged_usage))
}

fn add_usage(sum: TokenUsage, more: TokenUsage) -> TokenUsage {
    let source = match (sum.source, more.source) {
        (UsageSource::Overstated, _) | (_, UsageSource::Overstated) => UsageSource::Overstated,
        (UsageSource::Understated, _) | (_, UsageSource::Understated) => UsageSource::Understated,
        (UsageSource::Gateway, _) | (_, UsageSource::Gateway) => UsageSource::Gateway,
        (UsageSource::Provider, UsageSource::Provider) => UsageSource::Provider,
    };
    TokenUsage {
        input: sum.input.saturating_add(more.input),
        cached: sum.cached.saturating_add(more.cached),
        output: sum.output.saturating_add(more.output),
        reasoning: sum.reasoning.saturating_add(more.reasoning),
        mean_prompt_length: sum.joint_prompt_length(&more),
        source,
    }
}

/// Settles all parts. Returns the members that are injected into the response.
pub(super) fn settle_choices(run: &mut FailoverRun<'_, '_>, parts: Vec<ChoiceUsage>) -> Vec<u8> {
    let done = total_usage(&parts);
    let Some(primary) = parts.first().map(|part| part.offer.clone()) else { return Vec::new() };
    let alone = parts.iter().all(|part| Arc::ptr_eq(&part.offer, &primary));
    let measured = if alone { sum_energy(parts.iter().map(|part| part.measured)) } else { None };
    let (mut own, mut took) = (TokenUsage::default(), Duration::ZERO);
    for part in &parts {
        if Arc::ptr_eq(&part.offer, &primary) {
            own = add_usage(own, part.provider_usage);
            took += part.took;
        } else {
            run.failed_energy.add_uncharged_work(part);
        }
    }
    settle::settle_usage(run, &primary, WorkDone::Tokens(done), WorkDone::Tokens(own), measured, took, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_marked_if_a_part_of_it_is() {
        let stated = TokenUsage { input: 5, cached: 2, output: 3, reasoning: 1, ..TokenUsage::default() };
        let counted = TokenUsage { source: UsageSource::Gateway, ..stated };
        let twice = TokenUsage {
            input: 10,
            cached: 4,
            output: 6,
            reasoning: 2,
            mean_prompt_length: Some(5),
            source: UsageSource::Provider,
        };
        assert_eq!(add_usage(stated, stated), twice);
        assert_eq!(add_usage(counted, stated).source, UsageSource::Gateway);
        assert_eq!(add_usage(stated, counted).source, UsageSource::Gateway);
        let absurd = TokenUsage { source: UsageSource::Overstated, ..stated };
        assert_eq!(add_usage(absurd, counted).source, UsageSource::Overstated);
        assert_eq!(add_usage(add_usage(counted, stated), absurd).source, UsageSource::Overstated);
        let most = TokenUsage { input: u64::MAX, ..stated };
        assert_eq!(add_usage(most, stated).input, u64::MAX);
    }

    #[test]
    fn the_prompt_of_each_choice_keeps_its_length() {
        let stated = TokenUsage { input: 49_000, output: 7, ..TokenUsage::default() };
        let sum = (0..3).fold(TokenUsage::default(), |sum, _| add_usage(sum, stated));
        assert_eq!((sum.input, sum.output, sum.prompt_length()), (147_000, 21, 49_000));
    }
}
