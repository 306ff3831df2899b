//! `[routing]` as written in a configuration: attempts, deadlines and circuit breakers.

use super::{DurationOrZero, ExactDecimal, NonZeroDuration};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Retries and failover between providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct RoutingConfig {
    /// Maximum number of attempts for one request.
    #[schemars(range(min = 1, max = 16))]
    pub attempts: u32,
    /// Deadline of a request over all its attempts.
    pub total: NonZeroDuration,
    /// Maximum time for which a request waits for a provider's `Retry-After` before it fails over.
    pub patience: DurationOrZero,
    /// Mean pause before the quick retry that a request has once at each healthy provider, after 500, 502 or a reset.
    pub quick_retry: DurationOrZero,
    /// Maximum time for which a request with the flavor `:batch` waits in the queue.
    pub batch_wait: NonZeroDuration,
    /// Maximum number of batch lines in flight at a provider without `max_in_flight`.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_lines: u32,
    /// Time after its last answer for which a conversation goes to the provider that has its beginning cached.
    pub session_lifetime: NonZeroDuration,
    /// Circuit breaker of each offer: conditions for ejecting it for a while.
    pub breaker: CircuitBreakerConfig,
}

/// Circuit breaker of each offer: conditions for ejecting it for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct CircuitBreakerConfig {
    /// Number of consecutive failures after which an offer is ejected.
    #[schemars(range(min = 1, max = 1000))]
    pub consecutive: u32,
    /// Share of failures within `window` at which an offer is ejected, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub error_rate: ExactDecimal,
    /// Minimum number of results within `window` for `error_rate` to apply.
    #[schemars(range(min = 1, max = 100_000))]
    pub minimum: u32,
    /// Time window of `error_rate`.
    pub window: NonZeroDuration,
    /// Duration of the first ejection; it doubles with each further one in a row.
    pub rest: NonZeroDuration,
    /// Maximum duration of an ejection.
    pub rest_max: NonZeroDuration,
}

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            attempts: 4,
            total: NonZeroDuration::from_secs(600),
            patience: DurationOrZero(Duration::ZERO),
            quick_retry: DurationOrZero(Duration::from_millis(50)),
            batch_wait: NonZeroDuration::from_secs(600),
            batch_lines: 64,
            session_lifetime: NonZeroDuration::from_secs(600),
            breaker: CircuitBreakerConfig::default(),
        }
    }
}

impl Default for CircuitBreakerConfig {
    fn default() -> Self {
        Self {
            consecutive: 5,
            error_rate: ExactDecimal(Decimal::new(5, 1)),
            minimum: 20,
            window: NonZeroDuration::from_secs(30),
            rest: NonZeroDuration::from_secs(1),
            rest_max: NonZeroDuration::from_secs(10),
        }
    }
}
