//! Memory of large lines in flight. Together they use at most `batches.memory`, except that one line that is larger
//! than that may run alone. Accounts are served in fair order, and no line overtakes the first line in the queue, so
//! that small lines cannot starve a large one.

use super::context::BatchContext;
use super::input::{LargeLineLock, LineBody};
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_limits::{EnqueueOutcome, FairQueue};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Memory that all large lines share.
#[derive(Clone, Default)]
pub(super) struct LargeLineMemory {
    pool: Arc<Mutex<MemoryPool>>,
    read_lock: LargeLineLock,
}

#[derive(Default)]
struct MemoryPool {
    /// Maximum of `used` in bytes (`batches.memory`), updated at each acquisition.
    limit: usize,
    used: usize,
    waiting: FairQueue<(usize, oneshot::Sender<LargeLinePermit>)>,
}

/// Memory for one large line, released on drop.
pub(super) struct LargeLinePermit {
    lines: LargeLineMemory,
    bytes: usize,
}

/// Entry in the queue, removed on drop.
struct MemoryWaiter<'l> {
    lines: &'l LargeLineMemory,
    account: &'l Arc<str>,
    ticket: u64,
    permit: oneshot::Receiver<LargeLinePermit>,
}

/// Id of the input file of a batch, and the account that pays.
pub(super) struct BatchInputRef {
    pub(super) input_file_id: String,
    pub(super) account: Arc<str>,
}

/// Loads the body of a line into memory, with a permit for a large one; `None` if the line was cancelled or the file
/// cannot be read at the moment.
pub(super) async fn load_body(
    context: &Arc<BatchContext>,
    from: &BatchInputRef,
    body: LineBody,
    cancel: &CancellationToken,
) -> Option<(Bytes, Option<LargeLinePermit>)> {
    let (offset, length) = match body {
        LineBody::InMemory(body) => return Some((body, None)),
        LineBody::InFile { offset, length } => (offset, length),
    };
    let most = context.config_snapshot().settings.batches.memory;
    let permit = tokio::select! {
        permit = context.batches.large_lines.acquire(&from.account, length, most) => permit?,
        () = cancel.cancelled() => return None,
    };
    let (files, input) = (context.files.clone(), from.input_file_id.clone());
    let read = move || -> Result<Bytes> {
        let record =
            files.file_record_store().get(&input).map_err(|error| Error::other(error.to_string()))?;
        let record = record.ok_or(Error::from(ErrorKind::NotFound))?;
        let body = files.open_contents(&record)?.read(offset, length)?;
        if body.len() == length { Ok(body) } else { Err(Error::from(ErrorKind::UnexpectedEof)) }
    };
    let read = tokio::task::spawn_blocking(read).await.unwrap_or(Err(Error::from(ErrorKind::Interrupted)));
    match read {
        Ok(body) => Some((body, Some(permit))),
        Err(error) => {
            // A deleted input file is not logged, because the batch detects the deletion itself.
            if error.kind() != ErrorKind::NotFound {
                let why = error.kind().to_string();
                tracing::error!(name: "batch_not_read", file = from.input_file_id, why);
            }
            None
        }
    }
}

impl LargeLineMemory {
    /// Returns the lock for reading a large line.
    pub(super) fn large_line_lock(&self) -> LargeLineLock {
        self.read_lock.clone()
    }

    /// Acquires memory for a line of `bytes`, and waits until enough is free; `None` if no permit will come. All large
    /// lines together may use `max_bytes`.
    async fn acquire(&self, account: &Arc<str>, bytes: usize, max_bytes: usize) -> Option<LargeLinePermit> {
        let (hand, permit) = oneshot::channel();
        let number = {
            let mut pool = self.pool.lock();
            pool.limit = max_bytes;
            match pool.waiting.enqueue(account, (bytes, hand), usize::MAX) {
                EnqueueOutcome::Waiting(number, _) => number,
                EnqueueOutcome::Full => return None,
            }
        };
        let mut waiter = MemoryWaiter { lines: self, account, ticket: number, permit };
        self.grant_free();
        (&mut waiter.permit).await.ok()
    }

    /// Grants free memory to the queue. The waiters are notified after the lock is released.
    fn grant_free(&self) {
        let mut dealt = Vec::new();
        {
            let mut pool = self.pool.lock();
            while let Some((bytes, hand)) = pool.next_fitting() {
                dealt.push((hand, LargeLinePermit { lines: self.clone(), bytes }));
            }
        }
        for (hand, permit) in dealt {
            // If the waiter no longer exists, the permit is dropped, which releases the memory.
            hand.send(permit).ok();
        }
    }
}

impl MemoryPool {
    /// Returns the first line in the queue, if enough memory is free for it. No other line overtakes it.
    fn next_fitting(&mut self) -> Option<(usize, oneshot::Sender<LargeLinePermit>)> {
        let (used, most, mut first) = (self.used, self.limit, true);
        let next = self.waiting.pop_first_match(|_, (bytes, _)| {
            let fits = used == 0 || used.saturating_add(*bytes) <= most;
            std::mem::take(&mut first) && fits
        })?;
        self.used = self.used.saturating_add(next.0);
        Some(next)
    }
}

impl Drop for LargeLinePermit {
    fn drop(&mut self) {
        {
            let mut pool = self.lines.pool.lock();
            pool.used = pool.used.saturating_sub(self.bytes);
        }
        self.lines.grant_free();
    }
}

impl Drop for MemoryWaiter<'_> {
    fn drop(&mut self) {
        self.lines.pool.lock().waiting.remove(self.account, self.ticket);
        // Dropping the waiter also drops a permit that is already in its channel. After the close, no permit can be
        // sent.
        self.permit.close();
        self.lines.grant_free();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(wait: Pin<&mut F>) -> Option<F::Output> {
        match wait.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn large_lines_share_the_memory_and_accounts_are_served_fairly() {
        let lines = LargeLineMemory::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (mut first, mut second) = (pin!(lines.acquire(&a, 60, 100)), pin!(lines.acquire(&a, 40, 100)));
        let first = poll(first.as_mut()).unwrap().unwrap();
        let second = poll(second.as_mut()).unwrap().unwrap();
        let (mut third, mut fourth) = (pin!(lines.acquire(&a, 1, 100)), pin!(lines.acquire(&a, 1, 100)));
        let mut other = pin!(lines.acquire(&b, 50, 100));
        assert!(poll(third.as_mut()).is_none() && poll(fourth.as_mut()).is_none());
        assert!(poll(other.as_mut()).is_none());
        drop(second);
        let third = poll(third.as_mut()).unwrap().unwrap();
        assert!(
            poll(other.as_mut()).is_none() && poll(fourth.as_mut()).is_none(),
            "nobody passes the long one"
        );
        drop(first);
        let other = poll(other.as_mut()).unwrap().unwrap();
        let fourth = poll(fourth.as_mut()).unwrap().unwrap();
        assert_eq!(lines.pool.lock().used, 52);
        drop((third, other, fourth));
        assert_eq!(lines.pool.lock().used, 0);
    }

    #[test]
    fn a_line_over_the_whole_budget_runs_alone_and_a_cancelled_one_blocks_no_other() {
        let lines = LargeLineMemory::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut huge = pin!(lines.acquire(&a, 1_000, 100));
        let huge = poll(huge.as_mut()).unwrap().unwrap();
        let mut left = Box::pin(lines.acquire(&a, 1_000, 100));
        let mut next = pin!(lines.acquire(&b, 100, 100));
        assert!(poll(left.as_mut()).is_none() && poll(next.as_mut()).is_none());
        drop(huge);
        assert!(poll(next.as_mut()).is_none());
        drop(left);
        drop(poll(next.as_mut()).unwrap().unwrap());
        let pool = lines.pool.lock();
        assert_eq!((pool.used, pool.waiting.len()), (0, 0));
    }
}
