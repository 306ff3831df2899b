//! The origin of a request: the connection, the stream or the batch line that it came from.

use crate::http::After;
use crate::http::receive_window::Body;
use crate::http::request_stream::Connection;
use crate::proxy::downstream::Line;
use parking_lot::Mutex;
use penstock_contract::Refusal;
use std::sync::Arc;

/// Origin of a request.
#[derive(Clone)]
pub enum RequestOrigin {
    /// A connection over HTTP/1.1 or 1.0.
    Http1(Arc<Connection>),
    /// A stream of a connection over HTTP/2.
    Http2(Arc<Http2Stream>),
    /// A line of a batch, or one choice of a request for several.
    Line(Arc<Line>),
}

/// State that an HTTP/2 stream shares with the guard.
pub struct Http2Stream {
    /// Share of the body in the window of the connection.
    body: Mutex<Body>,
    /// Refusal of a head that Pingora accepts.
    refusal: Option<Refusal>,
    given_up: Mutex<bool>,
}

impl Http2Stream {
    /// A stream with its share of the connection's window, and the refusal of its head if that is wrong.
    #[must_use]
    pub fn new(body: Body, refusal: Option<Refusal>) -> Arc<Self> {
        Arc::new(Self { body: Mutex::new(body), refusal, given_up: Mutex::new(false) })
    }

    /// Widens the window of the connection while a long body is read.
    pub fn reads(&self, read: bool) {
        self.body.lock().reads(read);
    }

    /// Notes whether the client reset the stream.
    pub fn set_given_up(&self, given_up: bool) {
        *self.given_up.lock() = given_up;
    }

    /// Returns true if the client reset the stream.
    #[must_use]
    pub fn was_given_up(&self) -> bool {
        *self.given_up.lock()
    }
}

impl RequestOrigin {
    /// The refusal of a head that Pingora accepts.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Http2(stream) => stream.refusal.as_ref(),
            Self::Http1(_) | Self::Line(_) => None,
        }
    }

    /// The line of a batch.
    #[must_use]
    pub const fn line(&self) -> Option<&Arc<Line>> {
        match self {
            Self::Line(line) => Some(line),
            Self::Http1(_) | Self::Http2(_) => None,
        }
    }

    /// Notes what becomes of the connection.
    pub fn set_after(&self, after: After) {
        if let Self::Http1(connection) = self {
            connection.set_after(after);
        }
    }
}
