//! Waits for a provider's bytes while the client may disconnect, its request may be interrupted, or a timer may fire. A client
//! that reads a stream receives heartbeats during any wait. One timer serves the complete request and is reset only for
//! an earlier deadline.

use crate::auth::key_cache::Principal;
use crate::proxy::downstream::Downstream;
use crate::time::clock;
use bytes::Bytes;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Heartbeat of a stream: an SSE comment, which all clients ignore.
pub const HEARTBEAT_COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Outcome of waiting for a provider.
pub enum WaitOutcome<T> {
    /// The work has ended with this result.
    Ready(T),
    /// The deadline has passed.
    Deadline,
    /// The client has disconnected.
    Disconnected,
    /// The request has to end: its API key was revoked, its account was suspended, or the time to drain is over.
    Interrupted,
}

/// Timer of a request, and the watch over its client and key.
pub struct ClientWatch {
    timer: Option<Pin<Box<Sleep>>>,
    /// Time at which the timer fires, if there is one.
    armed: Instant,
    interrupted: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Interval of heartbeats; `None` if the client does not read a stream of events.
    heartbeat: Option<Duration>,
    /// Time of the last byte to the client, from the head on; `None` before the head.
    last_write: Option<Instant>,
}

impl ClientWatch {
    /// Creates the watch over the client of a request and its API key.
    pub fn new(principal: Arc<Principal>, heartbeat: Option<Duration>) -> Self {
        let interrupted = Box::pin(async move { principal.wait_until_interrupted().await });
        Self { timer: None, armed: clock::cached_now(), interrupted, heartbeat, last_write: None }
    }

    /// Records that a part of the stream was sent to the client. From then on, the client receives heartbeats.
    pub const fn record_write(&mut self, at: Instant) {
        self.last_write = Some(at);
    }

    /// Waits for `work`, at most until `alarm`. After a timeout, the same work can be awaited again. Each call checks
    /// the clock and the client, even if the work is always ready. If the work is ready when the deadline has passed,
    /// its result is still returned, because then the thread was busy and the provider was not silent. A caller that
    /// calls this in a loop has to check the time between the calls.
    pub async fn wait_for_work<T>(
        &mut self,
        caller: &mut Downstream<'_>,
        mut work: Pin<&mut impl Future<Output = T>>,
        alarm: Instant,
    ) -> WaitOutcome<T> {
        loop {
            let now = clock::cached_now();
            let heartbeat_due = self.last_write.zip(self.heartbeat).map(|(last, interval)| last + interval);
            if heartbeat_due.is_some_and(|due| now >= due) && now < alarm {
                // The future is boxed, because the write is rare and its state would enlarge the future of every wait.
                if Box::pin(caller.write_response_body(HEARTBEAT_COMMENT, false)).await.is_err() {
                    return WaitOutcome::Disconnected;
                }
                self.last_write = Some(clock::cached_now());
                continue;
            }
            let late = now >= alarm;
            let next = heartbeat_due.map_or(alarm, |due| due.min(alarm));
            let timer = arm_timer(&mut self.timer, &mut self.armed, next);
            tokio::select! {
                biased;
                () = caller.wait_for_disconnect() => return WaitOutcome::Disconnected,
                () = self.interrupted.as_mut() => return WaitOutcome::Interrupted,
                done = work.as_mut() => return WaitOutcome::Ready(done),
                () = ready(()), if late => return WaitOutcome::Deadline,
                // The timer may have been set for an earlier wait, so it is set again.
                () = timer => self.timer = None,
            }
        }
    }
}

/// Returns the timer, set to fire at `alarm` or earlier.
fn arm_timer<'t>(
    timer: &'t mut Option<Pin<Box<Sleep>>>,
    armed: &mut Instant,
    alarm: Instant,
) -> Pin<&'t mut Sleep> {
    let missing = timer.is_none();
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(alarm.into())));
    if missing {
        *armed = alarm;
    } else if alarm < *armed {
        *armed = alarm;
        timer.as_mut().reset(alarm.into());
    }
    timer.as_mut()
}
