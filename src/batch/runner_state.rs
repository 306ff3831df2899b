//! State of a running batch that is in memory only: open files, lines between input and output, and reasons to pause.

use super::commit::LineOutcome;
use super::input::{BatchInputReader, PendingLine};
use crate::storage::files::OutputFile;
use penstock_batch::state::EarlyEndReason;
use penstock_storage::batches::BatchRecord;
use penstock_storage::files::FileRecord;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Files of the batch, while they are open.
#[derive(Default)]
pub(super) struct OpenInputAndOutput {
    /// Input file; `None` while it is not open.
    pub(super) input: Option<BatchInputReader>,
    /// Output file; `None` while it is not open.
    pub(super) output: Option<OutputFile>,
    /// Record of the output file as last committed; `None` before the file was created or opened.
    pub(super) output_record: Option<FileRecord>,
    /// File that the output file replaces with the current commit; `None` if it replaces none.
    pub(super) replaced: Option<FileRecord>,
}

/// Lines that were prefetched.
#[derive(Default)]
pub(super) struct PrefetchedLines {
    pub(super) lines: VecDeque<PendingLine>,
    /// Size of the request bodies of the prefetched lines, in bytes.
    pub(super) bytes: usize,
}

/// Lines in flight.
#[derive(Default)]
pub(super) struct InFlightLines {
    pub(super) lines: usize,
    /// Size of the request bodies of the lines in flight, in bytes.
    pub(super) bytes: usize,
    /// Token that cancels these lines because their results are no longer needed.
    pub(super) cancel: CancellationToken,
    /// Token that is cancelled before `cancel` if another process sends these lines again.
    pub(super) interrupted: CancellationToken,
    /// Signal that aborts the lines that continue after the cancellation.
    pub(super) abort: watch::Sender<bool>,
}

/// Finished lines that are not in a group yet.
#[derive(Default)]
pub(super) struct PendingResults {
    pub(super) lines: VecDeque<LineOutcome>,
    /// Size of the waiting results, in bytes.
    pub(super) bytes: usize,
    /// Moving average of a result's size in bytes.
    pub(super) average_size: usize,
    /// Time since which the oldest result waits; `None` if no result waits, or if the last write failed.
    pub(super) since: Option<Instant>,
}

/// State of the disk accesses.
#[derive(Default)]
pub(super) struct DiskState {
    /// True while files are being opened or read.
    pub(super) reading: bool,
    /// True while a group is being written.
    pub(super) writing: bool,
    /// Time until which disk access pauses after an error; `None` if a group was written, or the
    /// files were opened, since the last error.
    pub(super) retry_at: Option<Instant>,
    /// Number of consecutive errors.
    pub(super) failures: u32,
}

impl DiskState {
    /// Returns true while disk access pauses after an error. The time of an earlier pause does not count: the next
    /// access is due.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|until| now < until)
    }
}

/// Reason to start no lines for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PauseReason {
    /// No pause: lines start.
    #[default]
    None,
    /// Pause because the store fails.
    StoreFailing,
    /// Pause because the key is suspended.
    KeySuspended,
}

/// State of the decision to divide a batch into slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlicingState {
    /// No line has started, so the batch may be divided.
    #[default]
    Undecided,
    /// The input file is being divided; no line starts meanwhile.
    Dividing,
    /// The batch or slice runs as a whole.
    Whole,
}

/// Phase of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunnerPhase {
    /// Executes lines, or commits their results.
    #[default]
    Running,
    /// The gateway stops: started lines end, no others start.
    Stopping,
    /// The run has ended: all work is done, the claim is lost, or a commit failed.
    Finished,
}

/// Shutdown of a runner, because the batch ends or the gateway stops.
#[derive(Default)]
pub(super) struct ShutdownState {
    /// Reason why the batch ends before its last line; `None` while it does not.
    pub(super) reason: Option<EarlyEndReason>,
    pub(super) phase: RunnerPhase,
    /// Time at which started lines are cancelled; `None` if no cancellation is due.
    pub(super) cancel_at: Option<Instant>,
    /// Time at which lines that still run are aborted; `None` before they were cancelled.
    pub(super) abort_at: Option<Instant>,
}

impl ShutdownState {
    /// Returns true if the gateway stops or no work is left.
    pub(super) fn is_stopping(&self) -> bool {
        self.phase != RunnerPhase::Running
    }

    pub(super) fn is_finished(&self) -> bool {
        self.phase == RunnerPhase::Finished
    }

    /// Starts the shutdown, unless the runner has finished.
    pub(super) fn start(&mut self) {
        if self.phase == RunnerPhase::Running {
            self.phase = RunnerPhase::Stopping;
        }
    }
}

/// Receivers of the committed records of a batch.
pub(super) struct BatchWatchers {
    pub(super) published: watch::Sender<Arc<BatchRecord>>,
    /// Requests that wait for the end of the batch.
    pub(super) end_waiters: Vec<oneshot::Sender<Arc<BatchRecord>>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_earlier_pause_does_not_count() {
        let now = Instant::now();
        let mut disk = DiskState::default();
        assert!(!disk.is_paused(now));
        disk.retry_at = Some(now + Duration::from_secs(1));
        assert!(disk.is_paused(now));
        assert!(!disk.is_paused(now + Duration::from_secs(1)));
    }
}
