//! Affinity: a conversation goes to the offer that has the conversation's prefix in its cache, unless another offer
//! is better despite the cache.
//!
//! Two rules work together. Neither needs state that gateways share:
//!
//! - **Record.** The offer that answered the session last gets the expected saving of the cached tokens in its score:
//!   price, time and energy. If another offer is better even with this saving, the session moves.
//! - **Rendezvous.** Among offers with similar scores, a session without a record goes to the one with the highest
//!   [`rendezvous_weight`]. So all gateways choose the same offer, and if an offer disappears, only its own sessions
//!   move.
//!
//! Both rules are bounded by load: neither prefers an offer that has more than [`LOAD_LIMIT_FACTOR`] times its share
//! of the requests in flight (consistent hashing with bounded loads, Mirrokni et al. 2016).

use crate::breaker::OfferHealth;
use crate::plan::Candidate;
use crate::score::{DEFAULT_MAX_IN_FLIGHT, RANK_WITHIN_CARBON_LIMIT, ScoredOffer};

/// Load up to which an offer accepts a session, as a multiple of its share of all requests in flight.
pub const LOAD_LIMIT_FACTOR: f64 = 1.25;

/// Number of requests in flight up to which an offer always accepts a session: engines process this number in one
/// batch without slowing down, and with so few requests a share is not meaningful.
pub const MIN_LOAD_LIMIT_REQUESTS: u32 = 8;

/// Session of a request, as a hash; the same on every gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(pub u64);

/// Expected saving by a cached prefix at an offer. Used only to compare offers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptCacheSaving {
    /// Saved part of the candidate's expected price, EUR.
    pub price: f64,
    /// Saved part of the candidate's predicted time, seconds.
    pub seconds: f64,
    /// Saved share of the request's energy, 0 to 1.
    pub energy: f64,
}

/// Relation of an offer to the session of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfferAffinity {
    /// Weight of the offer for this session, from [`rendezvous_weight`].
    pub weight: u64,
    /// Expected saving, if the offer answered the session last; otherwise `None`.
    pub saving: Option<PromptCacheSaving>,
}

/// Returns the weight of an offer for a session (rendezvous hashing). `offer` is a hash of the offer's identity, equal
/// on every gateway.
#[must_use]
pub const fn rendezvous_weight(session: SessionKey, offer: u64) -> u64 {
    mix(session.0 ^ mix(offer))
}

/// Returns a hash of bytes that is the same in every process and version. Not suitable for secrets.
#[must_use]
pub fn stable_hash(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let start = mix(seed ^ bytes.len() as u64);
    let hash = words.iter().fold(start, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mix(hash ^ u64::from_le_bytes(last))
}

/// Finalizer of splitmix64: each input bit changes half of the output bits.
const fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the maximum number of requests in flight, including the new one, with which an offer still accepts a
/// session: [`LOAD_LIMIT_FACTOR`] times its share of `total`, and at least [`MIN_LOAD_LIMIT_REQUESTS`].
#[must_use]
pub fn load_limit(total: u32, share: f64) -> u32 {
    let limit = (f64::from(total) * share * LOAD_LIMIT_FACTOR).ceil();
    // A share is at most 1, so the limit is far below `u32::MAX` for any number of requests a process can hold.
    (limit as u32).max(MIN_LOAD_LIMIT_REQUESTS)
}

/// Returns for each candidate true if it may serve the session: it must be usable, within its load limit, and either
/// have a score within `margin` of the best, or be the offer that answered the session last. The load limits are
/// computed only from the candidates with such a score, and from the one that answered last. `scored` contains the
/// scores without cache savings, in the order of `candidates`.
pub(crate) fn session_eligibility(
    candidates: &[Candidate],
    scored: &[ScoredOffer],
    margin: f64,
) -> Vec<bool> {
    let usable = scored.iter().filter(|one| one.rank == RANK_WITHIN_CARBON_LIMIT);
    let limit = usable.map(|one| one.score).fold(f64::INFINITY, f64::min) + margin;
    let competes = |one: &Candidate, score: &ScoredOffer| {
        score.rank == RANK_WITHIN_CARBON_LIMIT && (score.score <= limit || is_recorded(one))
    };
    let competing = || candidates.iter().zip(scored).filter(|(one, score)| competes(one, score));
    let (total, capacity) = competing().fold((1_u32, 0.0), |(total, capacity), (one, _)| {
        (total.saturating_add(one.in_flight), capacity + capacity_of(one))
    });
    let fits = |one: &Candidate| {
        one.in_flight.saturating_add(1) <= load_limit(total, capacity_of(one) / capacity)
            && matches!(one.health, OfferHealth::Healthy | OfferHealth::HalfOpen)
    };
    candidates.iter().zip(scored).map(|(one, score)| competes(one, score) && fits(one)).collect()
}

fn capacity_of(one: &Candidate) -> f64 {
    f64::from(if one.max_in_flight == 0 { DEFAULT_MAX_IN_FLIGHT } else { one.max_in_flight })
}

fn is_recorded(one: &Candidate) -> bool {
    one.session.is_some_and(|session| session.saving.is_some())
}
