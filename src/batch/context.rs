//! State of the process that batches use, and the executor of their lines.

use super::BatchManager;
use crate::auth::key_cache::KeyCache;
use crate::auth::principal::Principal;
use crate::billing::{HoldEnd, Ledger};
use crate::limits::admission_control::AdmissionControl;
use crate::net::lifecycle::Lifecycle;
use crate::storage::files::FileManager;
use crate::storage::responses::{ResponseLimits, ResponseStore};
use crate::telemetry::metrics::MetricsRegistry;
use crate::telemetry::request_id::RequestId;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::ConfigSnapshot;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_core::TokenUsage;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Request of one line.
pub struct LineRequest {
    /// API key of the batch, in its present state.
    pub principal: Arc<Principal>,
    /// Path of the endpoint, one of [`penstock_batch::jsonl::BATCH_PATHS`].
    pub path: &'static str,
    /// Body of the line's request.
    pub body: Bytes,
    /// Token whose cancellation ends the line.
    pub cancel: CancellationToken,
    /// Token that is cancelled before `cancel` if the line is sent again later, by the next process or another gateway.
    pub interrupted: CancellationToken,
    /// Origin of the request: a batch or a background response.
    pub origin: LineOrigin,
}

/// Origin of a request without a client connection; it selects limits and prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// Line of a batch, at the price of batches.
    Batch,
    /// Background response: a request of its key like any other, whose answer has this identity.
    Background(PreassignedResponseIdentity),
}

/// Id and creation time of an answer, sent to the client before the request runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreassignedResponseIdentity {
    /// Unique part of the ids of the answer and of its items.
    pub unique: Box<str>,
    /// Creation time, Unix seconds.
    pub created: u64,
}

/// Result of one line.
pub struct LineResponse {
    /// Id of the line's exchange.
    pub request_id: RequestId,
    /// HTTP status that a client would receive.
    pub status: u16,
    /// Response body with `environment_impact` and `billing_cost`, or the error envelope of the dialect.
    pub body: Vec<Bytes>,
    /// End of the line's reserve, for [`Ledger::record_outcomes`]; `None` if no credits were reserved.
    pub hold_end: Option<HoldEnd>,
    /// Tokens that the line used; `None` if it has no answer, or if its work is not counted in tokens.
    pub usage: Option<TokenUsage>,
    /// Kind of the end: the result is final, or the line is executed again.
    pub disposition: LineDisposition,
}

/// End of a line's execution: its result is final, or the line is executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineDisposition {
    /// The result is final.
    Final,
    /// The line was refused for now. It is retried after this pause, and the retry counts as another attempt.
    Retry(Duration),
    /// The line released its permit to a request, or got no permit. It is retried after this pause, and the retry does
    /// not count as another attempt.
    Yielded(Duration),
    /// The line lacked credits or a budget that other requests hold. It is retried once some of these requests have
    /// ended.
    FundsHeld,
    /// The line was cancelled before it had a response.
    Cancelled,
}

/// Executor of batch lines as requests.
#[async_trait]
pub trait LineExecutor: Send + Sync {
    /// Executes a line. Waits for a permit of a provider for as long as that takes.
    async fn execute(&self, line: LineRequest) -> LineResponse;
}

/// State of the process that batches use: configuration, ledger, caches and stores.
pub struct BatchContext {
    /// Configuration snapshot in use.
    pub current_config: Arc<ArcSwap<ConfigSnapshot>>,
    /// Clock of the process.
    pub clock: ProcessClock,
    /// Ledger of credits and energy.
    pub ledger: Arc<Ledger>,
    /// Cache of keys and accounts.
    pub key_cache: Arc<KeyCache>,
    /// Admission control of the process.
    pub admission: Arc<AdmissionControl>,
    /// Metrics registry.
    pub metrics: Arc<MetricsRegistry>,
    /// Manager of uploaded files.
    pub files: Arc<FileManager>,
    /// Stored responses, with the requests of background responses.
    pub responses: Arc<ResponseStore>,
    /// Batches of the gateway.
    pub batches: Arc<BatchManager>,
    /// State of the process: in service, draining, handed over.
    pub lifecycle: Arc<Lifecycle>,
    /// Executor of lines, set when the proxy starts.
    pub executor: OnceLock<Arc<dyn LineExecutor>>,
}

impl BatchContext {
    /// Returns the configuration snapshot in use.
    pub fn config_snapshot(&self) -> Arc<ConfigSnapshot> {
        self.current_config.load_full()
    }

    /// Returns the limits of stored responses: their settings, and the disk space to leave free.
    #[must_use]
    pub fn stored_response_limits(&self) -> ResponseLimits {
        let live = self.config_snapshot();
        ResponseLimits { settings: live.settings.responses, keep_free: live.settings.files.keep_free }
    }
}
