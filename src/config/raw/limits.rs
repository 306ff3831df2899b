//! `[limits]` as written in a configuration: limits on the size and duration of client requests.

use super::{ByteSize, NonZeroDuration, mib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits on the size and duration of client requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct LimitsConfig {
    /// Maximum number of client connections; more are closed on arrival.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Maximum number of connections of one client: an IPv4 address, or an IPv6 network of 64 bits. A loopback address
    /// has no limit of its own.
    #[schemars(range(min = 1))]
    pub connections_per_client: u32,
    /// Maximum size of a request head; a larger one is refused with 431.
    pub head: ByteSize,
    /// Maximum number of header fields in a request; more are refused with 431.
    #[schemars(range(min = 8, max = 250))]
    pub head_fields: u32,
    /// Maximum size of a request target; a longer one is refused with 414.
    pub target: ByteSize,
    /// Maximum number of concurrent streams of an HTTP/2 connection.
    #[schemars(range(min = 1, max = 10_000))]
    pub h2_streams: u32,
    /// Maximum number of reset streams of an HTTP/2 connection, minus those that were answered.
    pub h2_resets: u32,
    /// Maximum number of frames without data per second of an HTTP/2 connection, minus those that belong to answers.
    #[schemars(range(min = 100))]
    pub h2_frames: u32,
    /// Maximum size of a JSON body; a larger one is refused with 413.
    pub json_body: ByteSize,
    /// Maximum size of a form with audio; a larger one is refused with 413.
    pub audio_body: ByteSize,
    /// Maximum nesting depth of a JSON body; more is refused with 400.
    #[schemars(range(min = 8, max = 1024))]
    pub json_depth: u32,
    /// Timeout of a complete request head.
    pub request_head: NonZeroDuration,
    /// Timeout without data within a request body.
    pub body_idle: NonZeroDuration,
    /// Timeout of a complete request body.
    pub body: NonZeroDuration,
    /// Timeout of a complete form with audio or a file.
    pub upload: NonZeroDuration,
    /// Timeout of an idle client connection.
    pub keep_alive: NonZeroDuration,
    /// Timeout of a write to a client: for a blocked write, and for sent data (also keep-alive probes) without
    /// acknowledgement.
    pub client_write: NonZeroDuration,
    /// Interval of comments in a stream that waits, so that no proxy between client and gateway times out.
    pub heartbeat: NonZeroDuration,
    /// Maximum size of an unstreamed answer of a provider.
    pub response_buffer: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_client: 4_096,
            head: ByteSize(32 << 10),
            head_fields: 100,
            target: ByteSize(8 << 10),
            h2_streams: 100,
            h2_resets: 200,
            h2_frames: 2_000,
            json_body: mib(32),
            audio_body: mib(200),
            json_depth: 128,
            request_head: NonZeroDuration::from_secs(10),
            body_idle: NonZeroDuration::from_secs(15),
            body: NonZeroDuration::from_secs(300),
            upload: NonZeroDuration::from_secs(1800),
            keep_alive: NonZeroDuration::from_secs(75),
            client_write: NonZeroDuration::from_secs(30),
            heartbeat: NonZeroDuration::from_secs(15),
            response_buffer: mib(64),
        }
    }
}
