//! Source of a request: its connection, HTTP/2 stream, batch line or page.

use super::PlaygroundRequest;
use crate::auth::key_cache::Principal;
use crate::http::ConnectionReuse;
use crate::http::receive_window::ActiveBodyGuard;
use crate::http::request_stream::Http1ConnectionState;
use crate::proxy::downstream::LineDownstream;
use parking_lot::Mutex;
use penstock_core::ApiError;
use std::sync::Arc;
use tokio::sync::Notify;

/// Source of a request: a connection, an HTTP/2 stream, a line without a socket, or a console page.
#[derive(Clone)]
pub enum RequestSource {
    /// Connection over HTTP/1.1 or 1.0.
    Http1(Arc<Http1ConnectionState>),
    /// Stream of an HTTP/2 connection.
    Http2(Arc<DownstreamHttp2Stream>),
    /// Line of a batch, background response, or one choice of a request for several choices.
    Line(Arc<LineDownstream>),
    /// Request of a page of the console.
    Playground(Arc<PlaygroundRequest>),
}

/// State of the client's HTTP/2 stream, shared by the proxy and the connection guard.
pub struct DownstreamHttp2Stream {
    /// Guard that counts the body of the stream as being read. Each body that is being read widens the receive window
    /// of the connection.
    body: Mutex<ActiveBodyGuard>,
    /// Refusal by the guard of a request head that Pingora would accept.
    refusal: Option<ApiError>,
    reset_by_client: Mutex<bool>,
    /// Signal that the exchange has ended, although the stream still receives the rest of its request body.
    exchange_ended: Notify,
}

impl DownstreamHttp2Stream {
    /// Creates the state of a stream with the guard of its body. `refusal` is set if its request head is invalid.
    #[must_use]
    pub fn new(body: ActiveBodyGuard, refusal: Option<ApiError>) -> Arc<Self> {
        Arc::new(Self {
            body: Mutex::new(body),
            refusal,
            reset_by_client: Mutex::new(false),
            exchange_ended: Notify::new(),
        })
    }

    /// Ends the exchange of a stream that still receives the rest of its request body.
    pub fn end_exchange(&self) {
        self.exchange_ended.notify_one();
    }

    /// Waits for [`DownstreamHttp2Stream::end_exchange`].
    pub async fn wait_for_exchange_end(&self) {
        self.exchange_ended.notified().await;
    }

    /// Marks the long body of the stream as being read (`true`) or not (`false`). While it is read, the receive window
    /// of the connection is wider.
    pub fn set_reading(&self, is_reading: bool) {
        self.body.lock().set_reading(is_reading);
    }

    /// Records that the client reset the stream, or that it did not.
    pub fn set_reset_by_client(&self, given_up: bool) {
        *self.reset_by_client.lock() = given_up;
    }

    /// Returns true if the client reset the stream.
    #[must_use]
    pub fn was_reset_by_client(&self) -> bool {
        *self.reset_by_client.lock()
    }
}

impl RequestSource {
    /// Returns the refusal of an HTTP/2 request whose head Pingora accepts and the guard does not.
    #[must_use]
    pub fn head_refusal(&self) -> Option<&ApiError> {
        match self {
            Self::Http2(stream) => stream.refusal.as_ref(),
            Self::Http1(_) | Self::Line(_) | Self::Playground(_) => None,
        }
    }

    /// Returns the batch line, background response or single choice; `None` for any other source.
    #[must_use]
    pub const fn as_in_process_line(&self) -> Option<&Arc<LineDownstream>> {
        match self {
            Self::Line(line) => Some(line),
            Self::Http1(_) | Self::Http2(_) | Self::Playground(_) => None,
        }
    }

    /// Returns the request if a page of the console sent it.
    #[must_use]
    pub const fn as_playground_request(&self) -> Option<&Arc<PlaygroundRequest>> {
        match self {
            Self::Playground(local) => Some(local),
            Self::Http1(_) | Self::Http2(_) | Self::Line(_) => None,
        }
    }

    /// Returns the principal of a batch line, of a background response or of a page's request, which have no
    /// credentials; `None` for one choice of a request, and for a request with a socket.
    #[must_use]
    pub fn principal(&self) -> Option<&Arc<Principal>> {
        match self {
            Self::Line(line) => line.principal(),
            Self::Playground(local) => Some(local.principal()),
            Self::Http1(_) | Self::Http2(_) => None,
        }
    }

    /// Sets the use of the HTTP/1.1 connection after the exchange. Other origins ignore it.
    pub fn set_connection_reuse(&self, after: ConnectionReuse) {
        if let Self::Http1(connection) = self {
            connection.set_connection_reuse(after);
        }
    }
}
