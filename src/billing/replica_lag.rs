//! Rate-limited log of a replica of the ledger that lags behind the store.

use penstock_storage::ledger::LedgerStore;
use std::time::{Duration, Instant};
use tracing::Level;

/// Interval of the log events while the replica lags.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// State of the log about a lagging replica: the time of the last event, and the replica's state.
#[derive(Default)]
pub(super) struct ReplicaLagLog {
    logged: Option<Instant>,
    is_behind: bool,
}

impl ReplicaLagLog {
    /// Logs a change of the replica's state after a commit.
    pub(super) fn log_change(&mut self, copied: bool, ledger: &LedgerStore) {
        match (self.is_due(copied, Instant::now()), copied) {
            (true, true) => tracing::event!(name: "ledger_replica_current", Level::INFO, {}),
            (true, false) => {
                let why = ledger.replica_error().map(|why| why.to_string()).unwrap_or_default();
                tracing::error!(name: "ledger_replica_behind", why);
            }
            (false, _) => {}
        }
    }

    /// Returns true if a log event is due: after each change, but at most once a minute while the replica lags or
    /// changes often.
    fn is_due(&mut self, copied: bool, now: Instant) -> bool {
        if copied {
            return std::mem::take(&mut self.is_behind);
        }
        if self.logged.is_some_and(|logged_at| now.saturating_duration_since(logged_at) < REPEAT_INTERVAL) {
            return false;
        }
        self.logged = Some(now);
        self.is_behind = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lagging_replica_is_logged_once_a_minute() {
        let (mut behind, start) = (ReplicaLagLog::default(), Instant::now());
        let mut logged_at = Vec::new();
        for quarter in 0..500 {
            if behind.is_due(false, start + Duration::from_millis(250 * quarter)) {
                logged_at.push(quarter);
            }
        }
        assert_eq!(logged_at, [0, 240, 480]);
        let end = start + Duration::from_secs(126);
        assert!(behind.is_due(true, end) && !behind.is_due(true, end));
        assert!(!behind.is_due(false, end) && !behind.is_due(true, end), "it comes and goes");
    }
}
