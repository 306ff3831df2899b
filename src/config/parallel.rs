//! Work of a large configuration on a second thread.

use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Value that another thread computes, or that the current thread has computed because no other thread could be
/// started.
pub enum ParallelValue<'scope, T> {
    /// Thread that computes the value.
    Thread(ScopedJoinHandle<'scope, T>),
    /// Value that the current thread has computed.
    Value(T),
}

impl<'scope, T: Send + 'scope> ParallelValue<'scope, T> {
    /// Starts a thread that computes the value. If no thread can be started, computes the value in the current
    /// thread.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        compute: impl FnOnce() -> T + Clone + Send + 'scope,
    ) -> Self {
        match Builder::new().spawn_scoped(scope, compute.clone()) {
            Ok(thread) => Self::Thread(thread),
            Err(_) => Self::Value(compute()),
        }
    }

    /// Waits for the value. A panic of the thread continues in the current thread.
    pub fn join(self) -> T {
        match self {
            Self::Thread(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Self::Value(value) => value,
        }
    }
}
