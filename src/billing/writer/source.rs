//! Source of the writer's operations: the queue or, if there is a journal, the journal thread, which takes the
//! operations from the queue and passes them on.

use super::super::journal::JournalState;
use super::super::write_queue::{DrainedOps, MAX_GROUP_OPERATIONS, WriteQueue};
use super::MAX_OPS;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Operations that the journal thread passes on.
pub(in super::super) struct JournaledOps {
    pub(in super::super) ops: Receiver<DrainedOps>,
    pub(in super::super) state: Arc<JournalState>,
}

impl JournaledOps {
    /// Takes the next operations from the journal thread, and those that wait behind them, up to the size of a group.
    /// Returns an empty list if no operations arrive within `patience`. Returns `None` once the journal thread has
    /// ended and all operations were taken.
    fn collect(&self, patience: Option<Duration>) -> Option<DrainedOps> {
        let first = match patience {
            None => self.ops.recv().ok()?,
            Some(patience) => match self.ops.recv_timeout(patience) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    return Some(DrainedOps { ops: Vec::new(), last: 0, is_complete: false });
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            },
        };
        let mut taken = first;
        while taken.ops.len() < MAX_GROUP_OPERATIONS
            && let Ok(more) = self.ops.try_recv()
        {
            taken.ops.extend(more.ops);
            (taken.last, taken.is_complete) = (more.last, more.is_complete);
        }
        Some(taken)
    }
}

/// Removes and returns the next operations to write, from the queue or from the journal's thread; `None` if no more
/// will come, and while the queue is handed over. Returns no operations if none arrive within `patience`.
pub(super) fn collect_operations(
    queue: &WriteQueue,
    journaled: Option<&JournaledOps>,
    patience: Option<Duration>,
) -> Option<DrainedOps> {
    match journaled {
        None => queue.take_operations(MAX_OPS, patience),
        Some(journaled) => journaled.collect(patience),
    }
}
