//! Writer thread. It takes the queued transactions as a group, evaluates their guards in order, writes those that hold
//! as one sled batch, syncs once, and only then replies.
//!
//! There is only one thread, because sled 0.34 can deadlock when flushes run concurrently. Many callers share one
//! sync, because the sync dominates the cost of a commit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::engine::{CommitError, REOPEN_INTERVAL, SledEngine, WriteStatus};
use crate::transaction_group::evaluate_group;
use crate::{StoreError, Transaction};

/// Capacity of the transaction queue; further callers block.
pub(crate) const QUEUE_CAPACITY: usize = 1_024;
/// Maximum number of transactions in a group.
const MAX_GROUP: usize = 256;
/// Size in bytes from which a group takes no further transaction.
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Queued transaction with the reply channel of its caller.
pub(crate) struct WriteJob {
    pub(crate) batch: Transaction,
    pub(crate) reply: SyncSender<Result<(), StoreError>>,
}

/// Writes the queued transactions in groups, until every sender of `jobs` is dropped.
pub(crate) fn run(engine: &Arc<SledEngine>, jobs: &Receiver<WriteJob>) {
    let mut looked = None;
    while let Ok(first) = jobs.recv() {
        let mut bytes = first.batch.byte_len();
        let mut group = vec![first];
        while group.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
            let Ok(job) = jobs.try_recv() else { break };
            bytes += job.batch.byte_len();
            group.push(job);
        }
        engine.writer_health.mark_busy();
        let answers = match check_writable(engine, &mut looked) {
            Ok(()) => commit_group(engine, &group),
            Err(error) => vec![Err(error); group.len()],
        };
        engine.writer_health.mark_idle();
        for (job, answer) in group.into_iter().zip(answers) {
            // The receiver is gone if the caller timed out.
            let _ = job.reply.send(answer);
        }
    }
}

/// Returns an error if writes are refused now; on a full disk, checks for free space at most once a second.
fn check_writable(engine: &SledEngine, looked: &mut Option<Instant>) -> Result<(), StoreError> {
    match engine.writer_health.write_status() {
        WriteStatus::Ready => engine.reopen_if_due(),
        WriteStatus::Failed => {
            Err(StoreError::Io { what: "write after a failed sync", kind: std::io::ErrorKind::Other })
        }
        WriteStatus::Full if looked.is_some_and(|at| at.elapsed() < REOPEN_INTERVAL) => Err(StoreError::Full),
        WriteStatus::Full => {
            *looked = Some(Instant::now());
            engine.reopen_if_due()?;
            engine.reserve_file.create_if_missing()?;
            engine.writer_health.set_write_status(WriteStatus::Ready);
            Ok(())
        }
    }
}

fn commit_group(engine: &SledEngine, group: &[WriteJob]) -> Vec<Result<(), StoreError>> {
    let _writing = engine.write_lock.lock();
    let transactions = group.iter().map(|job| &job.batch);
    let evaluated = engine.with_sled(|live| Ok(evaluate_group(transactions, |key| live.get(key))));
    let (mut answers, writes) = match evaluated {
        Ok(evaluated) => evaluated,
        Err(error) => return vec![Err(error); group.len()],
    };
    if writes.is_empty() {
        return answers;
    }
    if let Err(fault) = engine.commit(writes) {
        let error = recover_from_error(engine, fault);
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            *answer = Err(error.clone());
        }
    }
    answers
}

/// Reopens the store after a failed commit, because the state in memory may differ from the disk. Returns the error
/// for the callers of the group.
fn recover_from_error(engine: &SledEngine, fault: CommitError) -> StoreError {
    let (error, mode) = match fault {
        CommitError::Sync(error) => (error, WriteStatus::Failed),
        CommitError::Write(StoreError::Full) => (StoreError::Full, WriteStatus::Full),
        CommitError::Write(error) => (error, WriteStatus::Ready),
    };
    engine.writer_health.set_write_status(mode);
    // If reopening fails, the next caller tries it again.
    if mode != WriteStatus::Failed {
        let _ = engine.reopen();
    }
    error
}
