//! State of the connection to the database, readable without a lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::StoreHealth;

/// Permission of this process to write to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WritePermission {
    Active,
    /// Another process has taken the database over.
    Fenced,
    /// The database has lost commits that it had acknowledged to this process.
    Reverted,
}

/// State of the database connection and of the writer thread, which the writer thread updates.
pub(super) struct DatabaseStatus {
    origin: Instant,
    /// Start of the current outage, in milliseconds after `origin` plus one; 0 for none.
    lost_since: AtomicU64,
    /// Start of the current group of transactions, in the same format as `lost_since`.
    busy_since: AtomicU64,
    /// Current [`WritePermission`] as a number; once it is no longer `Active`, it does not change again.
    state: AtomicU8,
}

impl DatabaseStatus {
    pub(super) fn new() -> DatabaseStatus {
        DatabaseStatus {
            origin: Instant::now(),
            lost_since: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            state: AtomicU8::new(WritePermission::Active as u8),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Records a failed attempt. If the attempt was to write a group of transactions, the outage starts at the start
    /// of that group.
    pub(super) fn mark_lost(&self) {
        let busy_since = Some(self.busy_since.load(Ordering::Acquire)).filter(|since| *since > 0);
        let since = busy_since.unwrap_or_else(|| self.elapsed_ms());
        // The start of an ongoing outage does not change.
        let _ = self.lost_since.compare_exchange(0, since, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Records an answer of the database, which ends the outage.
    pub(super) fn mark_answered(&self) {
        self.lost_since.store(0, Ordering::Release);
    }

    /// Records that the writer begins a group of transactions now.
    pub(super) fn mark_busy(&self) {
        self.busy_since.store(self.elapsed_ms(), Ordering::Release);
    }

    /// Records that the writer has no group of transactions in progress.
    pub(super) fn mark_idle(&self) {
        self.busy_since.store(0, Ordering::Release);
    }

    /// Records that this process may no longer write; `state` is the reason.
    pub(super) fn end_writes(&self, state: WritePermission) {
        let active = WritePermission::Active as u8;
        let _ = self.state.compare_exchange(active, state as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the permission of this process to write.
    pub(super) fn write_permission(&self) -> WritePermission {
        match self.state.load(Ordering::Acquire) {
            state if state == WritePermission::Active as u8 => WritePermission::Active,
            state if state == WritePermission::Fenced as u8 => WritePermission::Fenced,
            _ => WritePermission::Reverted,
        }
    }

    /// Returns the length of the current outage; `None` while the database answers.
    pub(super) fn outage_duration(&self) -> Option<Duration> {
        self.since(&self.lost_since)
    }

    /// Returns the length of the current outage, or the time that the current group has waited for an answer if that is
    /// longer.
    pub(super) fn outage_or_stall_duration(&self) -> Option<Duration> {
        self.outage_duration().max(self.since(&self.busy_since))
    }

    fn since(&self, start: &AtomicU64) -> Option<Duration> {
        match start.load(Ordering::Acquire) {
            0 => None,
            start => Some(Duration::from_millis(self.elapsed_ms().saturating_sub(start))),
        }
    }

    /// Returns the health of the store; a group that has run for `stuck_after` counts as an outage.
    pub(super) fn health(&self, stuck_after: Duration) -> StoreHealth {
        match self.write_permission() {
            WritePermission::Active => {}
            WritePermission::Fenced => return StoreHealth::Failed,
            WritePermission::Reverted => return StoreHealth::Reverted,
        }
        let busy = self.since(&self.busy_since).filter(|busy| *busy >= stuck_after);
        match self.outage_duration().or(busy) {
            Some(outage) => StoreHealth::Unreachable {
                milliseconds: u64::try_from(outage.as_millis()).unwrap_or(u64::MAX),
            },
            None => StoreHealth::Ready,
        }
    }
}
