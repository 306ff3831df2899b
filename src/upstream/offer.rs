//! Run-time state of an offer (one model at one provider): latency, circuit breaker, attempts in flight, prices, and
//! prepared request heads.

mod capabilities;
mod permit;

pub use capabilities::unsupported_choices_error;
pub use permit::{OfferPermit, OfferWaiters};

use super::cache_affinity::{CacheAffinity, SessionHistory};
use super::concurrency_limit::{AcquireOutcome, ConcurrencyPermit};
use super::failure_log::{self, FailureLogs};
use super::learned::LearnedBehavior;
use super::pools::{OfferPools, update_breaker};
use super::pricing::OfferPricing;
use super::provider_state::ProviderState;
use super::request_head;
use super::tokenize::TokenizeBackoff;
use crate::config::settings::{BillingSettings, OfferSettings};
use parking_lot::Mutex;
use penstock_core::{Dialect, OfferProperties};
use penstock_dialect::completions::COMPLETIONS_PATH;
use penstock_routing::{
    AttemptAdmission, AttemptOutcome, BreakerClient, Candidate, CircuitBreaker, LatencySample, LatencyStats,
    PlannedOffer, estimate_price,
};
use pingora_http::RequestHeader;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time at which offers are selected, by the steady clock and by the calendar clock.
#[derive(Clone, Copy)]
pub struct SelectionTime {
    /// Time of the steady clock.
    pub steady: Duration,
    /// Time by the calendar clock, Unix seconds.
    pub unix_seconds: u64,
}

/// Offer with its run-time state.
pub struct OfferState {
    /// Settings of the offer.
    pub offer: Arc<OfferSettings>,
    /// Provider of the offer.
    pub provider: Arc<ProviderState>,
    /// Latency statistics of the offer.
    pub latency_stats: Arc<Mutex<LatencyStats>>,
    /// Revision of the latency statistics that were stored last, see [`LatencyStats::revision`]; 0 for none.
    pub stored_latency_stats_revision: Arc<AtomicU64>,
    /// Circuit breaker of the offer.
    pub breaker: Arc<Mutex<CircuitBreaker>>,
    /// Pools that contain the offer. A state change of the breaker enables or disables the offer in them.
    pub(super) memberships: Arc<OfferPools>,
    /// Pause after a failure, in which the offer's engine is not asked to count tokens.
    pub(super) tokenize_backoff: Arc<TokenizeBackoff>,
    /// Properties learned from the answers of the offer; a reload forgets them.
    pub learned: LearnedBehavior,
    /// Expected benefit of the prefix cache, for conversations that the offer has answered before.
    pub cache_affinity: CacheAffinity,
    /// Prices and footprint factors of the offer's answers.
    pub pricing: OfferPricing,
    /// Log throttles for failures of the offer.
    pub(super) failure_logs: Arc<FailureLogs>,
    /// Number of attempts at the offer, shown in its status.
    pub attempts: Arc<AtomicU64>,
    in_flight: Arc<AtomicU32>,
    /// Input and output price in EUR per million tokens; of images and audio, the output price is in EUR per image or
    /// minute. 0 for a price that is not configured.
    price: (f64, f64),
    /// Carbon intensity of the grid in g CO2e per kWh, and the renewable share (0 to 1) by which `:eco` ranks offers.
    grid_factors: (f64, f64),
    heads: Vec<(Dialect, RequestHead)>,
    adapter_head: Option<RequestHead>,
    completions_head: Option<RequestHead>,
}

/// Head of every request to an offer, without the headers for type and length of the body.
pub struct RequestHead {
    /// Parsed head, for requests over HTTP/2.
    pub parsed: RequestHeader,
    /// Bytes of the head for HTTP/1.1, up to the end of the last header line.
    pub wire: Vec<u8>,
}

impl RequestHead {
    /// Returns a copy of the head without these headers.
    #[must_use]
    pub fn without_headers(&self, names: impl Iterator<Item = &'static str>) -> Self {
        let mut parsed = self.parsed.clone();
        names.for_each(|name| drop(parsed.remove_header(name)));
        Self { wire: super::send::encode_unterminated_head(&parsed), parsed }
    }
}

impl OfferState {
    /// Creates the state of an offer without history.
    ///
    /// # Errors
    /// Returns an error if a configured header cannot be sent.
    pub fn new(
        offer: Arc<OfferSettings>,
        provider: Arc<ProviderState>,
        breaker: CircuitBreaker,
        money: &BillingSettings,
    ) -> Result<Self, String> {
        let site = &offer.provider.location;
        let number = |decimal: Decimal| decimal.to_f64().unwrap_or(f64::NAN);
        let header_error = |_| format!("A header of provider {} cannot be sent.", offer.provider.id);
        let heads = offer
            .dialects
            .iter()
            .map(|dialect| {
                Ok((*dialect, build_request_head(&offer, *dialect, dialect.spec().provider_path)?))
            })
            .collect::<pingora_error::Result<Vec<_>>>()
            .map_err(header_error)?;
        let chat_head = |path| build_request_head(&offer, Dialect::Chat, path).map_err(header_error);
        let shaped = offer.shape.map(|shape| chat_head(shape.path())).transpose()?;
        let completes = offer.capabilities.completions.then_some(COMPLETIONS_PATH);
        let completions_head = completes.map(chat_head).transpose()?;
        Ok(Self {
            price: {
                let tariff = &offer.tariff;
                let output = tariff.output_price(offer.model.kind);
                (number(tariff.input.unwrap_or_default()), number(output.unwrap_or_default()))
            },
            grid_factors: (number(site.grid.g_per_kwh), number(site.eco_ranking_renewable_share())),
            latency_stats: Arc::new(Mutex::new(LatencyStats::new())),
            stored_latency_stats_revision: Arc::default(),
            failure_logs: Arc::default(),
            breaker: Arc::new(Mutex::new(breaker)),
            memberships: Arc::default(),
            tokenize_backoff: Arc::default(),
            learned: LearnedBehavior::default(),
            cache_affinity: CacheAffinity::new(&offer),
            pricing: OfferPricing::new(&offer, money),
            attempts: Arc::default(),
            in_flight: Arc::default(),
            heads,
            adapter_head: shaped,
            completions_head,
            offer,
            provider,
        })
    }

    /// Shares the state of the same offer in the previous configuration: statistics, circuit breaker, pools, hit ratio
    /// of the prefix cache, and attempts in flight. Learned behavior is not shared.
    #[must_use]
    pub fn with_previous_state(mut self, previous: &Self) -> Self {
        self.latency_stats = previous.latency_stats.clone();
        self.stored_latency_stats_revision = previous.stored_latency_stats_revision.clone();
        self.failure_logs = previous.failure_logs.clone();
        self.breaker = previous.breaker.clone();
        self.memberships = previous.memberships.clone();
        self.tokenize_backoff = previous.tokenize_backoff.clone();
        self.cache_affinity.share_hit_ratio(&previous.cache_affinity);
        self.attempts = previous.attempts.clone();
        self.in_flight = previous.in_flight.clone();
        self
    }

    /// Returns the current state of the offer, in two forms: a candidate for the scores, and an entry of the plan.
    pub fn candidate(
        &self,
        now: Duration,
        prompt_tokens: u64,
        output: u64,
        session: Option<SessionHistory>,
    ) -> (Candidate, PlannedOffer) {
        let (seconds, measured, answers, known, session) = {
            let mut figures = self.latency_stats.lock();
            (
                figures.predict_seconds(now, prompt_tokens, output),
                figures.last_observation_age(now),
                figures.recent_answers(now),
                figures.time_since_first_seen(now),
                session.map(|session| {
                    self.cache_affinity.session_affinity(session, &figures, now, (prompt_tokens, output))
                }),
            )
        };
        let breaker = self.breaker.lock();
        let entry = PlannedOffer {
            offer: self.offer.index,
            provider: self.offer.provider.index,
            cooldown_until: breaker.cooldown_until(now),
            is_stable: breaker.is_stable(now),
        };
        let candidate = Candidate {
            offer: self.offer.index,
            price: estimate_price(self.price.0, self.price.1, prompt_tokens, output),
            predicted_seconds: seconds,
            measured_age: measured,
            recent_answers: answers,
            known_for: known,
            in_flight: self.in_flight(),
            max_in_flight: self.offer.provider.max_in_flight.unwrap_or(0),
            failure_ratio: breaker.failure_ratio(now),
            ci_g_per_kwh: self.grid_factors.0,
            renewable: self.grid_factors.1,
            health: breaker.health(now),
            session,
        };
        (candidate, entry)
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the dialect of requests to the offer: the dialect of the client if the offer supports it, otherwise the
    /// first dialect of the offer; `None` if the offer has no dialect.
    pub fn dialect_for(&self, client: Dialect) -> Option<Dialect> {
        let spoken = &self.offer.dialects;
        if spoken.contains(&client) { Some(client) } else { spoken.first().copied() }
    }

    /// Returns the request head for a dialect; `None` if the offer does not have this dialect.
    pub fn request_head(&self, dialect: Dialect) -> Option<&RequestHead> {
        self.heads.iter().find(|(spoken, _)| *spoken == dialect).map(|(_, head)| head)
    }

    /// Returns the request head of text completions; `None` if the offer has none.
    pub fn completions_head(&self) -> Option<&RequestHead> {
        self.completions_head.as_ref()
    }

    /// Returns the request head of the provider adapter; `None` if the offer has no adapter.
    pub fn adapter_head(&self) -> Option<&RequestHead> {
        self.adapter_head.as_ref()
    }

    /// Returns the properties of the offer that filters compare, for a request at this time. `batch` selects the price
    /// of batches.
    pub fn offer_properties(&self, moment: SelectionTime, batch: bool) -> OfferProperties<'_> {
        let site = &self.offer.provider.location;
        let halved = |cost: Decimal| if batch { cost / Decimal::TWO } else { cost };
        OfferProperties {
            country: &site.code,
            input_cost: self.pricing.input_price(moment.unix_seconds).map(halved),
            carbon_intensity: site.grid.g_per_kwh,
            speed: self.latency_stats.lock().tokens_per_second(moment.steady),
        }
    }

    /// Acquires a permit at the provider for an interactive request, if one is free.
    pub fn try_acquire(self: &Arc<Self>) -> Option<OfferPermit> {
        self.provider.concurrency.try_acquire().map(|permit| self.permit(permit))
    }

    /// Acquires a permit for batch work of this account, or queues the work. A batch line passes the signal by which it
    /// is asked to release its permit.
    ///
    /// # Errors
    /// Returns the waiter in the queue if no permit is free.
    pub fn acquire_or_queue(
        self: &Arc<Self>,
        account: &Arc<str>,
        line: Option<CancellationToken>,
    ) -> Result<OfferPermit, OfferWaiters> {
        match self.provider.concurrency.acquire_or_queue(account, line) {
            AcquireOutcome::Acquired(permit) => Ok(self.permit(permit)),
            AcquireOutcome::Queued(waiter) => Err(OfferWaiters(vec![(self.clone(), waiter)])),
        }
    }

    /// Asks the youngest batch line at the provider to release its permit, and queues an interactive request of this
    /// account for that permit; `None` if there is no batch line to ask.
    pub fn preempt_batch_line(self: &Arc<Self>, account: &Arc<str>) -> Option<OfferWaiters> {
        self.provider
            .concurrency
            .preempt_batch_line(account)
            .map(|waiter| OfferWaiters(vec![(self.clone(), waiter)]))
    }

    fn permit(self: &Arc<Self>, permit: ConcurrencyPermit) -> OfferPermit {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.attempts.fetch_add(1, Ordering::Relaxed);
        OfferPermit { offer: self.clone(), _permit: permit }
    }

    /// Records the outcome of an attempt in the circuit breaker, and `sample` in the latency statistics. `admission` is
    /// that of the attempt. `client` is given if the client's request may have caused the outcome.
    pub fn record_outcome(
        &self,
        now: Duration,
        admission: AttemptAdmission,
        outcome: AttemptOutcome,
        client: Option<BreakerClient>,
        sample: Option<LatencySample>,
    ) {
        let (before, after) = update_breaker(self, |breaker| {
            let before = breaker.state(now);
            breaker.on_attempt_result(now, admission, outcome, client);
            (before, breaker.state(now))
        });
        if before != after {
            failure_log::log_breaker_change(self, before, after);
        }
        if let Some(sample) = sample {
            self.latency_stats.lock().observe(now, sample);
        }
    }

    /// Records that an attempt at another offer of the same provider could not connect to the provider.
    pub fn record_unreachable(&self, now: Duration) {
        update_breaker(self, |breaker| breaker.on_provider_unreachable(now));
    }
}

/// Builds the head of every request to this offer.
fn build_request_head(
    offer: &OfferSettings,
    dialect: Dialect,
    below: &str,
) -> pingora_error::Result<RequestHead> {
    let provider = &offer.provider;
    let path = format!("{}{below}", provider.base_url.path_prefix);
    let head = request_head::authenticated_head("POST", provider, dialect, &path)?;
    let wire = super::send::encode_unterminated_head(&head);
    Ok(RequestHead { parsed: head, wire })
}
