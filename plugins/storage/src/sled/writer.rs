//! Writer thread. It takes the queued transactions as a group, evaluates their guards in order, writes those that hold
//! as one sled batch, syncs once, and only then replies.
//!
//! There is one thread because sled 0.34 can deadlock when flushes run concurrently; there is one sync for many callers
//! because the sync dominates the cost of a commit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::engine::{Engine, Fault, Mode, RETRY, Writes};
use super::live::Live;
use crate::{Batch, StoreError, row};

/// Capacity of the transaction queue; further callers block.
pub(crate) const QUEUE: usize = 1_024;
/// Maximum number of transactions in a group.
const GROUP: usize = 256;
/// Size in bytes from which a group takes no further transaction.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Queued transaction with the reply channel of its caller.
pub(crate) struct Job {
    pub(crate) batch: Batch,
    pub(crate) answer: SyncSender<Result<(), StoreError>>,
}

/// Runs until every sender of `jobs` is dropped.
pub(crate) fn run(engine: &Arc<Engine>, jobs: &Receiver<Job>) {
    let mut looked = None;
    while let Ok(first) = jobs.recv() {
        let mut bytes = first.batch.bytes();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(job) = jobs.try_recv() else { break };
            bytes += job.batch.bytes();
            group.push(job);
        }
        engine.pulse.busy();
        let answers = match admit(engine, &mut looked) {
            Ok(()) => commit(engine, &group),
            Err(error) => vec![Err(error); group.len()],
        };
        engine.pulse.idle();
        for (job, answer) in group.into_iter().zip(answers) {
            // The receiver is gone if the caller timed out.
            let _ = job.answer.send(answer);
        }
    }
}

/// Returns an error if writes are refused now; on a full disk, checks for free space at most once a second.
fn admit(engine: &Engine, looked: &mut Option<Instant>) -> Result<(), StoreError> {
    match engine.pulse.mode() {
        Mode::Ready => engine.revive(),
        Mode::Failed => {
            Err(StoreError::Io { what: "write after a failed sync", kind: std::io::ErrorKind::Other })
        }
        Mode::Full if looked.is_some_and(|at| at.elapsed() < RETRY) => Err(StoreError::Full),
        Mode::Full => {
            *looked = Some(Instant::now());
            engine.revive()?;
            engine.ballast.secure()?;
            engine.pulse.set(Mode::Ready);
            Ok(())
        }
    }
}

fn commit(engine: &Engine, group: &[Job]) -> Vec<Result<(), StoreError>> {
    let _writing = engine.writing.lock();
    let evaluated = engine.with(|live| Ok(evaluate(live, group)));
    let (mut answers, writes) = match evaluated {
        Ok(evaluated) => evaluated,
        Err(error) => return vec![Err(error); group.len()],
    };
    if writes.is_empty() {
        return answers;
    }
    if let Err(fault) = engine.commit(writes) {
        let error = recover(engine, fault);
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            *answer = Err(error.clone());
        }
    }
    answers
}

/// Evaluates each transaction against the store and the earlier transactions of the group.
fn evaluate(live: &Live, group: &[Job]) -> (Vec<Result<(), StoreError>>, Writes) {
    let mut order: Writes = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut answers = Vec::with_capacity(group.len());
    for job in group {
        let mut writes: Writes = Vec::new();
        let answer = job.batch.evaluate(
            |space, key| {
                let key = row::disk_key(space, key);
                match places.get(&key).and_then(|place| order.get(*place)) {
                    Some((_, value)) => Ok(value.clone()),
                    None => live.get(&key),
                }
            },
            |space, key, value| writes.push((row::disk_key(space, key), value.map(<[u8]>::to_vec))),
        );
        for (key, value) in writes {
            match places.entry(key) {
                Entry::Occupied(place) => {
                    if let Some(earlier) = order.get_mut(*place.get()) {
                        earlier.1 = value;
                    }
                }
                Entry::Vacant(place) => {
                    order.push((place.key().clone(), value));
                    place.insert(order.len() - 1);
                }
            }
        }
        answers.push(answer);
    }
    (answers, order)
}

/// Discards the state in memory after a failed commit, since memory and disk may differ. Returns the error for the
/// callers of the group.
fn recover(engine: &Engine, fault: Fault) -> StoreError {
    let (error, mode) = match fault {
        Fault::Sync(error) => (error, Mode::Failed),
        Fault::Write(StoreError::Full) => (StoreError::Full, Mode::Full),
        Fault::Write(error) => (error, Mode::Ready),
    };
    engine.pulse.set(mode);
    // If reopening fails, the next caller tries again.
    if mode != Mode::Failed {
        let _ = engine.reopen();
    }
    error
}
