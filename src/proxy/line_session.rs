//! Pingora session of a request without a socket, such as a batch line or a request of the console. The body is known
//! from the start, and the response is stored instead of sent.

use super::{PlaygroundRequest, RequestSource};
use crate::proxy::downstream::LineDownstream;
use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method};
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::custom::CustomMessageWrite;
use pingora_core::protocols::http::custom::server::Session;
use pingora_core::protocols::http::{HttpTask, ServerSession};
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use std::sync::Arc;
use std::time::Duration;

/// Destination of the response to a request without a socket.
enum ResponseSink {
    Line(Arc<LineDownstream>),
    Local(Arc<PlaygroundRequest>),
}

impl ResponseSink {
    async fn push(&self, data: Bytes) -> std::io::Result<()> {
        match self {
            Self::Line(line) => line.push_response_piece(data).await,
            Self::Local(local) => local.push(&data),
        }
    }

    /// Waits until the batch or an interactive request ends the line, or until the user has closed the page.
    async fn closed(&self) {
        match self {
            Self::Line(line) => line.wait_for_cancel_or_recall().await,
            Self::Local(local) => local.wait_until_closed().await,
        }
    }
}

/// Session of a batch line, of one choice, or of a request that a page of the console sends.
pub struct InProcessSession {
    sink: ResponseSink,
    head: RequestHeader,
    body: Option<Bytes>,
    response: Option<Box<ResponseHeader>>,
    read: usize,
    sent: usize,
}

impl InProcessSession {
    /// Creates the session of a batch line that posts `body` to `path`.
    ///
    /// # Errors
    /// Returns an error if the path is not a request target.
    pub fn for_line(line: Arc<LineDownstream>, path: &str, body: Bytes) -> Result<ServerSession> {
        Self::post(RequestSource::Line(line.clone()), ResponseSink::Line(line), path, body)
    }

    /// Creates the session of a page of the console that posts `body` to `path`.
    ///
    /// # Errors
    /// Returns an error if the path is not a request target.
    pub fn for_playground(local: Arc<PlaygroundRequest>, path: &str, body: Bytes) -> Result<ServerSession> {
        Self::post(RequestSource::Playground(local.clone()), ResponseSink::Local(local), path, body)
    }

    fn post(source: RequestSource, sink: ResponseSink, path: &str, body: Bytes) -> Result<ServerSession> {
        let mut head = RequestHeader::build_no_case(Method::POST, path.as_bytes(), None)?;
        head.extensions_mut().insert(source);
        let body = Some(body).filter(|body| !body.is_empty());
        let session = Self { sink, head, body, response: None, read: 0, sent: 0 };
        Ok(ServerSession::new_custom(Box::new(session)))
    }

    /// Creates the session of one choice. Its request has already been parsed, together with the request for all
    /// choices.
    #[must_use]
    pub fn for_choice(line: Arc<LineDownstream>) -> ServerSession {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = Method::POST;
        let head = RequestHeader::from(parts);
        let sink = ResponseSink::Line(line);
        ServerSession::new_custom(Box::new(Self { sink, head, body: None, response: None, read: 0, sent: 0 }))
    }
}

#[async_trait]
impl Session for InProcessSession {
    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        let body = self.body.take();
        self.read += body.as_ref().map_or(0, Bytes::len);
        Ok(body)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.body = None;
        Ok(())
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.response = Some(head);
        Ok(())
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, _end: bool) -> Result<()> {
        self.response = Some(Box::new(head.clone()));
        Ok(())
    }

    async fn write_body(&mut self, data: Bytes, _end: bool) -> Result<()> {
        self.sent += data.len();
        self.sink.push(data).await.map_err(|_| Error::new_down(ErrorType::ConnectionClosed))
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let mut ended = false;
        for task in tasks {
            match task {
                HttpTask::Header(head, end) => {
                    self.write_response_header(head, end).await?;
                    ended |= end;
                }
                HttpTask::Body(data, end) => {
                    self.write_body(data.unwrap_or_default(), end).await?;
                    ended |= end;
                }
                HttpTask::UpgradedBody(..) => return Err(Error::new(ErrorType::InternalError)),
                HttpTask::Trailer(_) | HttpTask::Done => ended = true,
                HttpTask::Failed(error) => return Err(error),
            }
        }
        Ok(ended)
    }

    // A request without a socket has no timeouts.
    fn set_read_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_write_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_total_drain_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        None
    }

    fn request_summary(&self) -> String {
        format!("request without a socket, {}", self.head.uri.path())
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.response.as_deref()
    }

    async fn shutdown(&mut self, _code: u32, _reason: &str) {}

    fn is_body_done(&mut self) -> bool {
        self.body.is_none()
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_body_empty(&mut self) -> bool {
        self.read == 0 && self.body.is_none()
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !no_body_expected && self.body.is_some() {
            return self.read_body_bytes().await;
        }
        self.sink.closed().await;
        Err(Error::new_down(ErrorType::ConnectionClosed))
    }

    fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    fn body_bytes_read(&self) -> usize {
        self.read
    }

    fn digest(&self) -> Option<&Digest> {
        None
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        None
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        None
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        None
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
