//! Limits on requests and on concurrent work.

use std::time::Duration;

/// Limits on the size and duration of client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Maximum number of client connections.
    pub connections: usize,
    /// Maximum number of connections of one client. Clients on this machine have no such limit.
    pub connections_per_client: usize,
    /// Maximum size of a request head, in bytes.
    pub head: usize,
    /// Maximum number of header fields in a request.
    pub head_fields: usize,
    /// Maximum size of a request target, in bytes.
    pub target: usize,
    /// Maximum number of concurrent streams of an HTTP/2 connection.
    pub h2_streams: u32,
    /// Maximum number of HTTP/2 streams that a client may reset on a connection. Each answered stream compensates for
    /// one reset.
    pub h2_resets: usize,
    /// Maximum number of frames without data per second of an HTTP/2 connection. Responses raise the limit, because a
    /// client sends such frames for the bytes that it receives.
    pub h2_frames: usize,
    /// Maximum size of a JSON body, in bytes.
    pub json_body: usize,
    /// Maximum size of a form with audio, in bytes.
    pub audio_body: usize,
    /// Maximum nesting depth of a JSON body.
    pub json_depth: usize,
    /// Timeout for receiving a complete request head, from its first byte (HTTP/1.1).
    pub request_head: Duration,
    /// Maximum time without data while a request body is received.
    pub body_idle: Duration,
    /// Timeout for receiving a complete request body.
    pub body: Duration,
    /// Timeout for receiving a complete form with audio or a file.
    pub upload: Duration,
    /// Timeout of an idle client connection.
    pub keep_alive: Duration,
    /// Timeout of a blocked write to a client, and of sent data without acknowledgement.
    pub client_write: Duration,
    /// Interval of the comments that a stream sends while it waits for data, as keep-alive.
    pub heartbeat: Duration,
    /// Maximum size of an unstreamed answer of a provider, in bytes.
    pub response_buffer: usize,
}

/// Overload protection: limits on concurrent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadSettings {
    /// Maximum number of requests in flight.
    pub requests: usize,
    /// Maximum memory for request bodies and unstreamed answers, in bytes.
    pub bytes: usize,
    /// Maximum number of waiting requests in each queue: that of the gateway, that of token counts of long prompts,
    /// and that of each provider.
    pub queue: usize,
    /// Maximum time that a request waits for capacity before it is refused.
    pub wait: Duration,
    /// Maximum number of long prompts whose tokens are counted at the same time.
    pub counting: usize,
}
