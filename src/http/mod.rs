//! HTTP helpers that the server and the proxy share: responses, TLS settings, body framing, buffers.

pub mod buffer_pool;
pub mod receive_window;
pub mod request_stream;
pub mod tls;

/// What a client may send of a body before it is read: with the default of 64 KiB a long upload waits for a round trip
/// at every window.
pub const STREAM_WINDOW: u32 = 512 << 10;

/// What may become of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It may serve another.
    Reuse,
    /// It ends, with the answer that was written.
    End,
    /// The same, and the client was told that it is too slow: nothing of it is worth another wait.
    Late,
    /// It ends without one: the answer was not written to its end.
    Cut,
}
