//! Waiting: for a provider's bytes, while the client may leave, its key may be
//! revoked, and one alarm may go off. One timer serves the whole request and is
//! moved only when an earlier alarm needs it.

use crate::caller::Caller;
use crate::clock;
use crate::keyring::Grant;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::Sleep;

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
}

impl Watch {
    /// A watch over this key.
    pub fn new(grant: Arc<Grant>) -> Self {
        Self { timer: None, armed: clock::now(), revoked: Box::pin(async move { grant.ended().await }) }
    }

    /// Waits for `work`, at most until `alarm`. After an alarm the same work can
    /// be waited for again.
    pub async fn race<T>(
        &mut self,
        caller: &mut Caller<'_>,
        mut work: Pin<&mut impl Future<Output = T>>,
        alarm: Instant,
    ) -> Woken<T> {
        loop {
            let timer = arm(&mut self.timer, &mut self.armed, alarm);
            tokio::select! {
                biased;
                done = work.as_mut() => return Woken::Done(done),
                () = caller.gone() => return Woken::Left,
                () = self.revoked.as_mut() => return Woken::Revoked,
                () = timer => {
                    if clock::now() >= alarm {
                        self.timer = None;
                        return Woken::Alarm;
                    }
                    // It was set for something that is over.
                    self.timer = None;
                }
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
