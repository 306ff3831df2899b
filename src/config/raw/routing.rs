//! `[routing]` as written in a configuration: attempts, deadlines and circuit breakers.

use super::{Exact, Pause, Span};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Retries and failover between providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Routing {
    /// Maximum number of attempts for one request.
    #[schemars(range(min = 1, max = 16))]
    pub attempts: u32,
    /// Deadline of a request over all its attempts.
    pub total: Span,
    /// Maximum time for which a request waits for a provider's `Retry-After` before it fails over.
    pub patience: Pause,
    /// Mean pause before the single quick retry at a healthy provider after 500, 502 or a reset.
    pub quick_retry: Pause,
    /// Maximum time for which a request with `:batch` waits in the queue.
    pub batch_wait: Span,
    /// Maximum number of batch lines in flight at a provider without `max_in_flight`.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_lines: u32,
    /// Circuit breaker: conditions for ejecting a provider for a while.
    pub breaker: Breaker,
}

/// Circuit breaker: conditions for ejecting a provider for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Breaker {
    /// Number of consecutive failures that ejects it.
    #[schemars(range(min = 1, max = 1000))]
    pub consecutive: u32,
    /// Share of failures within `window` that ejects it.
    #[schemars(range(min = 0, max = 1))]
    pub error_rate: Exact,
    /// Minimum number of results within `window` for `error_rate` to apply.
    #[schemars(range(min = 1, max = 100_000))]
    pub minimum: u32,
    /// Time window of `error_rate`.
    pub window: Span,
    /// Duration of the first ejection; it doubles with each further one in a row.
    pub rest: Span,
    /// Maximum duration of an ejection.
    pub rest_max: Span,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            attempts: 4,
            total: Span::seconds(600),
            patience: Pause(Duration::ZERO),
            quick_retry: Pause(Duration::from_millis(50)),
            batch_wait: Span::seconds(600),
            batch_lines: 64,
            breaker: Breaker::default(),
        }
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            consecutive: 5,
            error_rate: Exact(Decimal::new(5, 1)),
            minimum: 20,
            window: Span::seconds(30),
            rest: Span::seconds(1),
            rest_max: Span::seconds(10),
        }
    }
}
