//! State of an HTTP/1.1 connection that outlives a single request.

use crate::http::ConnectionReuse;
use bytes::BytesMut;
use parking_lot::Mutex;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

/// State that the request streams of one HTTP/1.1 connection share with the connection guard.
#[derive(Debug)]
pub struct Http1ConnectionState {
    stop: ShutdownWatch,
    /// True if flushes are skipped, because more bytes follow immediately.
    pub(super) corked: AtomicBool,
    /// True once the proxy has received the request. Before that, all writes come from Pingora, which refuses some
    /// heads that the guard accepts. These writes are dropped, and the guard itself refuses the request in the
    /// dialect of the caller.
    pub(super) admitted: AtomicBool,
    pub(super) returned: Mutex<Option<ReturnedStream>>,
    /// True if bytes after the request were discarded, so that the connection cannot serve another request.
    pub(super) discarded: AtomicBool,
    /// Number of response bytes that the socket has accepted, over all requests of the connection.
    pub(super) sent: AtomicUsize,
    /// Number of response bytes that sessions have written, over all requests of the connection: those that the socket
    /// has accepted, and those that are buffered.
    pub(super) written: AtomicUsize,
    /// Bytes of the request body that arrived together with the head.
    pub(super) body_prefix: AtomicUsize,
    /// Buffer for body bytes during a poll of [`Http1ConnectionState::poll_body_into`].
    pub(super) body_target: Mutex<Option<BytesMut>>,
    after: Mutex<ConnectionReuse>,
}

/// Connection that a request stream gives back after its request.
#[derive(Debug)]
pub(crate) struct ReturnedStream {
    pub(crate) stream: Stream,
    /// Received bytes that follow the request.
    pub(crate) prefetched: BytesMut,
    /// True if the connection can serve another request: the request was read to its end, and no byte after it was
    /// dropped.
    pub(crate) reusable: bool,
}

impl Http1ConnectionState {
    /// Creates the state of a new connection; once `stop` signals a shutdown, its next response is its last.
    pub(crate) fn new(stop: ShutdownWatch) -> Arc<Self> {
        Arc::new(Self {
            stop,
            corked: AtomicBool::new(false),
            admitted: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            returned: Mutex::default(),
            body_prefix: AtomicUsize::new(0),
            body_target: Mutex::default(),
            after: Mutex::new(ConnectionReuse::Abort),
        })
    }

    /// Records that the proxy has received the request, so that writes are sent from now on.
    pub fn set_request_received(&self) {
        self.admitted.store(true, Ordering::Relaxed);
    }

    /// Resets the flag that [`Http1ConnectionState::set_request_received`] sets, at the end of a request. Returns false
    /// if the proxy did not receive the request.
    pub(crate) fn take_request_received(&self) -> bool {
        self.admitted.swap(false, Ordering::Relaxed)
    }

    /// Returns true if the next response is the last of its connection: the process shuts down, or bytes after the
    /// request were discarded.
    pub fn has_last_response(&self) -> bool {
        *self.stop.borrow() || self.discarded.load(Ordering::Relaxed)
    }

    /// Returns the number of response bytes that the socket has accepted, over all requests of the connection.
    pub fn sent_bytes(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of response bytes that the socket has accepted or that are buffered, over all requests of the
    /// connection.
    pub fn written_bytes(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Corks or uncorks the stream: while corked, writes are buffered and flushes are skipped.
    pub fn cork(&self, corked: bool) {
        self.corked.store(corked, Ordering::Relaxed);
    }

    /// Returns the number of body bytes that arrived together with the head of the current request.
    pub fn body_prefix_length(&self) -> usize {
        self.body_prefix.load(Ordering::Relaxed)
    }

    /// Calls `poll`, which polls a read of the stream. During the call, body bytes of a known length are read
    /// directly into `body`. Ready with `None` if bytes have arrived. Ready with the result of `poll` if the read has
    /// ended, for instance because the body was truncated.
    pub fn poll_body_into<T>(&self, body: &mut BytesMut, poll: impl FnOnce() -> Poll<T>) -> Poll<Option<T>> {
        let before = body.len();
        *self.body_target.lock() = Some(std::mem::take(body));
        let ended = poll();
        *body = self.body_target.lock().take().unwrap_or_default();
        match ended {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if body.len() > before => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sets the use of the connection after the request.
    pub fn set_connection_reuse(&self, after: ConnectionReuse) {
        *self.after.lock() = after;
    }

    /// Returns the value of [`Http1ConnectionState::set_connection_reuse`] and resets it to [`ConnectionReuse::Abort`],
    /// which is also the value if none was set.
    pub(crate) fn take_connection_reuse(&self) -> ConnectionReuse {
        std::mem::replace(&mut *self.after.lock(), ConnectionReuse::Abort)
    }

    /// Removes and returns the connection that the last request stream gave back.
    pub(crate) fn take_returned_stream(&self) -> Option<ReturnedStream> {
        self.returned.lock().take()
    }
}
