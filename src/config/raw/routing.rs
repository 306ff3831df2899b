//! `[routing]` as users write it: how often a request is tried, and whom it is not tried at.

use super::{Exact, Pause, Span};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How providers are tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Routing {
    /// Most attempts for one request.
    #[schemars(range(min = 1, max = 16))]
    pub attempts: u32,
    /// Deadline of a request over all its attempts.
    pub total: Span,
    /// How long a request waits for a provider's `Retry-After` instead of moving on.
    pub patience: Pause,
    /// Mean pause before the one quick retry that a provider in good standing gets after 500, 502 or a reset.
    pub quick_retry: Pause,
    /// How long a request with `:batch` waits for its turn.
    pub batch_wait: Span,
    /// Lines of batches that a provider without `max_in_flight` is asked at a time.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_lines: u32,
    /// When a provider is left alone for a while.
    pub breaker: Breaker,
}

/// When a provider is left alone for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Breaker {
    /// After this many failures in a row.
    #[schemars(range(min = 1, max = 1000))]
    pub consecutive: u32,
    /// Or when this share of its results within `window` are failures.
    #[schemars(range(min = 0, max = 1))]
    pub error_rate: Exact,
    /// Results within `window` below which the share does not count.
    #[schemars(range(min = 1, max = 100_000))]
    pub minimum: u32,
    /// What the share looks back on.
    pub window: Span,
    /// First rest; it doubles each time in a row.
    pub rest: Span,
    /// Longest rest.
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
