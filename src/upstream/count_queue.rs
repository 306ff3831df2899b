//! Scheduling of token counts of long prompts. A count is CPU-bound and must not delay streams. Accounts share the
//! permits fairly, waits have a time limit, and a count ends when its client disconnects.

use crate::limits::admission_control::AdmissionControl;
use crate::limits::tokenizer_permits::TokenizerPermits;
use crate::telemetry::blocking_tasks::{BlockingContext, run_on_blocking_thread};
use crate::upstream::config_snapshot::{ConfigSnapshot, ModelState};
use crate::upstream::offer::{OfferState, SelectionTime};
use penstock_core::{ApiError, InferenceRequest, OfferFilters, OfferProperties};
use penstock_routing::{BATCH, split_flavor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Maximum size in bytes of a body that is counted on the async thread; a longer body is counted on a blocking thread.
pub const MAX_INLINE_COUNT_BYTES: usize = 16 * 1024;

/// Permits and handles that a count needs, for one request or one line of a batch.
pub struct TokenCountContext {
    /// Permits of the process for counting tokens.
    pub permits: Arc<TokenizerPermits>,
    /// Admission control, which counts refusals.
    pub admission: Arc<AdmissionControl>,
    /// Handles that blocking work needs.
    pub blocking: BlockingContext,
    /// Configuration snapshot of the request.
    pub config: Arc<ConfigSnapshot>,
    /// Account that the count is made for.
    pub account: Arc<str>,
    /// Longest wait for a permit; `None` for a line of a batch.
    pub wait: Option<Duration>,
    /// Time at which the filters of the request are compared with the offers.
    pub moment: SelectionTime,
    /// Time in nanoseconds that counts have waited for engines since the last [`TokenCountContext::take_engine_wait`].
    pub engine_wait: AtomicU64,
}

impl TokenCountContext {
    /// Adds the time that a count has waited for an engine.
    pub fn add_engine_wait(&self, waited: Duration) {
        let nanoseconds = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.engine_wait.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the time that counts have waited for engines since the last call. It is not the gateway's own time.
    pub fn take_engine_wait(&self) -> Duration {
        Duration::from_nanos(self.engine_wait.swap(0, Ordering::Relaxed))
    }

    /// Returns the offers of a model that meet the filters of the request. Only these offers may receive the prompt.
    pub fn offers_matching_filters<'c>(
        &'c self,
        model: &'c ModelState,
        ask: &'c InferenceRequest,
    ) -> impl Iterator<Item = &'c Arc<OfferState>> {
        self.offers(model).filter(|offer| {
            let allows = |filters: &OfferFilters| filters.allows_offer(&self.offer_properties(offer, ask));
            ask.filters.as_deref().is_none_or(allows)
        })
    }

    /// Returns the offers of a model.
    pub fn offers<'c>(&'c self, model: &'c ModelState) -> impl Iterator<Item = &'c Arc<OfferState>> {
        model.offers.iter().filter_map(|index| self.config.offers.get(*index))
    }

    /// Returns the properties of an offer that the filters of this request compare.
    pub fn offer_properties<'o>(&self, offer: &'o OfferState, ask: &InferenceRequest) -> OfferProperties<'o> {
        let is_batch = self.wait.is_none() || split_flavor(&ask.model).1 == Some(BATCH);
        offer.offer_properties(self.moment, is_batch)
    }

    /// Waits for a permit, and then runs work on a blocking thread. The work gets a flag that is set when its result
    /// is no longer needed, and holds the permit until it ends.
    ///
    /// # Errors
    /// Returns a refusal if too many other counts are waiting, or no permit became free in time. Returns an
    /// internal error if the work panics, because a failed count must not be taken for zero tokens.
    pub(crate) async fn run_with_permit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let queue = self.config.settings.overload.queue;
        let permit = self.permits.acquire(&self.account, queue, self.wait).await;
        let permit = permit.map_err(|why| self.admission.count_and_build_refusal(why))?;
        let guard = StopGuard(Arc::default());
        let stop = guard.0.clone();
        let work = move || {
            let _permit = permit;
            work(&stop)
        };
        run_on_blocking_thread(&self.blocking, work).await
    }
}

/// Guard that sets the stop flag of the work on drop.
struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
