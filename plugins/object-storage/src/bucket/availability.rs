//! Limits on calls to a bucket: a maximum number of concurrent calls, and only one call each second while the store
//! cannot be reached. So callers do not wait for an unavailable store.

use super::error::BucketError;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of concurrent calls.
const MAX_CALLS: usize = 64;
/// Maximum time that a call waits for another one to end.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Minimum interval between two calls to a store that cannot be reached.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Limiter of concurrent calls to a bucket, and of calls to a store that cannot be reached.
#[derive(Debug)]
pub struct CallLimiter {
    state: Mutex<GateState>,
    changed: Condvar,
    max_wait: Duration,
}

#[derive(Debug, Default)]
struct GateState {
    calls: usize,
    /// Earliest time of the next call to a store that cannot be reached; `None` while the store answers.
    retry_at: Option<Instant>,
}

/// Permit for one call to a bucket; the call counts as running until the permit is dropped.
#[derive(Debug)]
pub struct CallPermit<'a>(&'a CallLimiter);

impl Default for CallLimiter {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max_wait: MAX_WAIT }
    }
}

impl CallLimiter {
    /// Admits a call. If too many calls are running, waits for one of them to end.
    ///
    /// # Errors
    /// Returns `Unreachable` if the store could not be reached less than a second ago, or if no other call ended in
    /// time.
    pub fn acquire(&self) -> Result<CallPermit<'_>, BucketError> {
        let deadline = Instant::now() + self.max_wait;
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            state.check_reachable(now)?;
            if state.calls < MAX_CALLS {
                state.begin_call(now);
                return Ok(CallPermit(self));
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(BucketError::Unreachable("it has too many requests to answer".to_owned()));
            }
        }
    }

    /// Records whether a call reached the store; the result decides when the next call is allowed.
    pub fn record_outcome<T>(&self, outcome: &Result<T, BucketError>) {
        let is_unreachable = outcome.as_ref().is_err_and(BucketError::is_unreachable);
        self.state.lock().retry_at = is_unreachable.then(|| Instant::now() + RETRY_INTERVAL);
        self.changed.notify_all();
    }

    /// Returns false if the last call could not reach the store; true before the first call.
    pub fn is_store_reachable(&self) -> bool {
        self.state.lock().retry_at.is_none()
    }
}

impl GateState {
    /// Returns an error if the store could not be reached, and the next call to it is not due yet.
    fn check_reachable(&self, now: Instant) -> Result<(), BucketError> {
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return Err(BucketError::Unreachable("it did not answer a moment ago".to_owned()));
        }
        Ok(())
    }

    /// Counts a call. A store that cannot be reached gets one call per second.
    fn begin_call(&mut self, now: Instant) {
        self.calls += 1;
        self.retry_at = self.retry_at.map(|_| now + RETRY_INTERVAL);
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.calls = state.calls.saturating_sub(1);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_store_that_is_away_gets_one_call_each_second() {
        let mut state = GateState { calls: 0, retry_at: Some(Instant::now()) };
        let start = state.retry_at.unwrap();
        assert!(state.check_reachable(start).is_ok());
        state.begin_call(start);
        assert!(state.check_reachable(start).is_err(), "one call at a time finds out");
        assert!(state.check_reachable(start + RETRY_INTERVAL / 2).is_err());
        assert!(state.check_reachable(start + RETRY_INTERVAL).is_ok());
        let gate = CallLimiter::default();
        gate.record_outcome(&Err::<(), _>(BucketError::Unreachable("x".to_owned())));
        assert!(!gate.is_store_reachable() && gate.acquire().is_err());
        gate.record_outcome(&Ok(()));
        assert!(gate.is_store_reachable() && gate.acquire().is_ok());
    }

    #[test]
    fn calls_at_the_same_time_have_a_bound() {
        let gate = CallLimiter { max_wait: Duration::ZERO, ..CallLimiter::default() };
        let permits: Vec<_> = (0..MAX_CALLS).map(|_| gate.acquire().unwrap()).collect();
        assert!(gate.acquire().is_err());
        drop(permits);
        assert!(gate.acquire().is_ok());
    }

    #[test]
    fn a_call_without_a_permit_does_not_count_as_a_retry() {
        let gate = CallLimiter { max_wait: Duration::ZERO, ..CallLimiter::default() };
        let permits: Vec<_> = (0..MAX_CALLS).map(|_| gate.acquire().unwrap()).collect();
        gate.state.lock().retry_at = Some(Instant::now());
        assert!(gate.acquire().is_err());
        drop(permits);
        assert!(gate.acquire().is_ok());
    }
}
