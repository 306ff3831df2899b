//! Waiting: for a provider's bytes, while the client may leave, its key may be
//! revoked, and one alarm may go off. A client that reads a stream is kept
//! company, whatever is waited for. One timer serves the whole request and is
//! moved only when an earlier alarm needs it.

use crate::auth::key_cache::Grant;
use crate::proxy::downstream::Caller;
use crate::time::clock;
use bytes::Bytes;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// What a client hears while it waits; a comment that every client skips.
pub const HEARTBEAT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// What ended a wait.
pub enum Woken<T> {
    /// What was waited for.
    Done(T),
    /// The alarm.
    Alarm,
    /// The client is gone.
    Left,
    /// The key is no longer good.
    Revoked,
}

/// A request's one timer, and the watch over its key.
pub struct Watch {
    timer: Option<Pin<Box<Sleep>>>,
    armed: Instant,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Longest silence towards a client that reads a stream.
    heartbeat: Duration,
    /// The last byte to it, from the head on.
    told: Option<Instant>,
}

impl Watch {
    /// A watch over this key.
    pub fn new(grant: Arc<Grant>, heartbeat: Duration) -> Self {
        let revoked = Box::pin(async move { grant.ended().await });
        Self { timer: None, armed: clock::now(), revoked, heartbeat, told: None }
    }

    /// The client was sent a part of its stream: from here on it is kept company.
    pub const fn told(&mut self, at: Instant) {
        self.told = Some(at);
    }

    /// Waits for `work`, at most until `alarm`. After an alarm the same work can
    /// be waited for again. The clock is compared and the client looked at on
    /// every call, also when the work is always ready. Work that is ready when
    /// the alarm is due is taken once more: a thread that was busy elsewhere is no
    /// silence of the provider's. Whoever calls in a loop has to compare the time
    /// between two calls.
    pub async fn race<T>(
        &mut self,
        caller: &mut Caller<'_>,
        mut work: Pin<&mut impl Future<Output = T>>,
        alarm: Instant,
    ) -> Woken<T> {
        loop {
            let now = clock::now();
            let beat = self.told.map(|told| told + self.heartbeat);
            if beat.is_some_and(|beat| now >= beat) && now < alarm {
                // Boxed: it is rare, and its state would be a part of every wait's.
                if Box::pin(caller.write_response_body(HEARTBEAT, false)).await.is_err() {
                    return Woken::Left;
                }
                self.told = Some(clock::now());
                continue;
            }
            let late = now >= alarm;
            let next = beat.map_or(alarm, |beat| beat.min(alarm));
            let timer = arm(&mut self.timer, &mut self.armed, next);
            tokio::select! {
                biased;
                () = caller.gone() => return Woken::Left,
                () = self.revoked.as_mut() => return Woken::Revoked,
                done = work.as_mut() => return Woken::Done(done),
                () = ready(()), if late => return Woken::Alarm,
                // It may have been set for something that is over.
                () = timer => self.timer = None,
            }
        }
    }
}

/// The timer, set so that it fires at `alarm` or earlier.
fn arm<'t>(
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
