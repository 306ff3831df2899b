//! Comparison of the clocks of the members by the times in their reports.

use std::collections::{BTreeMap, BTreeSet};

/// Difference between the clocks of two members, in seconds, above which it is logged.
const MAX_DIFFERENCE: u64 = 60;
/// Maximum time between two reads of the reports, in seconds, for the reports to be compared. After a longer time,
/// the database was probably unavailable, and a member may not have reported again since.
const MAX_READ_INTERVAL: u64 = 10;

/// Times of the last reports, and the members whose clocks differ too much from this one's.
#[derive(Debug, Default)]
pub struct MemberClockMonitor {
    differing: BTreeSet<u32>,
    /// Time of the last report of each member, by the member's clock, Unix seconds.
    reported: BTreeMap<u32, u64>,
    /// Time of the last read of the reports, by this member's clock, Unix seconds.
    exchanged_at: u64,
}

impl MemberClockMonitor {
    /// Compares the times of `reports`, each with the number of its member, with the present time, all in Unix seconds.
    /// Returns the numbers of the members whose clocks have begun to differ, each with the difference in seconds.
    pub fn find_newly_differing(
        &mut self,
        now: u64,
        reports: impl Iterator<Item = (u32, u64)>,
    ) -> Vec<(u32, u64)> {
        let is_current = now.abs_diff(std::mem::replace(&mut self.exchanged_at, now)) <= MAX_READ_INTERVAL;
        let (mut found, mut reported) = (Vec::new(), BTreeMap::new());
        for (member, at) in reports {
            reported.insert(member, at);
            let is_new = self.reported.get(&member).is_some_and(|last| *last != at);
            // An old report shows nothing about the clock of its member: its time stays the same while the present
            // time goes on.
            if !is_new || !is_current {
                continue;
            }
            let difference = at.abs_diff(now);
            if difference <= MAX_DIFFERENCE {
                self.differing.remove(&member);
            } else if self.differing.insert(member) {
                found.push((member, difference));
            }
        }
        self.differing.retain(|member| reported.contains_key(member));
        self.reported = reported;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_found_once_until_it_is_right() {
        let mut check = MemberClockMonitor::default();
        let mut found = Vec::new();
        for second in 0..20 {
            let offset = if second < 10 { 600 } else { 0 };
            found.extend(check.find_newly_differing(
                1_000 + second,
                [(1, 1_000 + second), (2, 1_000 + second + offset)].into_iter(),
            ));
        }
        assert_eq!(found, [(2, 600)]);
        found = (20..25)
            .flat_map(|second| check.find_newly_differing(1_000 + second, [(2, 900 + second)].into_iter()))
            .collect();
        assert_eq!(found, [(2, 100)]);
    }

    #[test]
    fn reports_from_before_an_outage_are_no_difference() {
        let mut check = MemberClockMonitor::default();
        for second in 0..5 {
            assert!(check.find_newly_differing(1_000 + second, [(1, 1_000 + second)].into_iter()).is_empty());
        }
        // The member wrote one more report before the outage, which is read only afterwards. It reports again two
        // seconds after the outage.
        for (now, at) in [(1_066, 1_005), (1_067, 1_005), (1_068, 1_068), (1_069, 1_069)] {
            assert!(check.find_newly_differing(now, [(1, at)].into_iter()).is_empty(), "{now}");
        }
        assert_eq!(check.find_newly_differing(1_070, [(1, 1_170)].into_iter()), [(1, 100)]);
    }
}
