//! Metrics of client connections and of the server certificate.

use super::metrics::{register, register_counter, register_gauge};
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry, Result};

/// Reasons for refused connections.
const REASONS: [&str; 6] = ["process", "client", "heads", "h2_abuse", "h2_malformed", "h2_protocol_error"];

/// Counters and gauges of connections.
pub(super) struct ConnectionMetrics {
    pub(super) connections: IntGauge,
    connections_refused: IntCounterVec,
    certificate: IntGaugeVec,
}

impl ConnectionMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let one = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        let metrics = Self {
            connections: one("penstock_connections_open", "Client connections that are open.")?,
            connections_refused: register_counter(
                r,
                "penstock_connections_refused_total",
                "Client connections that were closed at a limit (process: all connections, client: those of one address) or for an HTTP/2 flood (h2_abuse), and HTTP/2 requests that were refused unread: malformed (h2_malformed), or too many request heads in memory (heads); and HTTP/2 streams that were reset for a protocol error (h2_protocol_error).",
                &["reason"],
            )?,
            certificate: register_gauge(
                r,
                "penstock_certificate_expires_seconds",
                "End of the validity of the TLS listener's certificate, Unix seconds; absent without that listener.",
                &[],
            )?,
        };
        // All series exist from the start, because Prometheus does not count the first value of a new series as an
        // increase.
        for reason in REASONS {
            metrics.connections_refused.with_label_values(&[reason]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Counts a refused connection by its reason.
    pub(super) fn record_refused(&self, reason: &str) {
        debug_assert!(REASONS.contains(&reason), "{reason}");
        self.connections_refused.with_label_values(&[reason]).inc();
    }

    /// Sets the expiry of the certificate, Unix seconds; `None` removes the value.
    pub(super) fn set_certificate_expiry(&self, expires: Option<i64>) {
        self.certificate.reset();
        if let Some(expires) = expires {
            self.certificate.with_label_values::<&str>(&[]).set(expires);
        }
    }
}
