//! What a batch at work holds, by what belongs together: its open files, its lines on their way from one of them to
//! the other, and what keeps it from going on. Nothing here is stored.

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

/// Its files, while they are open.
#[derive(Default)]
pub(super) struct OpenFiles {
    pub(super) input: Option<Input>,
    pub(super) output: Option<Output>,
    /// The record of the output, as it was committed.
    pub(super) results: Option<FileRecord>,
}

/// Lines that were read ahead of their turns.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) lines: VecDeque<Asked>,
    /// Bytes of their bodies.
    pub(super) bytes: usize,
}

/// Lines that are being asked.
#[derive(Default)]
pub(super) struct Flying {
    pub(super) lines: usize,
    /// Bytes of their bodies.
    pub(super) bytes: usize,
    /// Tells them that nobody waits any more.
    pub(super) cancel: CancellationToken,
    /// Cuts those that go on all the same.
    pub(super) abort: watch::Sender<bool>,
}

/// Lines with a result that no group has yet.
#[derive(Default)]
pub(super) struct Unwritten {
    pub(super) lines: VecDeque<Finished>,
    /// Bytes of their results.
    pub(super) bytes: usize,
    /// Bytes of a result, as they lately were.
    pub(super) typical: usize,
}

/// What the disk does for it, and how that goes.
#[derive(Default)]
pub(super) struct Disk {
    /// Opening or reading.
    pub(super) reading: bool,
    /// A group is on its way to the disk.
    pub(super) writing: bool,
    /// Nothing is tried before: the disk failed.
    pub(super) rest_until: Option<Instant>,
    /// How often, one after the other.
    pub(super) failures: u32,
}

/// Why it begins no line for now.
#[derive(Default)]
pub(super) struct Paused {
    /// The store fails, or its key is suspended.
    pub(super) held_up: bool,
    /// Its key is suspended.
    pub(super) suspended: bool,
}

/// How it comes to rest, at its end or because the house stops.
#[derive(Default)]
pub(super) struct Exit {
    /// Why it ends, once it does.
    pub(super) why: Option<EndReason>,
    /// The house stops.
    pub(super) stopping: bool,
    /// When started lines are called off.
    pub(super) calls_off: Option<Instant>,
    /// When they are cut.
    pub(super) cuts: Option<Instant>,
    /// Nothing is left to do.
    pub(super) over: bool,
}

/// Who hears of what was committed.
pub(super) struct Watchers {
    pub(super) seen: watch::Sender<Arc<BatchRecord>>,
    /// Those who wait for its end.
    pub(super) askers: Vec<oneshot::Sender<Arc<BatchRecord>>>,
}
