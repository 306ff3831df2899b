//! Limit of the connections of a listener that closes the oldest silent connection when it is full, so that silent
//! clients cannot lock out others. A connection is silent until its request head has arrived, or its TLS handshake is
//! complete.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

/// Longest wait for the permit of a silent connection that is closed.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit of the connections of a listener.
pub struct EvictingConnectionLimit {
    permits: Arc<Semaphore>,
    silent: Mutex<SilentConnections>,
}

/// Silent connections, each with the sender that closes it.
#[derive(Default)]
struct SilentConnections {
    next: u64,
    /// Connections by number, the oldest first.
    evictions: BTreeMap<u64, oneshot::Sender<()>>,
}

impl EvictingConnectionLimit {
    /// Creates a limit of `max` connections.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(max)), silent: Mutex::default() })
    }

    /// Admits a connection, which is silent at first. If the limit is reached, closes the oldest silent connection;
    /// returns `None` if there is none.
    pub async fn admit(self: &Arc<Self>) -> Option<SilentConnection> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.evict_oldest()?;
                timeout(EVICTION_TIMEOUT, self.permits.clone().acquire_owned()).await.ok()?.ok()?
            }
        };
        let (eviction, evicted) = oneshot::channel();
        let mut silent = self.silent.lock();
        let number = silent.next;
        silent.next += 1;
        silent.evictions.insert(number, eviction);
        Some(SilentConnection { limit: self.clone(), number, permit: Some(permit), evicted })
    }

    fn evict_oldest(&self) -> Option<()> {
        let (_, eviction) = self.silent.lock().evictions.pop_first()?;
        // A connection that has just ended releases its permit by itself.
        eviction.send(()).ok();
        Some(())
    }

    /// Returns the number of connections that can be admitted without closing another one.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.permits.available_permits()
    }
}

/// Admitted connection that has sent no complete request yet.
pub struct SilentConnection {
    limit: Arc<EvictingConnectionLimit>,
    number: u64,
    permit: Option<OwnedSemaphorePermit>,
    evicted: oneshot::Receiver<()>,
}

impl SilentConnection {
    /// Waits for `request`, after which the connection is no longer silent. Returns its output and the permit of the
    /// connection; `None` if the connection has to be closed for another one.
    pub async fn wait_for<T>(
        mut self,
        request: impl Future<Output = T>,
    ) -> Option<(T, OwnedSemaphorePermit)> {
        let mut request = pin!(request);
        let read = tokio::select! {
            biased;
            read = &mut request => read,
            _ = &mut self.evicted => return None,
        };
        Some((read, self.permit.take()?))
    }
}

impl Drop for SilentConnection {
    fn drop(&mut self) {
        self.limit.silent.lock().evictions.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_connection_is_closed_and_a_busy_one_never() {
        let limit = EvictingConnectionLimit::new(2);
        let (_, busy) = limit.admit().await.unwrap().wait_for(ready(())).await.unwrap();
        let silent = limit.admit().await.unwrap();
        let closed = tokio::spawn(async move { silent.wait_for(pending::<()>()).await.is_none() });
        let next = limit.admit().await.unwrap();
        assert!(closed.await.unwrap());
        let (_, second) = next.wait_for(ready(())).await.unwrap();
        assert!(limit.admit().await.is_none(), "both are busy");
        drop((busy, second));
        assert_eq!(limit.free(), 2);
        assert!(limit.silent.lock().evictions.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_not_closed_in_time_admits_no_other() {
        let limit = EvictingConnectionLimit::new(1);
        let _stuck = limit.admit().await.unwrap();
        assert!(limit.admit().await.is_none());
    }
}
