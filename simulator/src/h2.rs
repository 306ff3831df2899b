//! HTTP/2 server: one task for each stream of a connection.

use super::http_request::{HttpRequest, MAX_BODY_BYTES};
use super::provider::SimulatedProvider;
use super::response_writer::ResponseWriter;
use super::script::ScriptHead;
use ::h2::server::{Builder, SendResponse};
use ::h2::{Reason, RecvStream, SendStream};
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Flow control window of a stream, in bytes; so large that it blocks no test.
const STREAM_WINDOW: u32 = 8 << 20;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Maximum number of concurrent streams of a connection.
const STREAMS: u32 = 1024;

/// Serves a connection until either side closes it.
pub(super) async fn serve<S>(stream: S, provider: Arc<SimulatedProvider>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shaken = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .handshake::<_, Bytes>(stream)
        .await;
    let Ok(mut connection) = shaken else { return };
    let mut exchanges = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let provider = provider.clone();
        exchanges.spawn(async move { exchange(request, respond, &provider).await });
        while exchanges.try_join_next().is_some() {}
    }
}

async fn exchange(
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
    provider: &SimulatedProvider,
) {
    let (head, mut incoming) = request.into_parts();
    let Some(body) = read(&mut incoming).await else { return };
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let request =
        HttpRequest { method: head.method.to_string(), path, h2: true, headers: head.headers, body };
    let mut line = Http2Writer { respond, body: None, head: None, queued: BytesMut::new() };
    provider.serve(request, &mut line).await;
}

async fn read(incoming: &mut RecvStream) -> Option<Bytes> {
    let mut body = BytesMut::new();
    while let Some(part) = incoming.data().await {
        let part = part.ok()?;
        if body.len() + part.len() > MAX_BODY_BYTES {
            return None;
        }
        incoming.flow_control().release_capacity(part.len()).ok()?;
        body.extend_from_slice(&part);
    }
    Some(body.freeze())
}

/// Response stream of one request.
struct Http2Writer {
    respond: SendResponse<Bytes>,
    body: Option<SendStream<Bytes>>,
    /// Response head that is queued but not sent yet.
    head: Option<Response<()>>,
    queued: BytesMut,
}

fn to_io_error(error: ::h2::Error) -> io::Error {
    io::Error::other(error)
}

impl Http2Writer {
    /// Sends the head and the queued body as the peer's window allows, until all is sent.
    async fn send(&mut self, end: bool) -> io::Result<()> {
        if let Some(head) = self.head.take() {
            self.body = Some(self.respond.send_response(head, false).map_err(to_io_error)?);
        }
        let Some(stream) = self.body.as_mut() else { return Ok(()) };
        while !self.queued.is_empty() {
            stream.reserve_capacity(self.queued.len());
            let capacity = match poll_fn(|context| stream.poll_capacity(context)).await {
                Some(capacity) => capacity.map_err(to_io_error)?,
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            let part = self.queued.split_to(capacity.min(self.queued.len())).freeze();
            let last = end && self.queued.is_empty();
            stream.send_data(part, last).map_err(to_io_error)?;
            if last {
                return Ok(());
            }
        }
        if end { stream.send_data(Bytes::new(), true).map_err(to_io_error) } else { Ok(()) }
    }
}

impl ResponseWriter for Http2Writer {
    fn queue_head(&mut self, head: &ScriptHead) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::OK);
        for (name, value) in &head.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                response.headers_mut().append(HeaderName::from_static(name), value);
            }
        }
        if let Some(length) = head.length {
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.head = Some(response);
    }

    fn queue_bytes(&mut self, bytes: &[u8]) {
        self.queued.extend_from_slice(bytes);
    }

    fn queued(&self) -> usize {
        self.queued.len()
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.send(false).await
    }

    async fn flush_slowly(&mut self, pause: Duration) -> io::Result<()> {
        // In HTTP/2 the head is one frame, which cannot be sent byte by byte. It is delayed by the time that 256
        // single bytes would take.
        sleep(pause.saturating_mul(256)).await;
        self.send(false).await
    }

    async fn end(&mut self) -> io::Result<()> {
        self.send(true).await
    }

    async fn abort(&mut self) {
        // A reset discards data that is still queued; this pause lets the flushed data be sent before it.
        sleep(Duration::from_millis(2)).await;
        match self.body.as_mut() {
            Some(body) => body.send_reset(Reason::INTERNAL_ERROR),
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    async fn wait_for_disconnect(&mut self) {
        let reset = match self.body.as_mut() {
            Some(body) => poll_fn(|context| body.poll_reset(context)).await,
            None => poll_fn(|context| self.respond.poll_reset(context)).await,
        };
        drop(reset);
    }
}
