//! Tells that the ledger's second copy is behind, without a line for each commit.

use crate::telemetry::log;
use penstock_storage::ledger::LedgerStore;
use std::time::{Duration, Instant};

/// How often a copy that stays behind is told.
const AGAIN: Duration = Duration::from_secs(60);

/// What was told of it.
#[derive(Default)]
pub(super) struct Behind {
    told: Option<Instant>,
    is: bool,
}

impl Behind {
    /// After a commit to this ledger.
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

    /// Whether this is told: the change, and once a minute while it lasts or comes and goes.
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
