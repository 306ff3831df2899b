//! Metrics of offers.

use super::metrics::{register, register_gauge};
use penstock_routing::CircuitBreaker;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry, Result};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Gauges of offers.
pub struct OfferMetrics {
    health: IntGaugeVec,
    failing: GaugeVec,
}

/// State of one offer.
pub struct OfferStatus<'a> {
    /// Id of the provider.
    pub provider: &'a str,
    /// Id of the model.
    pub model: &'a str,
    /// True if the offer was requested since startup.
    pub was_requested: bool,
    /// True if the breaker of the offer is closed; or if the offer has answered, or an active check has passed, since
    /// its breaker opened.
    pub healthy: bool,
    /// Share of recent attempts that failed, 0 to 1.
    pub failure_share: f64,
}

impl<'a> OfferStatus<'a> {
    /// Returns the state of an offer, as its circuit breaker knows it.
    pub fn from_breaker(
        [provider, model]: [&'a str; 2],
        asked: bool,
        breaker: &CircuitBreaker,
        now: Duration,
    ) -> Self {
        let healthy = breaker.is_considered_healthy();
        Self { provider, model, was_requested: asked, healthy, failure_share: breaker.failure_ratio(now) }
    }
}

impl OfferMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let labels = ["provider", "model"];
        let failing = Opts::new(
            "penstock_offer_failing_ratio",
            "Share of recent attempts that failed, 0 to 1; of a provider's offers of a model, the best.",
        );
        Ok(Self {
            health: register_gauge(
                r,
                "penstock_offer_healthy",
                "1 if the provider's answers for the model, or its checks since, succeed; 0 if all its offers of the model are ejected, or on trial without a good answer.",
                &labels,
            )?,
            failing: register(r, GaugeVec::new(failing, &labels)?)?,
        })
    }

    /// Sets the gauges. If a provider offers a model under two names, the model counts as healthy if one of them works.
    /// Only offers that were requested are shown. For an unhealthy offer, the other offers of its model are shown too,
    /// so that an alert can compare them.
    pub(super) fn update_gauges<'a>(&self, offers: impl Iterator<Item = OfferStatus<'a>>) {
        let offers: Vec<OfferStatus<'a>> = offers.collect();
        let broken: HashSet<&str> =
            offers.iter().filter(|offer| !offer.healthy).map(|offer| offer.model).collect();
        let mut best: HashMap<[&str; 2], OfferStatus<'a>> = HashMap::new();
        for offer in offers.into_iter().filter(|offer| offer.was_requested || broken.contains(offer.model)) {
            match best.entry([offer.provider, offer.model]) {
                Entry::Vacant(first) => {
                    first.insert(offer);
                }
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.healthy |= offer.healthy;
                    known.failure_share = known.failure_share.min(offer.failure_share);
                }
            }
        }
        self.health.reset();
        self.failing.reset();
        for (labels, offer) in best {
            self.health.with_label_values(&labels).set(i64::from(offer.healthy));
            self.failing.with_label_values(&labels).set(offer.failure_share);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_routing::breaker::{AttemptOutcome, BreakerSettings};

    #[test]
    fn one_that_failed_is_healthy_again_by_its_answers_and_not_by_time() {
        let offers = OfferMetrics::new(&Registry::new()).unwrap();
        let settings = BreakerSettings::default();
        let mut breaker = CircuitBreaker::new(settings);
        let health = |breaker: &CircuitBreaker, now| {
            offers.update_gauges(std::iter::once(OfferStatus::from_breaker(["p", "m"], true, breaker, now)));
            offers.health.with_label_values(&["p", "m"]).get()
        };
        assert_eq!(health(&breaker, Duration::ZERO), 1);
        for _ in 0..settings.consecutive_failures {
            breaker.on_unattributed_result(Duration::ZERO, AttemptOutcome::Failure { retry_after: None });
        }
        assert_eq!(health(&breaker, Duration::ZERO), 0);
        let later = settings.first_ejection + Duration::from_secs(3_600);
        assert_eq!(health(&breaker, later), 0, "nobody has asked it since");
        assert!(settings.successes_to_close > 1);
        assert!(breaker.try_acquire(later).is_some());
        assert_eq!(health(&breaker, later), 0, "on trial");
        breaker.on_unattributed_result(later, AttemptOutcome::Success);
        assert_eq!(health(&breaker, later), 1, "one good answer is enough");
        assert!(breaker.try_acquire(later).is_some());
        breaker.on_unattributed_result(later, AttemptOutcome::Failure { retry_after: None });
        assert_eq!(health(&breaker, later), 0, "the trial failed");
    }

    #[test]
    fn an_idle_provider_recovers_by_a_health_check_unless_requests_failed_meanwhile() {
        let offers = OfferMetrics::new(&Registry::new()).unwrap();
        let settings = BreakerSettings::default();
        let mut breaker = CircuitBreaker::new(settings);
        let health = |breaker: &CircuitBreaker, now| {
            offers.update_gauges(std::iter::once(OfferStatus::from_breaker(["p", "m"], true, breaker, now)));
            offers.health.with_label_values(&["p", "m"]).get()
        };
        for _ in 0..settings.consecutive_failures {
            breaker.on_unattributed_result(Duration::ZERO, AttemptOutcome::Failure { retry_after: None });
        }
        let at = Duration::from_secs;
        breaker.on_health_check(at(60), false);
        assert_eq!(health(&breaker, at(60)), 0);
        breaker.on_health_check(at(70), true);
        assert_eq!(health(&breaker, at(70)), 1);
        // A provider whose health checks pass (it lists its models) but which fails every request must not look
        // healthy between two requests.
        assert!(breaker.try_acquire(at(71)).is_some());
        breaker.on_unattributed_result(at(71), AttemptOutcome::Failure { retry_after: None });
        breaker.on_health_check(at(72), true);
        assert_eq!(health(&breaker, at(72)), 0);
        breaker.on_health_check(at(71) + settings.max_ejection - Duration::from_millis(1), true);
        assert_eq!(health(&breaker, at(90)), 0);
        breaker.on_health_check(at(71) + settings.max_ejection, true);
        assert_eq!(health(&breaker, at(90)), 1, "nobody has asked it since, and its checks are good");
    }

    #[test]
    fn the_better_of_two_offers_of_a_model_is_listed() {
        let offers = OfferMetrics::new(&Registry::new()).unwrap();
        let of = |healthy, failing| OfferStatus {
            provider: "p",
            model: "m",
            was_requested: true,
            healthy,
            failure_share: failing,
        };
        for both in [[of(true, 0.25), of(false, 1.0)], [of(false, 1.0), of(true, 0.25)]] {
            offers.update_gauges(both.into_iter());
            assert_eq!(offers.health.with_label_values(&["p", "m"]).get(), 1);
            assert!((offers.failing.with_label_values(&["p", "m"]).get() - 0.25).abs() < 1e-9);
        }
        offers.update_gauges([of(false, 1.0), of(false, 0.5)].into_iter());
        assert_eq!(offers.health.with_label_values(&["p", "m"]).get(), 0);
    }

    #[test]
    fn unused_offers_are_reported_only_beside_a_broken_one() {
        let offers = OfferMetrics::new(&Registry::new()).unwrap();
        let of = |provider, model, asked, healthy| OfferStatus {
            provider,
            model,
            was_requested: asked,
            healthy,
            failure_share: 0.0,
        };
        let series = || {
            let families = prometheus::core::Collector::collect(&offers.health);
            families.iter().map(|family| family.get_metric().len()).sum::<usize>()
        };
        offers.update_gauges([of("a", "m", false, true), of("b", "n", false, true)].into_iter());
        assert_eq!(series(), 0);
        offers.update_gauges(
            [of("a", "m", true, true), of("b", "m", false, true), of("b", "n", false, true)].into_iter(),
        );
        assert_eq!(series(), 1);
        offers.update_gauges(
            [of("a", "m", true, false), of("b", "m", false, true), of("b", "n", false, true)].into_iter(),
        );
        assert_eq!(series(), 2);
        assert_eq!(offers.health.with_label_values(&["b", "m"]).get(), 1);
    }
}
