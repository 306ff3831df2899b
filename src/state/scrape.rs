//! Collection of the state of the process when its metrics are scraped.

use super::AppState;
use crate::storage::responses::RESPONSES_FOLDER;
use crate::storage::stores::{LEDGER_REPLICA_FOLDER, STORE_FOLDER};
use crate::telemetry::file_store::BucketSnapshot;
use crate::telemetry::metrics::MetricsSnapshot;
use crate::telemetry::offers::OfferStatus;
use std::sync::atomic::Ordering;

impl AppState {
    /// Renders all metrics in Prometheus' text format.
    pub fn metrics_text(&self) -> Vec<u8> {
        let (now, live) = (self.clock.steady_now(), self.config_snapshot());
        let offers = live.offers.iter().map(|offer| {
            let labels = [&*offer.offer.provider.id, offer.offer.model.card.id.as_str()];
            let asked = offer.attempts.load(Ordering::Relaxed) > 0;
            OfferStatus::from_breaker(labels, asked, &offer.breaker.lock(), now)
        });
        let providers = || live.providers.iter();
        self.metrics.render(MetricsSnapshot {
            offers,
            providers: providers().map(|known| (&*known.provider.id, known.in_flight())).collect(),
            is_ready: self.not_ready_reason().is_none(),
            is_draining: self.is_draining(),
            exchanges: self.in_flight_exchanges(),
            retries_left: self.retry_budget.lock().remaining(now),
            certificate_expires: self.public_tls().map(|tls| tls.expires),
            ledger: self.ledger.durability_snapshot(),
            last_export: self.backup_state.last_backup_time(),
            admission: self.admission.load_status(),
            waiting_at_providers: providers().map(|known| known.concurrency.waiter_count()).sum(),
            refusals: self.admission.shed_totals().collect(),
            batches: self.batches.stats(self.clock.unix_seconds()),
            clock_lead_seconds: self.clock.calendar_lead_seconds(),
            fleet: self.fleet_status(),
            file_store: self.files.bucket().map(|bucket| BucketSnapshot {
                is_available: bucket.is_available(),
                requests: bucket.request_counts(),
            }),
        })
    }

    /// Measures the sizes of stored data for the metrics; blocks.
    pub fn measure_disk_usage(&self) {
        let live = self.config_snapshot();
        let settings = &live.settings;
        let files = (self.files.used_bytes(), settings.files.path.as_path());
        let folders = [STORE_FOLDER, LEDGER_REPLICA_FOLDER, RESPONSES_FOLDER];
        self.metrics.measure_disk_usage(&settings.storage.path, folders, files);
    }
}
