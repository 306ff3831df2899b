//! Phases of a request, with the names of Pingora's hooks and in the order of Pingora.
//!
//! Endpoints respond inside `request_filter`; the endpoints for inference call the failover driver
//! (`crate::proxy::failover`) there. The driver connects to providers itself, for two reasons: the loop of
//! pingora-proxy 0.9 cannot resend a request body above 64 KiB, and it sends the response head before the first token
//! is known, after which no other provider can answer. The driver runs the hooks of a response in Pingora's order, by
//! the same functions as [`Gateway`]: [`filters::remove_unlisted_fields`] for the head, then
//! [`filters::response_body_filter`] for each piece of the body, with `end_of_stream` at the end of the body. Its
//! functions `upstream_peer`, `fail_to_connect` and `error_while_proxy` make the decisions of the Pingora hooks with
//! the same names.

use super::RequestSource;
use super::filters::{self, RequestFilterChain, RequestFilters, ResponseContext, ResponseUsage};
use crate::http::ConnectionReuse;
use crate::proxy::batch_line::{self, LineCompletion};
use crate::proxy::downstream::Downstream;
use crate::proxy::exchange::{Exchange, ExchangeState, RequestRoute, WriteOutcome};
use crate::state::AppState;
use crate::telemetry::{ExchangeOutcome, panics};
use async_trait::async_trait;
use bytes::Bytes;
use penstock_core::{
    ApiError, BufferedResponse, ErrorCode, OutputBuffer, StreamTranslation, TokenUsage, UpstreamAnswer,
    UpstreamError, UpstreamErrorKind,
};
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::http::ServerSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

/// Implementation of Pingora's [`ProxyHttp`] hooks. The shared state of the process is in [`AppState`].
pub struct Gateway {
    app: Weak<AppState>,
}

/// Context of a request from phase to phase.
pub struct RequestContext {
    app: Arc<AppState>,
    source: Option<RequestSource>,
    state: ExchangeState,
    route: Option<RequestRoute>,
    /// Refusal of the request, whether it has been written or not.
    refusal: Option<ApiError>,
    write_outcome: Option<WriteOutcome>,
}

impl Gateway {
    /// Creates the proxy hooks of a process with this state.
    pub(super) const fn new(app: Weak<AppState>) -> Self {
        Self { app }
    }
}

impl RequestContext {
    fn new(app: Arc<AppState>) -> Self {
        let state = ExchangeState::new(&app);
        Self { app, source: None, state, route: None, refusal: None, write_outcome: None }
    }

    /// Returns the exchange of this request in a phase.
    fn exchange<'a>(&'a mut self, session: &'a mut ServerSession) -> Exchange<'a> {
        let caller = Downstream::new(session, self.source.clone());
        Exchange { app: &self.app, caller, state: &mut self.state }
    }

    /// Ends the phases with a refusal, which [`ProxyHttp::fail_to_proxy`] writes.
    fn refuse(&mut self, refusal: ApiError) -> Box<Error> {
        let error = Error::new(ErrorType::HTTPStatus(refusal.spec().status));
        self.refusal = Some(refusal);
        error
    }

    /// Records that the client has disconnected. Returns the error that ends Pingora's phases of the request.
    fn disconnected(&mut self) -> Box<Error> {
        self.write_outcome = Some(WriteOutcome::Disconnected);
        Error::new_down(ErrorType::ConnectionClosed)
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    /// Context of a request; `None` during shutdown of the process. It is boxed, because Pingora's future of a request
    /// stores it several times.
    type CTX = Option<Box<RequestContext>>;

    fn new_ctx(&self) -> Self::CTX {
        self.app.upgrade().map(|app| Box::new(RequestContext::new(app)))
    }

    /// Pingora's compression of responses is not used.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    /// Reads the source of the request from the connection. This hook also runs for the first request of a connection,
    /// because the guard passes the source to every session.
    fn on_connection_reuse(&self, _: &mut Session, ctx: &mut Self::CTX, source: Box<dyn Any + Send + Sync>) {
        if let (Some(ctx), Ok(source)) = (ctx, source.downcast::<RequestSource>()) {
            ctx.source = Some(*source);
        }
    }

    /// Reads the request head, finds the route, and runs the early checks of the request filters.
    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<()> {
        let ctx = ctx.as_mut().ok_or_else(shutdown_error)?;
        let session = session.as_downstream_mut();
        // Pingora's read timeout is off, because each read of a body sets its own deadline.
        session.set_read_timeout(None);
        if ctx.source.is_none() {
            ctx.source = session.req_header_mut().extensions_mut().remove();
        }
        if let Some(RequestSource::Http1(connection)) = &ctx.source {
            connection.set_request_received();
        }
        let early = ctx.source.as_ref().and_then(RequestSource::head_refusal).cloned();
        let mut exchange = ctx.exchange(session);
        let found = panics::catch_panic(pin!(async {
            exchange.read_head();
            let route = early.map_or_else(|| exchange.find_route(), Err)?;
            if let RequestRoute::Endpoint(endpoint, _) = &route {
                RequestFilters::early_check(&mut exchange, *endpoint)?;
            }
            Ok(route)
        }))
        .await;
        match found.unwrap_or_else(|| Err(exchange.record_panic())) {
            Ok(route) => {
                ctx.route = Some(route);
                Ok(())
            }
            Err(refusal) => Err(ctx.refuse(refusal)),
        }
    }

    /// Runs the endpoint's handler; an inference request passes the request filters and the failover driver.
    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        let ctx = ctx.as_mut().ok_or_else(shutdown_error)?;
        let Some(route) = ctx.route.take() else {
            return Err(ctx.refuse(ApiError::new(ErrorCode::Internal)));
        };
        let mut exchange = ctx.exchange(session.as_downstream_mut());
        // `catch_panic` drops the handler and its resources before the response to a panic is written.
        let served = panics::catch_panic(pin!(exchange.handle_route(route))).await;
        let served = served.unwrap_or_else(|| Err(exchange.record_panic()));
        let answered = exchange.caller.has_response_head();
        let line = exchange.caller.in_process_line().cloned();
        match served {
            Ok(WriteOutcome::Complete) => {
                let after = exchange.connection_reuse(WriteOutcome::Complete);
                ctx.set_outcome(WriteOutcome::Complete, after);
                Ok(true)
            }
            Ok(WriteOutcome::Disconnected) => {
                let now = ctx.app.clock.unix_seconds();
                match line.and_then(|line| batch_line::unanswered_line_refusal(&line, &ctx.state, now)) {
                    Some(refusal) => Err(ctx.refuse(refusal)),
                    None => Err(ctx.disconnected()),
                }
            }
            Err(refusal) if answered => {
                // The stream has already begun, so it is cut, because a refusal can no longer be sent.
                ctx.state.record.record_refusal(&refusal);
                ctx.refusal = Some(refusal);
                Err(ctx.disconnected())
            }
            Err(refusal) => Err(ctx.refuse(refusal)),
        }
    }

    /// Returns an error, because Pingora's own loop must not be entered: the failover driver connects to providers
    /// inside `request_filter`. If the loop were entered, the hooks below would pass no byte of a provider on.
    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Err(Error::new(ErrorType::InternalError))
    }

    /// Removes the fields of a response head that are not allowed. The driver calls the same function.
    async fn response_filter(
        &self,
        _: &mut Session,
        head: &mut ResponseHeader,
        _: &mut Self::CTX,
    ) -> Result<()> {
        filters::remove_unlisted_fields(head);
        Ok(())
    }

    /// Runs the response body filters. The driver calls the same function for each piece of a stream.
    fn response_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        let ctx = ctx.as_mut().ok_or_else(shutdown_error)?;
        let mut downstream = OutputBuffer::default();
        let filtered = filters::response_body_filter(&mut **ctx, body.take(), end_of_stream, &mut downstream);
        *body = (!downstream.is_empty()).then(|| downstream.0.concat().into());
        filtered.map(|()| None).map_err(|_| ctx.refuse(ApiError::new(ErrorCode::Internal)))
    }

    /// Writes the refusal in the dialect of the caller.
    async fn fail_to_proxy(&self, session: &mut Session, _: &Error, ctx: &mut Self::CTX) -> FailToProxy {
        let Some(ctx) = ctx else { return FailToProxy { error_code: 0, can_reuse_downstream: false } };
        if ctx.write_outcome.is_none() {
            let refusal = ctx.refusal.clone().unwrap_or_else(|| ApiError::new(ErrorCode::Internal));
            let mut exchange = ctx.exchange(session.as_downstream_mut());
            let ended = exchange.write_error(&refusal).await;
            let after = exchange.connection_reuse(ended);
            ctx.set_outcome(ended, after);
        }
        let written = ctx.write_outcome == Some(WriteOutcome::Complete);
        if !written {
            // A truncated response must not look like a complete one, so the stream is reset.
            session.as_downstream_mut().shutdown_with_reason(h2::Reason::CANCEL);
        }
        FailToProxy { error_code: ctx.state.record.status, can_reuse_downstream: written }
    }

    /// Records the exchange in the access log and the metrics, and reports the end of a batch line to its batch.
    async fn logging(&self, session: &mut Session, _: Option<&Error>, ctx: &mut Self::CTX) {
        let Some(ctx) = ctx else { return };
        let session = session.as_downstream_mut();
        let mut left = ctx.write_outcome != Some(WriteOutcome::Complete);
        let mut interruption = ExchangeOutcome::Disconnected;
        match &ctx.source {
            Some(RequestSource::Line(line)) => {
                left &= ctx.refusal.is_none();
                interruption = ExchangeOutcome::Cancelled;
                let outcome = match &ctx.refusal {
                    Some(refusal) => LineCompletion::Refused(refusal),
                    None if left => LineCompletion::Cancelled,
                    None => LineCompletion::Answered,
                };
                batch_line::report_line_end(line, &mut ctx.state, &outcome);
            }
            Some(RequestSource::Playground(_)) => {}
            Some(RequestSource::Http2(stream)) => stream.set_reset_by_client(is_reset(session).await),
            Some(RequestSource::Http1(_)) | None => {}
        }
        ctx.state.record.record_end(left.then_some(interruption), session.body_bytes_sent());
        ctx.app.record_exchange(&ctx.state.record, ctx.state.started);
        if let Some(local) = ctx.source.as_ref().and_then(RequestSource::as_playground_request) {
            local.copy_access_record(&ctx.state.record);
        }
        if ctx.write_outcome == Some(WriteOutcome::Complete) {
            ctx.exchange(session).discard_unread_body().await;
        }
    }

    fn suppress_error_log(&self, _: &Session, _: &Self::CTX, _: &Error) -> bool {
        true
    }
}

/// Response of Pingora's own loop. It has no translation and no reservation, so the filters let no byte pass.
impl ResponseContext for RequestContext {
    type Error = UpstreamError;

    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)> {
        None
    }

    fn record_progress(&mut self, _bytes: usize) {}

    async fn translate(
        &mut self,
        _: Vec<UpstreamAnswer>,
    ) -> std::result::Result<BufferedResponse, UpstreamError> {
        Err(UpstreamError::new(UpstreamErrorKind::Malformed))
    }

    fn estimate_unreported_usage(&self, _output_bytes: usize) -> TokenUsage {
        TokenUsage::default()
    }

    fn settle(&mut self, _: ResponseUsage) -> Vec<u8> {
        Vec::new()
    }
}

impl RequestContext {
    /// Records the end of the response and the use of the connection after it.
    fn set_outcome(&mut self, ended: WriteOutcome, after: ConnectionReuse) {
        self.write_outcome = Some(ended);
        if let Some(source) = &self.source {
            source.set_connection_reuse(after);
        }
    }
}

/// Returns true if the client reset the HTTP/2 stream of the session.
async fn is_reset(session: &mut ServerSession) -> bool {
    let Some(mut idle) = session.watch_h2_stream_close() else { return false };
    poll_fn(|cx| Poll::Ready(Pin::new(&mut idle).poll(cx).is_ready())).await
}

/// Returns the error of a request that arrives during process shutdown.
fn shutdown_error() -> Box<Error> {
    Error::new(ErrorType::InternalError)
}
