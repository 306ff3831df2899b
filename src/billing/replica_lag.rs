//! Rate-limited log of a ledger replica that lags behind.

use crate::telemetry::log;
use penstock_storage::ledger::LedgerStore;
use std::time::{Duration, Instant};

/// Interval of the log events while the replica lags.
const AGAIN: Duration = Duration::from_secs(60);

/// State of the log.
#[derive(Default)]
pub(super) struct Behind {
    told: Option<Instant>,
    is: bool,
}

impl Behind {
    /// Logs a change of the replica's state after a commit.
    pub(super) fn tell(&mut self, copied: bool, ledger: &LedgerStore) {
        match (self.news(copied, Instant::now()), copied) {
            (true, true) => log::event(log::info(), "ledger_copy_whole", &[]),
            (true, false) => {
                let why = ledger.replica_error().map(|why| why.to_string()).unwrap_or_default();
                log::event(log::error(), "ledger_copy_behind", &[("why", &why)]);
            }
            (false, _) => {}
        }
    }

    /// Returns true if a log event is due: at a change, and once a minute while the replica lags or flaps.
    fn news(&mut self, copied: bool, now: Instant) -> bool {
        if copied {
            return std::mem::take(&mut self.is);
        }
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < AGAIN) {
            return false;
        }
        self.told = Some(now);
        self.is = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_stays_behind_is_told_once_a_minute() {
        let (mut behind, start) = (Behind::default(), Instant::now());
        let mut told = Vec::new();
        for quarter in 0..500 {
            if behind.news(false, start + Duration::from_millis(250 * quarter)) {
                told.push(quarter);
            }
        }
        assert_eq!(told, [0, 240, 480]);
        let end = start + Duration::from_secs(126);
        assert!(behind.news(true, end) && !behind.news(true, end));
        assert!(!behind.news(false, end) && !behind.news(true, end), "it comes and goes");
    }
}
