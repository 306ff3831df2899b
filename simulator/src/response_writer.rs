//! Writer of a response to the client, implemented for each HTTP version.

use super::script::ScriptHead;
use std::future::Future;
use std::io;
use std::time::Duration;

/// Writer of a response.
pub(super) trait ResponseWriter: Send {
    /// Queues the head.
    fn queue_head(&mut self, head: &ScriptHead);

    /// Queues bytes of the body.
    fn queue_bytes(&mut self, bytes: &[u8]);

    /// Returns the number of queued bytes.
    fn queued(&self) -> usize;

    /// Sends the queued bytes.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the queued bytes one by one, with a pause after each, if the HTTP version allows this.
    fn flush_slowly(&mut self, pause: Duration) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the queued bytes and ends the body.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Cuts the response off. Bytes that were already sent are not affected.
    fn abort(&mut self) -> impl Future<Output = ()> + Send;

    /// Completes when the client has disconnected. The future may be dropped; the method can then be called again.
    fn wait_for_disconnect(&mut self) -> impl Future<Output = ()> + Send;
}
