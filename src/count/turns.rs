//! Scheduling of counts of long prompts: counting is pure processor work, and must not slow the streams down. Accounts
//! share the permits fairly, waits have a time limit, and a count ends when its client leaves.

use super::permits::CountingPermits;
use crate::exchange::Exchange;
use crate::house::House;
use crate::live::Live;
use crate::observe::panics;
use penstock_contract::Refusal;
use penstock_limits::Work;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Account that counts tokens, and the time limit on its wait for a permit.
pub struct Counting<'c> {
    house: &'c Arc<House>,
    /// Configuration under which the tokens are counted.
    pub live: Arc<Live>,
    whose: Arc<str>,
    /// Time limit on the wait; none for a line of a batch.
    wait: Option<Duration>,
}

impl<'c> Counting<'c> {
    /// Creates the context of an exchange. A request waits as long as for admission; a line of a batch without a limit.
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

    /// Runs work on a blocking thread. The work gets a flag that is set when its result is no longer awaited; it holds
    /// its permit until it ends.
    ///
    /// # Errors
    /// Returns a refusal if too many other counts are waiting, or on an internal error, which must not look like a
    /// prompt without tokens.
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

/// Guard that sets the stop flag of the work on drop.
struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
