//! State of a running batch in memory, in groups: open files, lines between input and output, and reasons to pause.
//! None of it is stored.

use super::commit::Finished;
use super::input::{Asked, Input};
use crate::storage::files::Output;
use penstock_batch::state::EndReason;
use penstock_storage::batches::BatchRecord;
use penstock_storage::files::FileRecord;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Files of the batch, while they are open.
#[derive(Default)]
pub(super) struct OpenFiles {
    pub(super) input: Option<Input>,
    pub(super) output: Option<Output>,
    /// Record of the output file as last committed.
    pub(super) results: Option<FileRecord>,
}

/// Lines that were prefetched.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) lines: VecDeque<Asked>,
    /// Bytes of their bodies.
    pub(super) bytes: usize,
}

/// Lines in flight.
#[derive(Default)]
pub(super) struct Flying {
    pub(super) lines: usize,
    /// Bytes of their bodies.
    pub(super) bytes: usize,
    /// Cancels them because their results are no longer needed.
    pub(super) cancel: CancellationToken,
    /// Aborts those that continue after the cancellation.
    pub(super) abort: watch::Sender<bool>,
}

/// Finished lines that are not in a group yet.
#[derive(Default)]
pub(super) struct Unwritten {
    pub(super) lines: VecDeque<Finished>,
    /// Bytes of their results.
    pub(super) bytes: usize,
    /// Moving average of a result's size in bytes.
    pub(super) typical: usize,
}

/// State of the disk accesses.
#[derive(Default)]
pub(super) struct Disk {
    /// True while files are being opened or read.
    pub(super) reading: bool,
    /// True while a group is being written.
    pub(super) writing: bool,
    /// Time before which nothing is tried, after a disk error.
    pub(super) rest_until: Option<Instant>,
    /// Number of consecutive errors.
    pub(super) failures: u32,
}

/// Reasons to start no lines for now.
#[derive(Default)]
pub(super) struct Paused {
    /// True if the store fails or the key is suspended.
    pub(super) held_up: bool,
    /// True if the key is suspended.
    pub(super) suspended: bool,
}

/// Shutdown of a batch, at its end or because the gateway stops.
#[derive(Default)]
pub(super) struct Exit {
    /// Reason for the end, once it is known.
    pub(super) why: Option<EndReason>,
    /// True if the gateway stops.
    pub(super) stopping: bool,
    /// Time at which started lines are cancelled.
    pub(super) calls_off: Option<Instant>,
    /// Time at which they are aborted.
    pub(super) cuts: Option<Instant>,
    /// True if nothing is left to do.
    pub(super) over: bool,
}

/// Receivers of committed states.
pub(super) struct Watchers {
    pub(super) seen: watch::Sender<Arc<BatchRecord>>,
    /// Requests that wait for the end of the batch.
    pub(super) askers: Vec<oneshot::Sender<Arc<BatchRecord>>>,
}
