//! Usage of choices that were requested one by one, as one charge. All of it is charged at the price of the offer of
//! the first choice; the energy of each offer is counted by its own figures.

use super::super::{Run, settle};
use crate::upstream::offer::OfferLive;
use penstock_contract::{Done, Measured, Reply, Usage, UsageSource};
use std::sync::Arc;
use std::time::Duration;

/// Usage of one choice, or of several in one response.
pub(crate) struct Part {
    /// Offer of the choice.
    pub(crate) offer: Arc<OfferLive>,
    /// Usage that is charged.
    pub(crate) done: Usage,
    /// Usage of this offer, where others did the rest.
    pub(crate) own: Usage,
    /// Energy that the provider measured.
    pub(crate) measured: Option<Measured>,
    /// Duration of the work.
    pub(crate) took: Duration,
}

impl Part {
    /// Returns the usage of a stream that ended before all choices were complete.
    pub(super) fn begun(run: &Run<'_, '_>, reply: &dyn Reply) -> Option<Self> {
        let offer = run.current.clone().filter(|_| run.progress.has_content())?;
        let own = reply.worked();
        let done = reply.usage().unwrap_or_else(|| run.ask.counted(reply.output_bytes()));
        let took = run.x.record.attempts.last().map_or(Duration::ZERO, |note| note.took);
        Some(Self { offer, done, own, measured: reply.measured(), took })
    }
}

/// Returns the sum of the charged usage.
pub(super) fn usage(parts: &[Part]) -> Usage {
    parts.iter().fold(Usage::default(), |sum, part| plus(sum, part.done))
}

fn plus(sum: Usage, more: Usage) -> Usage {
    let counted = sum.source == UsageSource::Gateway || more.source == UsageSource::Gateway;
    Usage {
        input: sum.input.saturating_add(more.input),
        cached: sum.cached.saturating_add(more.cached),
        output: sum.output.saturating_add(more.output),
        reasoning: sum.reasoning.saturating_add(more.reasoning),
        source: if counted { UsageSource::Gateway } else { UsageSource::Provider },
    }
}

/// Settles all parts; returns the members that go into the response.
pub(super) fn settle(run: &mut Run<'_, '_>, parts: Vec<Part>) -> Vec<u8> {
    let done = usage(&parts);
    let Some(primary) = parts.first().map(|part| part.offer.clone()) else { return Vec::new() };
    let alone = parts.iter().all(|part| Arc::ptr_eq(&part.offer, &primary));
    let measured = if alone { measured(&parts) } else { None };
    let (mut own, mut took) = (Usage::default(), Duration::ZERO);
    for part in &parts {
        if Arc::ptr_eq(&part.offer, &primary) {
            own = plus(own, part.own);
            took += part.took;
        } else {
            run.spent.add_part(part);
        }
    }
    settle::served(run, &primary, Done::Tokens(done), Done::Tokens(own), measured, took, None)
}

/// Returns the energy, if it was measured for all parts at one boundary.
fn measured(parts: &[Part]) -> Option<Measured> {
    let mut all = parts.iter().map(|part| part.measured);
    let first = all.next()??;
    all.try_fold(first, |sum, more| {
        let more = more.filter(|more| more.boundary == sum.boundary)?;
        Some(Measured { joules: sum.joules.checked_add(more.joules)?, ..sum })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_marked_if_a_part_of_it_is() {
        let stated = Usage { input: 5, cached: 2, output: 3, reasoning: 1, source: UsageSource::Provider };
        let counted = Usage { source: UsageSource::Gateway, ..stated };
        let twice = Usage { input: 10, cached: 4, output: 6, reasoning: 2, source: UsageSource::Provider };
        assert_eq!(plus(stated, stated), twice);
        assert_eq!(plus(counted, stated).source, UsageSource::Gateway);
        assert_eq!(plus(stated, counted).source, UsageSource::Gateway);
        let most = Usage { input: u64::MAX, ..stated };
        assert_eq!(plus(most, stated).input, u64::MAX);
    }
}
