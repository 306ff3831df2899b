//! Metrics of the readiness of the gateway.

use super::metrics::register;
use prometheus::{IntGauge, Registry, Result};

/// Gauges of the readiness and of the drain.
pub(super) struct ReadinessMetrics {
    ready: IntGauge,
    draining: IntGauge,
}

impl ReadinessMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let gauge = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        Ok(Self {
            ready: gauge(
                "penstock_ready",
                "1 if `/readyz` answers with 200, 0 if not; that answer has the reason.",
            )?,
            draining: gauge(
                "penstock_draining",
                "1 while the process finishes its last requests before it ends, 0 before that.",
            )?,
        })
    }

    /// Sets both gauges.
    pub(super) fn update_gauges(&self, is_ready: bool, is_draining: bool) {
        self.ready.set(i64::from(is_ready));
        self.draining.set(i64::from(is_draining));
    }
}
