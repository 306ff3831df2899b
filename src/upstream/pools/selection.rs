//! Selection by flavor: the order in which the candidates of a request are tried.
//!
//! The crate hands a selection a key of bytes for each request. Here the key is the encoded [`PlanRequest`]: what the
//! scores depend on, and which offers are candidates.

use super::discovery::offer_index;
use crate::upstream::offer::OfferLive;
use parking_lot::Mutex;
use penstock_routing::{BALANCED, Candidate, Explorations, Flavor, explore, plan};
use pingora_load_balancing::selection::{BackendIter, BackendSelection};
use pingora_load_balancing::{Backend, Extensions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// Time of the plan.
    pub now: Duration,
    /// Tokens of the prompt, at least one.
    pub prompt_tokens: u64,
    /// Tokens that the answer will probably have.
    pub output_tokens: u64,
    /// Random number that spreads load over offers that are nearly equal.
    pub seed: u64,
    /// Permission to measure an offer of which too little is known.
    pub exploration: Exploration,
    /// Indexes of the candidates, rising.
    pub offers: &'a [usize],
}

/// Permission to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exploration {
    /// The order of the scores stays.
    Denied,
    /// An offer that is due may come first; the random number decides between equals.
    Allowed {
        /// The random number.
        seed: u64,
    },
}

/// Words of a key before the candidates.
const HEADER: usize = 6;

impl PlanRequest<'_> {
    /// Encodes the request as the key of a selection.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (allowed, seed) = match self.exploration {
            Exploration::Denied => (0, 0),
            Exploration::Allowed { seed } => (1, seed),
        };
        let now = u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX);
        let header: [u64; HEADER] = [now, self.prompt_tokens, self.output_tokens, self.seed, allowed, seed];
        let mut key = Vec::with_capacity((HEADER + self.offers.len()) * size_of::<u64>());
        for word in header {
            key.extend_from_slice(&word.to_le_bytes());
        }
        for offer in self.offers {
            key.extend_from_slice(&(*offer as u64).to_le_bytes());
        }
        key
    }
}

/// Decoded key. A key that is no plan request orders nothing.
struct Key<'a> {
    header: [u64; HEADER],
    offers: &'a [[u8; 8]],
}

impl<'a> Key<'a> {
    fn decode(key: &'a [u8]) -> Option<Self> {
        let (words, _) = key.as_chunks::<8>();
        let (header, offers) = words.split_first_chunk::<HEADER>()?;
        Some(Self { header: header.map(u64::from_le_bytes), offers })
    }

    fn offers(&self) -> impl Iterator<Item = usize> {
        self.offers.iter().filter_map(|word| usize::try_from(u64::from_le_bytes(*word)).ok())
    }
}

/// Flavor of a selector, and what the selectors of a model share.
#[derive(Clone)]
pub struct FlavorConfig {
    pub(super) flavor: &'static dyn Flavor,
    pub(super) explorations: Arc<Mutex<Explorations>>,
}

/// Offers of a model, to be ordered by one flavor.
pub struct FlavorSelection {
    config: FlavorConfig,
    /// By rising index of the offer.
    members: Vec<Member>,
}

struct Member {
    offer: Arc<OfferLive>,
    /// Without extensions, which would be cloned for each request.
    backend: Backend,
}

impl BackendSelection for FlavorSelection {
    type Iter = Order;
    type Config = FlavorConfig;

    fn build_with_config(backends: &BTreeSet<Backend>, config: &FlavorConfig) -> Self {
        let member = |backend: &Backend| {
            let offer = backend.ext.get::<Arc<OfferLive>>()?.clone();
            let (addr, weight) = (backend.addr.clone(), backend.weight);
            Some(Member { offer, backend: Backend { addr, weight, ext: Extensions::new() } })
        };
        let mut members: Vec<Member> = backends.iter().filter_map(member).collect();
        members.sort_unstable_by_key(|member| member.backend.weight);
        Self { config: config.clone(), members }
    }

    fn build(backends: &BTreeSet<Backend>) -> Self {
        let config = FlavorConfig { flavor: BALANCED, explorations: Arc::default() };
        Self::build_with_config(backends, &config)
    }

    fn iter(self: &Arc<Self>, key: &[u8]) -> Order {
        let order = Key::decode(key).map(|key| self.order(&key)).unwrap_or_default();
        Order { selection: self.clone(), order: order.into_iter() }
    }
}

impl FlavorSelection {
    /// Positions of the candidates in `members`, best first.
    fn order(&self, key: &Key<'_>) -> Vec<usize> {
        let [now, prompt, output, seed, explores, explore_seed] = key.header;
        let now = Duration::from_nanos(now);
        let candidates: Vec<Candidate> = key
            .offers()
            .filter_map(|index| {
                let at =
                    self.members.binary_search_by_key(&index, |member| offer_index(&member.backend)).ok()?;
                let candidate = self.members.get(at)?.offer.candidate(now, prompt, output);
                Some(Candidate { offer: at, ..candidate })
            })
            .collect();
        let mut order = plan(self.config.flavor, &candidates, seed);
        if explores != 0 {
            self.explore(&candidates, &mut order, explore_seed);
        }
        order
    }

    /// Moves an offer of which too little is known to the front, where the requests of the model have earned it.
    fn explore(&self, candidates: &[Candidate], order: &mut [usize], seed: u64) {
        let mut explorations = self.config.explorations.lock();
        explorations.on_request();
        let Some(first) = order.first() else { return };
        let Some(offer) = explore(candidates, *first, seed) else { return };
        let position = order.iter().position(|at| *at == offer);
        if let Some(head) = position.and_then(|position| order.get_mut(..=position))
            && explorations.try_explore()
        {
            head.rotate_right(1);
        }
    }
}

/// Backends in the order of one request.
pub struct Order {
    selection: Arc<FlavorSelection>,
    order: std::vec::IntoIter<usize>,
}

impl BackendIter for Order {
    fn next(&mut self) -> Option<&Backend> {
        let at = self.order.next()?;
        self.selection.members.get(at).map(|member| &member.backend)
    }
}
