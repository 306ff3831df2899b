//! Memory of large lines in flight: together they use at most `batches.memory`, or one line if that is
//! longer. Accounts are served in fair order, and no line overtakes the first in the queue, so that short
//! lines cannot starve a long one.

use super::context::BatchContext;
use super::input::{Body, LargeGate};
use crate::telemetry::log;
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_limits::{Fair, Joined};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Memory that all large lines share.
#[derive(Clone, Default)]
pub(super) struct LargeLines {
    pool: Arc<Mutex<Pool>>,
    gate: LargeGate,
}

#[derive(Default)]
struct Pool {
    /// Limit in bytes, from the current configuration.
    most: usize,
    used: usize,
    waiting: Fair<(usize, oneshot::Sender<LinePermit>)>,
}

/// Memory for one large line, released on drop.
pub(super) struct LinePermit {
    lines: LargeLines,
    bytes: usize,
}

/// Entry in the queue, removed on drop.
struct Turn<'l> {
    lines: &'l LargeLines,
    account: &'l Arc<str>,
    number: u64,
    permit: oneshot::Receiver<LinePermit>,
}

/// Input file of a line, and the account that pays.
pub(super) struct Source {
    pub(super) input: String,
    pub(super) account: Arc<str>,
}

/// Loads the body of a line into memory, with a permit for a large one; `None` if the line was cancelled or the file
/// cannot be read at the moment.
pub(super) async fn load(
    house: &Arc<BatchContext>,
    from: &Source,
    body: Body,
    cancel: &CancellationToken,
) -> Option<(Bytes, Option<LinePermit>)> {
    let (offset, length) = match body {
        Body::Held(body) => return Some((body, None)),
        Body::Stored { offset, length } => (offset, length),
    };
    let most = house.live().settings.batches.memory;
    let permit = tokio::select! {
        permit = house.batches.large.acquire(&from.account, length, most) => permit?,
        () = cancel.cancelled() => return None,
    };
    let (files, input) = (house.files.clone(), from.input.clone());
    let read = move || -> Result<Bytes> {
        let record = files.store().get(&input).map_err(|error| Error::other(error.to_string()))?;
        let record = record.ok_or(Error::from(ErrorKind::NotFound))?;
        let body = files.contents(&record)?.read(offset, length)?;
        if body.len() == length { Ok(body) } else { Err(Error::from(ErrorKind::UnexpectedEof)) }
    };
    let read = tokio::task::spawn_blocking(read).await.unwrap_or(Err(Error::from(ErrorKind::Interrupted)));
    match read {
        Ok(body) => Some((body, Some(permit))),
        Err(error) => {
            // The batch notices a deleted input file itself.
            if error.kind() != ErrorKind::NotFound {
                let why = error.kind().to_string();
                log::event(log::error(), "batch_not_read", &[("file", &from.input), ("why", &why)]);
            }
            None
        }
    }
}

impl LargeLines {
    /// Returns the lock for reading a large line.
    pub(super) fn gate(&self) -> LargeGate {
        self.gate.clone()
    }

    /// Acquires memory for a line of `bytes` out of `most`, after a wait if it is in use.
    async fn acquire(&self, account: &Arc<str>, bytes: usize, most: usize) -> Option<LinePermit> {
        let (hand, permit) = oneshot::channel();
        let number = {
            let mut pool = self.pool.lock();
            pool.most = most;
            match pool.waiting.join(account, (bytes, hand), usize::MAX) {
                Joined::Waits(number, _) => number,
                Joined::Full => return None,
            }
        };
        let mut turn = Turn { lines: self, account, number, permit };
        self.deal();
        (&mut turn.permit).await.ok()
    }

    /// Grants free memory to the queue. The waiters are notified after the lock is released.
    fn deal(&self) {
        let mut dealt = Vec::new();
        {
            let mut pool = self.pool.lock();
            while let Some((bytes, hand)) = pool.next() {
                dealt.push((hand, LinePermit { lines: self.clone(), bytes }));
            }
        }
        for (hand, permit) in dealt {
            // A waiter that has gone drops the permit, which releases it.
            hand.send(permit).ok();
        }
    }
}

impl Pool {
    /// First line in the queue, if its memory is available; no line overtakes it.
    fn next(&mut self) -> Option<(usize, oneshot::Sender<LinePermit>)> {
        let (used, most, mut first) = (self.used, self.most, true);
        let next = self.waiting.take(|_, (bytes, _)| {
            let fits = used == 0 || used.saturating_add(*bytes) <= most;
            std::mem::take(&mut first) && fits
        })?;
        self.used = self.used.saturating_add(next.0);
        Some(next)
    }
}

impl Drop for LinePermit {
    fn drop(&mut self) {
        {
            let mut pool = self.lines.pool.lock();
            pool.used = pool.used.saturating_sub(self.bytes);
        }
        self.lines.deal();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lines.pool.lock().waiting.leave(self.account, self.number);
        // A permit in the channel is dropped with it; no permit is sent after the close.
        self.permit.close();
        self.lines.deal();
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
    fn large_lines_together_hold_what_there_is_and_accounts_take_turns() {
        let lines = LargeLines::default();
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
    fn a_line_longer_than_all_there_is_goes_alone_and_who_leaves_holds_up_nobody() {
        let lines = LargeLines::default();
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
