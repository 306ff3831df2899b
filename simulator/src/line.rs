//! The way back to the client, whatever HTTP version it is.

use super::script::Head;
use std::future::Future;
use std::io;
use std::time::Duration;

/// Where an answer is written.
pub(super) trait Line: Send {
    /// Queues the head.
    fn head(&mut self, head: &Head);

    /// Queues bytes of the body.
    fn put(&mut self, bytes: &[u8]);

    /// Bytes that are queued.
    fn queued(&self) -> usize;

    /// Sends what is queued.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends what is queued a byte at a time, where bytes are its own to send.
    fn drip(&mut self, pause: Duration) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends what is queued and ends the body.
    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Breaks off. What was sent stays sent.
    fn cut(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns when the client has left. May be dropped and called again.
    fn gone(&mut self) -> impl Future<Output = ()> + Send;
}
