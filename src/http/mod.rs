//! HTTP helpers of the server, the proxy and the admin API: TLS of listeners, request framing, body buffers, receive
//! windows, route lookup, errors of several fields.

pub mod buffer_pool;
pub mod field_errors;
pub mod query_names;
pub mod receive_window;
pub mod request_stream;
pub mod route_table;
pub mod tls;

use std::time::Duration;

/// Maximum number of bytes of a refused body that are read and discarded, so that its client receives the refusal.
pub(crate) const MAX_LINGER_BYTES: usize = 64 << 20;
/// Time limit for discarding a refused body.
pub(crate) const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle timeout while a refused body is discarded. It is also the time limit for a client that was refused because it
/// was slow.
pub(crate) const LINGER_IDLE: Duration = Duration::from_secs(2);

/// Receive window of an HTTP/2 stream: body bytes that a client may send before the gateway has read them. With the
/// default window of 64 KiB, a long upload would have to wait for one round trip per 64 KiB.
pub const H2_STREAM_WINDOW_BYTES: u32 = 512 << 10;

/// Use of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// The connection may serve another request.
    Reuse,
    /// The connection ends after the response.
    End,
    /// The connection ends after a response to a timeout: a client that was too slow gets little time to read the
    /// response.
    EndAfterTimeout,
    /// The connection ends without a complete response.
    Abort,
}
