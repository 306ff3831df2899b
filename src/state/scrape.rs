//! State of the process for a scrape of its metrics.

use super::House;
use crate::storage::stores::{LEDGER, STORE};
use crate::telemetry::metrics::Snapshot;
use crate::telemetry::offers::Standing;
use std::sync::atomic::Ordering;

impl House {
    /// Renders all metrics in Prometheus' text format.
    pub fn metrics_text(&self) -> Vec<u8> {
        let (now, live) = (self.clock.now(), self.live());
        let offers = live.offers.iter().map(|offer| {
            let labels = [&*offer.offer.provider.id, offer.offer.model.card.id.as_str()];
            let asked = offer.attempts.load(Ordering::Relaxed) > 0;
            Standing::of(labels, asked, &offer.breaker.lock(), now)
        });
        let providers = || live.providers.iter();
        self.metrics.text(Snapshot {
            offers,
            providers: providers().map(|known| (&*known.provider.id, known.working())).collect(),
            exchanges: self.exchanges(),
            retries_left: self.budget.lock().left(now),
            certificate_expires: self.tls().map(|tls| tls.expires),
            ledger: self.ledger.state(),
            last_export: self.exports.last(),
            admission: self.overload.standing(),
            waiting_at_providers: providers().map(|known| known.seats.waiting()).sum(),
            refusals: self.overload.refusals().collect(),
            batches: self.batches.standing(self.clock.unix()),
            clock_ahead: self.clock.seconds_ahead(),
        })
    }

    /// Measures the sizes of stored data for the metrics; blocks.
    pub fn measure_disk(&self) {
        let live = self.live();
        let settings = &live.settings;
        let files = (self.files.used(), settings.files.path.as_path());
        self.metrics.measure_disk(&settings.storage.path, [STORE, LEDGER], files);
    }
}
