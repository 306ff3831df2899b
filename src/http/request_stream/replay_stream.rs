//! State of an HTTP/1.1 connection between its requests.

use crate::http::ConnectionReuse;
use bytes::BytesMut;
use parking_lot::Mutex;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State that the requests of one HTTP/1.1 connection share with the guard.
#[derive(Debug)]
pub struct ReplayStream {
    stop: ShutdownWatch,
    /// Flushes do nothing: more is written at once.
    pub(super) corked: AtomicBool,
    /// The gateway has the request. Before that only Pingora writes, to refuse a head that the guard accepts; the guard
    /// refuses it instead, in the dialect of the caller.
    pub(super) admitted: AtomicBool,
    pub(super) returned: Mutex<Option<ReturnedStream>>,
    after: Mutex<ConnectionReuse>,
}

/// The connection as a request leaves it.
#[derive(Debug)]
pub(crate) struct ReturnedStream {
    pub(crate) stream: Stream,
    /// Bytes behind the request.
    pub(crate) ahead: BytesMut,
    /// The request was read to its end, and nothing behind it was dropped.
    pub(crate) reusable: bool,
}

impl ReplayStream {
    pub(crate) fn new(stop: ShutdownWatch) -> Arc<Self> {
        let (corked, admitted) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self {
            stop,
            corked,
            admitted,
            returned: Mutex::default(),
            after: Mutex::new(ConnectionReuse::Cut),
        })
    }

    /// Notes that the gateway has the request: what is written from now on is sent.
    pub fn admit(&self) {
        self.admitted.store(true, Ordering::Relaxed);
    }

    /// Ends a request; returns false if the gateway never had it.
    pub(crate) fn take_admitted(&self) -> bool {
        self.admitted.swap(false, Ordering::Relaxed)
    }

    /// Returns true while the process stops: a response that begins now is the last of the connection.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Holds back what is written until the next flush after `corked` is false.
    pub fn cork(&self, corked: bool) {
        self.corked.store(corked, Ordering::Relaxed);
    }

    /// Notes what becomes of the connection after the request.
    pub fn set_after(&self, after: ConnectionReuse) {
        *self.after.lock() = after;
    }

    /// Takes the note of [`ReplayStream::set_after`]; [`ConnectionReuse::Cut`] if there is none.
    pub(crate) fn take_after(&self) -> ConnectionReuse {
        std::mem::replace(&mut *self.after.lock(), ConnectionReuse::Cut)
    }

    pub(crate) fn take_returned(&self) -> Option<ReturnedStream> {
        self.returned.lock().take()
    }
}
