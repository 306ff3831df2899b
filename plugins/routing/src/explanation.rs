//! Explanation of a plan: the order of the candidates with the terms of their scores. It uses the scores of
//! [`plan`](crate::plan), so for the same candidates its order differs from that of the plan at most by the shuffle of
//! ties. In the order of a request, an exploration may also move an offer to the front.

use crate::flavor::Flavor;
use crate::plan::{Candidate, TIE_MARGIN, rank_candidates};
use crate::score::{RANK_COOLDOWN, RANK_WITHIN_CARBON_LIMIT, ScoreTerms};

/// Group of candidates. A plan is ordered by these groups first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferRankGroup {
    /// Usable offer within the flavor's limit of carbon intensity.
    Usable,
    /// Usable offer whose grid emits more than the flavor's limit; it comes after all offers within the limit. Within
    /// this group, the same limit applies again relative to the cleanest of the group.
    AboveCarbonLimit,
    /// Offer in cooldown or ejected; it comes last, whatever its score.
    Unhealthy,
}

impl OfferRankGroup {
    /// Groups, best first.
    pub const ALL: [Self; 3] = [Self::Usable, Self::AboveCarbonLimit, Self::Unhealthy];

    /// Returns the name of the group.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::AboveCarbonLimit => "above_carbon_limit",
            Self::Unhealthy => "unhealthy",
        }
    }

    const fn of(rank: u128) -> Self {
        match rank {
            RANK_WITHIN_CARBON_LIMIT => Self::Usable,
            RANK_COOLDOWN.. => Self::Unhealthy,
            _ => Self::AboveCarbonLimit,
        }
    }
}

/// Candidate of an explained plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExplainedOffer {
    /// Value of [`Candidate::offer`].
    pub offer: usize,
    /// Group of the candidate.
    pub rank: OfferRankGroup,
    /// Weighted terms of the score.
    pub terms: ScoreTerms,
    /// True if the score counts as equal to the score of the first candidate, so that both share the requests.
    pub is_tied_for_first: bool,
}

/// Returns all candidates in the order of their groups and scores.
#[must_use]
pub fn explain_plan(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<ExplainedOffer> {
    let ranked = rank_candidates(flavor, candidates);
    let first = ranked.first().map(|one| (OfferRankGroup::of(one.rank), one.score));
    let is_tied = |rank: OfferRankGroup, score: f64| {
        first.is_some_and(|(best, lowest)| {
            rank == best && rank != OfferRankGroup::Unhealthy && score <= lowest + TIE_MARGIN
        })
    };
    let explained = ranked.iter().map(|one| {
        let rank = OfferRankGroup::of(one.rank);
        ExplainedOffer {
            offer: one.offer,
            rank,
            terms: one.terms,
            is_tied_for_first: is_tied(rank, one.score),
        }
    });
    explained.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::{ECO, FLAVORS, OfferHealth, plan};
    use std::time::Duration;

    fn candidate(offer: usize, price: f64, seconds: f64, grams: f64) -> Candidate {
        Candidate { price, predicted_seconds: Some(seconds), ci_g_per_kwh: grams, ..Candidate::new(offer) }
    }

    #[test]
    fn the_first_of_the_plan_shares_the_first_rank_of_the_explanation() {
        let candidates = [
            candidate(0, 1.0, 2.0, 30.0),
            candidate(1, 1.01, 2.0, 31.0),
            candidate(2, 3.0, 0.5, 500.0),
            candidate(3, 0.5, 9.0, 60.0),
        ];
        for flavor in FLAVORS {
            let explained = explain_plan(*flavor, &candidates);
            assert_eq!(explained.len(), candidates.len());
            for seed in 0..64 {
                let first = plan(*flavor, &candidates, seed)[0];
                assert!(
                    explained.iter().any(|one| one.offer == first && one.is_tied_for_first),
                    "{flavor:?} {seed}: {explained:?}"
                );
            }
            let weights = flavor.weights();
            for one in &explained {
                assert!((0.0..=weights.price).contains(&one.terms.price), "{one:?}");
                assert!((0.0..=weights.speed).contains(&one.terms.speed), "{one:?}");
                assert!((0.0..=weights.environment).contains(&one.terms.environment), "{one:?}");
            }
        }
    }

    #[test]
    fn groups_come_before_scores() {
        let until = Duration::from_secs(9);
        let ejected =
            Candidate { health: OfferHealth::Ejected { failures: 3, until }, ..candidate(0, 0.1, 0.1, 30.0) };
        let explained =
            explain_plan(ECO, &[ejected, candidate(1, 9.0, 9.0, 90.0), candidate(2, 9.0, 9.0, 30.0)]);
        let order: Vec<_> = explained.iter().map(|one| (one.offer, one.rank)).collect();
        let expected = [
            (2, OfferRankGroup::Usable),
            (1, OfferRankGroup::AboveCarbonLimit),
            (0, OfferRankGroup::Unhealthy),
        ];
        assert_eq!(order, expected);
        assert!(explained[0].is_tied_for_first && !explained[1].is_tied_for_first);
    }
}
