//! Guard of an HTTP/1.1 connection. It reads each request head within its limits and its deadline, refuses an ambiguous
//! head, and passes the bytes of the head to Pingora's session, which parses and serves the request.

use super::bad_request::{RefusalForm, refuse_head};
use super::{PublicServer, drain_grace, linger_close};
use crate::config::settings::LimitSettings;
use crate::http::ConnectionReuse;
use crate::http::request_stream::{Http1ConnectionState, Http1RequestStream, RequestFraming};
use crate::net::buffered_stream::BufferedSocket;
use crate::net::executor;
use crate::proxy::RequestSource;
use crate::time::clock;
use bytes::{Buf, BytesMut};
use penstock_http_wire::http1_request::{HeadError, HeadLimits, HeadParser, LeadingEmptyLines};
use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

/// Initial size of the read buffer, bytes: most heads fit.
const INITIAL_BUFFER: usize = 4096;
/// Minimum spare capacity of the read buffer, bytes; below it the buffer grows.
const MIN_SPARE: usize = 1024;

/// Outcome of reading a head. The bytes of an incomplete head remain in the buffer.
enum HeadRead {
    /// Complete head, with its framing, and the form of its refusal if Pingora refuses it.
    Complete(RequestFraming, RefusalForm),
    /// Request head that was refused.
    Refused(HeadError),
    /// Head that did not arrive in time.
    Late,
    /// Connection that is closed, or was idle for too long.
    Closed,
}

/// Refuses the request that begins with `head`. If `error` is `None`, the head did not arrive in time.
async fn refuse(server: &Arc<PublicServer>, stream: Stream, head: &[u8], error: Option<HeadError>) {
    refuse_head(server, stream, &RefusalForm::from_invalid_head(head), error).await;
}

/// Serves the requests of a connection one after another, until the connection is closed.
pub(super) async fn serve_connection(
    server: &Arc<PublicServer>,
    mut stream: Stream,
    mut stop: ShutdownWatch,
) {
    let connection = Http1ConnectionState::new(stop.clone());
    let mut buffer = BytesMut::new();
    let mut reused = false;
    loop {
        let limits = server.client_limits();
        let (framing, form) = match read_head(&mut stream, &mut buffer, &limits, reused, &mut stop).await {
            HeadRead::Complete(framing, form) => (framing, form),
            HeadRead::Closed => return,
            HeadRead::Refused(error) => return refuse(server, stream, &buffer, Some(error)).await,
            HeadRead::Late => return refuse(server, stream, &buffer, None).await,
        };
        let may_reuse = run_proxy(server, &connection, stream, framing, buffer, &stop).await;
        let (Some(returned), after) = (connection.take_returned_stream(), connection.take_connection_reuse())
        else {
            return;
        };
        stream = returned.stream;
        if !connection.take_request_received() {
            let error = Some(HeadError::Malformed("its target or its Host is not valid"));
            return refuse_head(server, stream, &form, error).await;
        }
        match after {
            // The connection closes before the end that the framing of the response requires, so the client notices
            // that the response was cut. Only a response to HTTP/1.0 in clear text has no such end.
            ConnectionReuse::Abort => return,
            ConnectionReuse::Reuse if may_reuse && returned.reusable => {}
            _ if returned.reusable && returned.prefetched.is_empty() => return stream.shutdown().await,
            _ => return linger_close(stream, after == ConnectionReuse::EndAfterTimeout).await,
        }
        buffer = returned.prefetched;
        reused = true;
        // Between two requests, only the socket is bound to this thread, so the connection can migrate to another
        // thread here.
        if buffer.is_empty()
            && BufferedSocket::is_movable_between_threads(&stream)
            && executor::try_migrate_connection().await
        {
            let Ok(moved) = BufferedSocket::register_moved(stream) else { return };
            stream = moved;
        }
    }
}

/// Serves one request through Pingora's proxy. Returns true if the session allows another request on the connection.
async fn run_proxy(
    server: &PublicServer,
    connection: &Arc<Http1ConnectionState>,
    stream: Stream,
    framing: RequestFraming,
    received: BytesMut,
    stop: &ShutdownWatch,
) -> bool {
    let (stream, prefix) = Http1RequestStream::new(stream, framing, received, connection.clone());
    let mut session = ServerSession::new_http1(Box::new(stream));
    session.set_pipelined_prefix(prefix);
    session.set_connection_user_context(Some(Box::new(RequestSource::Http1(connection.clone()))));
    let _open = server.app.track_exchange();
    server.proxy.process_new_http(session, stop).await.is_some()
}

/// Returns the outcome of a complete head of this size.
fn complete_head(bytes: &[u8], size: usize, scan: &HeadParser) -> HeadRead {
    let framing = RequestFraming { head: size, body: scan.body_length(), allows_interim: !scan.is_http10() };
    HeadRead::Complete(framing, RefusalForm::from_parser(bytes, scan))
}

/// Reads the head of the next request before its deadline. On a reused connection, the keep-alive timeout applies until
/// the first byte arrives, and then the head timeout.
async fn read_head(
    stream: &mut Stream,
    buffer: &mut BytesMut,
    limits: &LimitSettings,
    reused: bool,
    stop: &mut ShutdownWatch,
) -> HeadRead {
    let head_limits = HeadLimits { bytes: limits.head, target: limits.target, fields: limits.head_fields };
    let mut deadline = clock::cached_now() + if reused { limits.keep_alive } else { limits.request_head };
    let (mut scan, mut lines) = (HeadParser::default(), LeadingEmptyLines::default());
    buffer.advance(lines.ignored_prefix_length(buffer));
    // The buffer has the first bytes of a pipelined request.
    if !buffer.is_empty() {
        deadline = clock::cached_now() + limits.request_head;
        match scan.push(buffer, head_limits) {
            Ok(Some(size)) => return complete_head(buffer, size, &scan),
            Ok(None) => {}
            Err(error) => return HeadRead::Refused(error),
        }
    }
    loop {
        let begun = !buffer.is_empty();
        if buffer.capacity() - buffer.len() < MIN_SPARE {
            buffer.reserve(INITIAL_BUFFER);
        }
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline.into(), stream.read_buf(buffer)) => read,
            // An idle connection ends when the process stops; a request that has begun is served.
            () = drain_grace(stop), if reused && !begun => return HeadRead::Closed,
        };
        let read = match read {
            Ok(Ok(1..)) => {
                let ignored = lines.ignored_prefix_length(buffer);
                if ignored > 0 {
                    buffer.advance(ignored);
                    scan = HeadParser::default();
                }
                // A connection on which only an empty line has arrived is still idle.
                if buffer.is_empty() {
                    continue;
                }
                scan.push(buffer, head_limits)
            }
            Err(_) if begun => return HeadRead::Late,
            _ => return HeadRead::Closed,
        };
        match read {
            Ok(Some(size)) => return complete_head(buffer, size, &scan),
            Ok(None) if begun => {}
            // An idle connection may wait longer for its next head than a head may take to arrive.
            Ok(None) => deadline = clock::cached_now() + limits.request_head,
            Err(error) => return HeadRead::Refused(error),
        }
    }
}
