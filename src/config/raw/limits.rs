//! `[limits]` as users write it: what a client may send, and how long it may take.

use super::{Size, Span, mib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a client may send, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Limits {
    /// Most client connections; more are closed as they come.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Most connections of one client: an IPv4 address, or an IPv6 network of 64 bits.
    #[schemars(range(min = 1))]
    pub connections_per_client: u32,
    /// Largest request head; more is refused with 431.
    pub head: Size,
    /// Most header fields of a request; more are refused with 431.
    #[schemars(range(min = 8, max = 250))]
    pub head_fields: u32,
    /// Longest request target; more is refused with 414.
    pub target: Size,
    /// Most streams that an HTTP/2 connection has at a time.
    #[schemars(range(min = 1, max = 10_000))]
    pub h2_streams: u32,
    /// Most streams of an HTTP/2 connection that were given up, less those that were answered.
    pub h2_resets: u32,
    /// Most frames in a second that carry nothing, of an HTTP/2 connection.
    #[schemars(range(min = 100))]
    pub h2_frames: u32,
    /// Largest JSON body; more is refused with 413.
    pub json_body: Size,
    /// Largest form with audio; more is refused with 413.
    pub audio_body: Size,
    /// Deepest nesting of a JSON body; more is refused with 400.
    #[schemars(range(min = 8, max = 1024))]
    pub json_depth: u32,
    /// Time for a whole request head.
    pub request_head: Span,
    /// Longest silence within a request body.
    pub body_idle: Span,
    /// Time for a whole request body.
    pub body: Span,
    /// Time for a whole form with audio or a file.
    pub upload: Span,
    /// How long an idle client connection stays open.
    pub keep_alive: Span,
    /// Longest time a client may leave a write waiting, or what was sent, probes too, unacknowledged.
    pub client_write: Span,
    /// Silence after which a waiting stream gets a comment, so that no proxy on the way gives up.
    pub heartbeat: Span,
    /// Largest unstreamed answer of a provider.
    pub response_buffer: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_client: 4_096,
            head: Size(32 << 10),
            head_fields: 100,
            target: Size(8 << 10),
            h2_streams: 100,
            h2_resets: 200,
            h2_frames: 2_000,
            json_body: mib(32),
            audio_body: mib(200),
            json_depth: 128,
            request_head: Span::seconds(10),
            body_idle: Span::seconds(15),
            body: Span::seconds(300),
            upload: Span::seconds(1800),
            keep_alive: Span::seconds(75),
            client_write: Span::seconds(30),
            heartbeat: Span::seconds(15),
            response_buffer: mib(64),
        }
    }
}
