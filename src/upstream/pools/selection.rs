//! Selection by flavor: the order in which the candidates of a request are tried.
//!
//! `pingora_load_balancing` passes a selection one key of bytes for each request. Here, the key is the encoded
//! [`PlanRequest`]: the inputs of the scores, and the candidate offers.

use super::discovery::offer_index;
use crate::upstream::cache_affinity::SessionHistory;
use crate::upstream::offer::OfferState;
use crate::upstream::sessions::SessionRecord;
use parking_lot::Mutex;
use penstock_routing::{
    BALANCED, Candidate, ExplorationBudgets, ExplorationScope, Flavor, PlannedOffer, SessionKey,
    choose_exploration, plan,
};
use pingora_load_balancing::selection::{BackendIter, BackendSelection};
use pingora_load_balancing::{Backend, Extensions};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Input from which the candidates of a request are ordered.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// Time of the steady clock at which the candidates are ordered.
    pub now: Duration,
    /// Tokens of the prompt, at least one.
    pub prompt_tokens: u64,
    /// Expected tokens of the answer.
    pub output_tokens: u64,
    /// Random number by which the load is spread over offers with almost equal scores.
    pub seed: u64,
    /// Permission to explore an offer with too few measurements.
    pub exploration: ExplorationMode,
    /// Session of the request; `None` without one: then offers with similar scores share the load at random.
    pub session: Option<SessionHistory>,
    /// Indexes of the candidates, ascending.
    pub offers: &'a [usize],
}

/// Permission to try an offer with too few measurements before better-scored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplorationMode {
    /// No exploration: the order of the scores stays.
    Denied,
    /// Exploration allowed: an offer that is due may come first.
    Allowed {
        /// Offers that may be explored.
        scope: ExplorationScope,
        /// Random number that decides between equal offers.
        seed: u64,
    },
}

/// Number of 64-bit words before the candidates in the key of a selection, which [`PlanRequest::encode`] returns.
const HEADER_WORDS: usize = 9;

impl PlanRequest<'_> {
    /// Encodes the request as the key of a selection.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (exploration, seed) = match self.exploration {
            ExplorationMode::Denied => (0, 0),
            ExplorationMode::Allowed { scope: ExplorationScope::EqualOffers, seed } => (1, seed),
            ExplorationMode::Allowed { scope: ExplorationScope::OldOffers, seed } => (2, seed),
            ExplorationMode::Allowed { scope: ExplorationScope::AllOffers, seed } => (3, seed),
        };
        let now = u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX);
        let [kind, session, offer] = encode_session(self.session);
        let header: [u64; HEADER_WORDS] =
            [now, self.prompt_tokens, self.output_tokens, self.seed, exploration, seed, kind, session, offer];
        let mut key = Vec::with_capacity((HEADER_WORDS + self.offers.len()) * size_of::<u64>());
        for word in header {
            key.extend_from_slice(&word.to_le_bytes());
        }
        for offer in self.offers {
            key.extend_from_slice(&(*offer as u64).to_le_bytes());
        }
        key
    }
}

/// Encodes a session in three words: first its kind in the lowest two bits, with the tokens of the record above them;
/// then its key; then the offer of the record.
fn encode_session(session: Option<SessionHistory>) -> [u64; 3] {
    match session {
        None => [0; 3],
        Some(SessionHistory { key, record: None }) => [1, key.0, 0],
        Some(SessionHistory { key, record: Some(record) }) => {
            [2 | u64::from(record.tokens) << 2, key.0, record.offer_hash]
        }
    }
}

fn decode_session([kind, key, offer]: [u64; 3]) -> Option<SessionHistory> {
    let tokens = u32::try_from(kind >> 2).unwrap_or(u32::MAX);
    let record = (kind & 2 != 0).then_some(SessionRecord { offer_hash: offer, tokens });
    (kind != 0).then_some(SessionHistory { key: SessionKey(key), record })
}

/// Decoded key of a selection. A key that is not a plan request yields an empty order.
struct SelectionKey<'a> {
    header: [u64; HEADER_WORDS],
    offers: &'a [[u8; 8]],
}

impl<'a> SelectionKey<'a> {
    fn decode(key: &'a [u8]) -> Option<Self> {
        let (words, _) = key.as_chunks::<8>();
        let (header, offers) = words.split_first_chunk::<HEADER_WORDS>()?;
        Some(Self { header: header.map(u64::from_le_bytes), offers })
    }

    fn offers(&self) -> impl Iterator<Item = usize> {
        self.offers.iter().filter_map(|word| usize::try_from(u64::from_le_bytes(*word)).ok())
    }
}

/// Configuration of a selector: its flavor, and the exploration budgets that the selectors of a model share.
#[derive(Clone)]
pub struct FlavorConfig {
    pub(super) flavor: &'static dyn Flavor,
    pub(super) explorations: Arc<Mutex<ExplorationBudgets>>,
}

/// Selector that orders the offers of a model by one flavor.
pub struct FlavorSelector {
    config: FlavorConfig,
    /// Offers of the pool in ascending order of their indexes.
    members: Vec<PoolMember>,
}

struct PoolMember {
    offer: Arc<OfferState>,
    /// Backend without extensions, because it is cloned for each request.
    backend: Backend,
}

impl BackendSelection for FlavorSelector {
    type Iter = OfferOrder;
    type Config = FlavorConfig;

    fn build_with_config(backends: &BTreeSet<Backend>, config: &FlavorConfig) -> Self {
        let member = |backend: &Backend| {
            let offer = backend.ext.get::<Arc<OfferState>>()?.clone();
            let (addr, weight) = (backend.addr.clone(), backend.weight);
            Some(PoolMember { offer, backend: Backend { addr, weight, ext: Extensions::new() } })
        };
        let mut members: Vec<PoolMember> = backends.iter().filter_map(member).collect();
        members.sort_unstable_by_key(|member| member.backend.weight);
        Self { config: config.clone(), members }
    }

    fn build(backends: &BTreeSet<Backend>) -> Self {
        let config = FlavorConfig { flavor: BALANCED, explorations: Arc::default() };
        Self::build_with_config(backends, &config)
    }

    fn iter(self: &Arc<Self>, key: &[u8]) -> OfferOrder {
        let entries = SelectionKey::decode(key).map(|key| self.order(&key)).unwrap_or_default();
        OfferOrder { selection: self.clone(), entries, next: 0 }
    }
}

impl FlavorSelector {
    /// Returns the entries of the candidates, best first.
    fn order(&self, key: &SelectionKey<'_>) -> Vec<PlannedOffer> {
        let [now, prompt, output, seed, exploration, explore_seed, session @ ..] = key.header;
        let session = decode_session(session);
        let now = Duration::from_nanos(now);
        let mut candidates = Vec::with_capacity(key.offers.len());
        let mut entries = Vec::with_capacity(key.offers.len());
        for member in key.offers().filter_map(|index| self.member(index)) {
            let (candidate, entry) = member.offer.candidate(now, prompt, output, session);
            candidates.push(Candidate { offer: entries.len(), ..candidate });
            entries.push(entry);
        }
        let mut order = plan(self.config.flavor, &candidates, seed);
        match exploration {
            0 => {}
            1 => self.explore(ExplorationScope::EqualOffers, &candidates, &mut order, explore_seed),
            2 => self.explore(ExplorationScope::OldOffers, &candidates, &mut order, explore_seed),
            _ => self.explore(ExplorationScope::AllOffers, &candidates, &mut order, explore_seed),
        }
        order.into_iter().filter_map(|at| entries.get(at).copied()).collect()
    }

    /// Moves an offer with too few measurements to the front, if the exploration budget of the model allows that.
    fn explore(&self, scope: ExplorationScope, candidates: &[Candidate], order: &mut [usize], seed: u64) {
        let flavor = self.config.flavor;
        let mut explorations = self.config.explorations.lock();
        let budget = explorations.of_flavor(flavor);
        budget.on_request();
        let Some((first, scope)) = order.first().zip(scope.within_budget(budget)) else { return };
        let Some(offer) = choose_exploration(flavor, scope, candidates, *first, seed) else { return };
        let position = order.iter().position(|at| *at == offer);
        if let Some(head) = position.and_then(|position| order.get_mut(..=position))
            && budget.try_explore()
        {
            head.rotate_right(1);
        }
    }

    fn member(&self, offer: usize) -> Option<&PoolMember> {
        let at = self.members.binary_search_by_key(&offer, |member| offer_index(&member.backend)).ok()?;
        self.members.get(at)
    }
}

thread_local! {
    /// Entries of the last selection on this thread.
    static LAST_ORDER: Cell<Vec<PlannedOffer>> = const { Cell::new(Vec::new()) };
}

/// Takes the entries of the selection that the current thread made last. A selection can return only one backend, but
/// a plan needs the entries of all. In an extension of the backend, the entries would be copied several times.
pub(super) fn take_last_order() -> Vec<PlannedOffer> {
    LAST_ORDER.take()
}

/// Iterator over the backends in the order of one request; most requests need only the first. The entries of the
/// whole order are stored for [`take_last_order`].
pub struct OfferOrder {
    selection: Arc<FlavorSelector>,
    entries: Vec<PlannedOffer>,
    next: usize,
}

impl BackendIter for OfferOrder {
    fn next(&mut self) -> Option<&Backend> {
        let entry = self.entries.get(self.next)?;
        self.next += 1;
        Some(&self.selection.member(entry.offer)?.backend)
    }
}

impl Drop for OfferOrder {
    fn drop(&mut self) {
        LAST_ORDER.set(std::mem::take(&mut self.entries));
    }
}
