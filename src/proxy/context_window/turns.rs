//! Turns of those who have a long prompt counted: counting is all processor work, and must not take the machine from
//! the streams. Accounts take turns, a wait has an end, and a count ends when its client leaves.

use crate::limits::tokenizer_permits::CountingPermits;
use crate::proxy::exchange::Exchange;
use crate::state::House;
use crate::telemetry::panics;
use crate::upstream::config_snapshot::Live;
use penstock_contract::Refusal;
use penstock_limits::Work;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For whom something is counted, and how long that may wait for its turn.
pub struct Counting<'c> {
    house: &'c Arc<House>,
    /// The configuration that it happens under.
    pub live: Arc<Live>,
    whose: Arc<str>,
    /// None for a line of a batch, which has time.
    wait: Option<Duration>,
}

impl<'c> Counting<'c> {
    /// For whoever asks here: as long as for a place in the house, or without an end for who has time.
    pub fn of(x: &Exchange<'c>) -> Self {
        let wait = match x.work {
            Work::Request => Some(x.live.settings.overload.wait),
            Work::BatchLine => None,
        };
        Self { house: x.house, live: x.live.clone(), whose: x.grant.account.id.clone(), wait }
    }

    fn permits(&self) -> &Arc<CountingPermits> {
        &self.house.counting
    }

    /// Works on a thread that may take its time. The work is given a signal, which is set when nobody waits for the
    /// result any more; it keeps its permit until it has ended.
    ///
    /// # Errors
    /// Too many others count; or a mistake of our own, which must not look like a prompt without tokens.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let queue = self.live.settings.overload.queue;
        let permit = self.permits().acquire(&self.whose, queue, self.wait).await;
        let permit = permit.map_err(|why| self.house.overload.full(why))?;
        let guard = StopGuard(Arc::default());
        let stop = guard.0.clone();
        let work = move || {
            let _permit = permit;
            work(&stop)
        };
        panics::off_thread(self.house, work).await
    }
}

/// Tells work to end when this is dropped.
struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
