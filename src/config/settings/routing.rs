//! Settings of retries, failover and circuit breakers.

use std::time::Duration;

/// Retries and failover between providers.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingSettings {
    /// Maximum number of attempts for one request, at least 1.
    pub attempts: u32,
    /// Deadline of a request over all its attempts.
    pub total: Duration,
    /// Maximum time for which a request waits for a provider's `Retry-After` before it fails over.
    pub max_retry_after_wait: Duration,
    /// Mean pause before the quick retry that a request has once at each healthy provider.
    pub quick_retry: Duration,
    /// Maximum time for which a request with the flavor `:batch` waits in the queue.
    pub batch_wait: Duration,
    /// Maximum number of batch lines in flight at a provider that has no limit configured.
    pub batch_lines: usize,
    /// Time after the last answer of a session during which its offer is remembered.
    pub session_lifetime: Duration,
    /// Thresholds of the circuit breaker that each offer has.
    pub breaker: CircuitBreakerSettings,
}

/// Thresholds of the circuit breaker of an offer (passive ejection).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircuitBreakerSettings {
    /// Number of consecutive failures that open the breaker.
    pub consecutive: u32,
    /// Share of failures within `window` that opens the breaker, 0 to 1.
    pub error_rate: f64,
    /// Minimum number of results within `window` for `error_rate` to apply.
    pub minimum: u32,
    /// Time window of `error_rate`.
    pub window: Duration,
    /// Duration of the first ejection; each consecutive ejection lasts twice as long as the one before.
    pub first_ejection: Duration,
    /// Maximum duration of an ejection.
    pub max_ejection: Duration,
}

impl CircuitBreakerSettings {
    /// Converts the thresholds to the settings of the crate `penstock-routing`.
    #[must_use]
    pub fn breaker_settings(&self) -> penstock_routing::breaker::BreakerSettings {
        penstock_routing::breaker::BreakerSettings {
            consecutive_failures: self.consecutive,
            failure_ratio: self.error_rate,
            min_attempts: self.minimum,
            window: self.window,
            first_ejection: self.first_ejection,
            max_ejection: self.max_ejection,
            ..penstock_routing::breaker::BreakerSettings::default()
        }
    }
}
