//! Bridge from blocking callers to the asynchronous client, which runs on its own thread.

use super::error::BucketError;
use std::future::Future;
use std::io::Result;
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

/// Asynchronous runtime with its own thread, on which the requests to a bucket run.
#[derive(Debug)]
pub struct BucketRuntime {
    /// Runtime of the thread; `None` only while this value is being dropped.
    runtime: Option<Runtime>,
}

impl BucketRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn new() -> Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("bucket").enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs a call and blocks until it ends. The caller may be on any thread, also on a thread of another runtime.
    ///
    /// # Errors
    /// Returns the error of the call, and `Unreachable` if it panicked.
    pub fn block_on<T: Send + 'static>(
        &self,
        call: impl Future<Output = std::result::Result<T, BucketError>> + Send + 'static,
    ) -> std::result::Result<T, BucketError> {
        let ended = || BucketError::Unreachable("its client has ended".to_owned());
        let (send, receive) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        runtime.spawn(async move {
            send.send(call.await).ok();
        });
        receive.recv().map_err(|_| ended())?
    }
}

impl Drop for BucketRuntime {
    fn drop(&mut self) {
        // A blocking drop would panic on a thread of another runtime, so the runtime is shut down in the background.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
