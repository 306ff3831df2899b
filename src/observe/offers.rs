//! How offers are, for Prometheus.

use super::metrics::{gauge, registered};
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry, Result};
use std::collections::HashMap;

/// Their gauges.
pub struct Offers {
    health: IntGaugeVec,
    failing: GaugeVec,
}

/// How one offer is.
pub(super) struct Standing<'a> {
    pub provider: &'a str,
    pub model: &'a str,
    pub asked: bool,
    pub failing: f64,
}

impl Offers {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let labels = ["provider", "model"];
        let failing = Opts::new(
            "penstock_offer_failing_ratio",
            "Share of recent attempts that failed, 0 to 1; of a provider's offers of a model, the best.",
        );
        Ok(Self {
            health: gauge(
                r,
                "penstock_offer_healthy",
                "1 if the provider is asked for the model, 0 if each of its offers of it is ejected.",
                &labels,
            )?,
            failing: registered(r, GaugeVec::new(failing, &labels)?)?,
        })
    }

    /// A provider may offer a model under two names: one that works is enough.
    pub(super) fn look<'a>(&self, offers: impl Iterator<Item = Standing<'a>>) {
        let mut best: HashMap<[&str; 2], (bool, f64)> = HashMap::new();
        for offer in offers {
            let known = best.entry([offer.provider, offer.model]).or_insert((offer.asked, offer.failing));
            *known = (known.0 || offer.asked, known.1.min(offer.failing));
        }
        self.health.reset();
        self.failing.reset();
        for (labels, (asked, failing)) in best {
            self.health.with_label_values(&labels).set(i64::from(asked));
            self.failing.with_label_values(&labels).set(failing);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn of_two_offers_of_a_model_the_better_one_is_told() {
        let offers = Offers::new(&Registry::new()).unwrap();
        let of = |asked, failing| Standing { provider: "p", model: "m", asked, failing };
        for both in [[of(true, 0.25), of(false, 1.0)], [of(false, 1.0), of(true, 0.25)]] {
            offers.look(both.into_iter());
            assert_eq!(offers.health.with_label_values(&["p", "m"]).get(), 1);
            assert!((offers.failing.with_label_values(&["p", "m"]).get() - 0.25).abs() < 1e-9);
        }
        offers.look([of(false, 1.0), of(false, 0.5)].into_iter());
        assert_eq!(offers.health.with_label_values(&["p", "m"]).get(), 0);
    }
}
