//! Exchange: one request and its response, as the phases of the proxy (`crate::proxy`) handle them. Errors are written
//! in the client's dialect, and the access record is written once.

mod body;
mod limits;
mod linger;

pub(crate) use body::{body_read_refusal, body_too_large_error};

use crate::auth::key_cache::Principal;
use crate::http::ConnectionReuse;
use crate::limits::admission_control::AdmissionPermit;
use crate::limits::rate_limit::{self, KeyLimitReservation};
use crate::proxy::RequestSource;
use crate::proxy::downstream::Downstream;
use crate::proxy::endpoint::{self, Endpoint, MessagesDialectHint};
use crate::proxy::response::{self, cors::CrossOrigin, head::ResponseHead};
use crate::state::AppState;
use crate::telemetry::request_id::RequestId;
use crate::telemetry::{AccessRecord, ExchangeKind, TraceContext};
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::count_queue::TokenCountContext;
use crate::upstream::offer::SelectionTime;
use bytes::Bytes;
use http::header;
use penstock_core::{ApiError, Dialect, ErrorCode};
use penstock_http_wire::host::RequestHostKind;
use penstock_limits::WorkClass;
use std::net::{IpAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Status of a request that did not arrive in time.
const REQUEST_TIMEOUT_STATUS: u16 = 408;
/// Maximum size in bytes of a response of the gateway itself that does not count as memory. A small response is thus
/// never refused for lack of memory after its work is done.
const UNCOUNTED_RESPONSE: usize = 16 << 10;
/// Write timeout of a refusal.
const REFUSAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Request and response in one phase of the proxy: the state of the exchange and its caller.
pub struct Exchange<'a> {
    /// State of the process.
    pub app: &'a Arc<AppState>,
    /// Client or batch line that sent the request.
    pub caller: Downstream<'a>,
    /// State of the exchange, which is passed from phase to phase.
    pub state: &'a mut ExchangeState,
}

/// State of an exchange from its first phase to its last.
pub struct ExchangeState {
    /// Configuration snapshot at the start of the request; a reload does not change it.
    pub config: Arc<ConfigSnapshot>,
    /// Request id.
    pub id: RequestId,
    /// Time at which the head had arrived.
    pub started: Instant,
    /// Dialect in which errors are written.
    pub dialect: Dialect,
    /// Principal of the API key; set before any endpoint runs.
    pub principal: Arc<Principal>,
    /// Class of work, which selects the limits. A batch line is subject only to the budgets, and not to the limits
    /// per minute.
    pub work: WorkClass,
    /// Admission permit, and the memory that the request holds; `None` before a body is expected and after release.
    admission_permit: Option<AdmissionPermit>,
    /// Reservation in the limits; `None` until an endpoint makes one.
    limit_reservation: Option<KeyLimitReservation>,
    /// Access record, which is logged at the end.
    pub record: AccessRecord,
    /// True if the connection may serve another request.
    pub keep_alive: bool,
    /// Origin of the web page that sends the request, if any.
    pub origin: CrossOrigin,
}

/// Outcome of writing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The response was written completely.
    Complete,
    /// The client has left or can no longer be written to.
    Disconnected,
}

/// Handler to which a request is routed.
#[derive(Clone)]
pub enum RequestRoute {
    /// Handler of a CORS preflight request.
    Preflight,
    /// Endpoint, and the part of the path that its `*` matched.
    Endpoint(&'static dyn Endpoint, Box<str>),
}

impl ExchangeState {
    /// Creates the state of an exchange that starts now.
    #[must_use]
    pub fn new(app: &AppState) -> Self {
        let id = RequestId::random();
        Self {
            config: app.config_snapshot(),
            id,
            started: Instant::now(),
            dialect: Dialect::Chat,
            principal: Principal::placeholder(),
            work: WorkClass::Request,
            admission_permit: None,
            limit_reservation: None,
            record: AccessRecord::new(id, Dialect::Chat),
            keep_alive: false,
            origin: CrossOrigin::None,
        }
    }
}

impl Deref for Exchange<'_> {
    type Target = ExchangeState;

    fn deref(&self) -> &ExchangeState {
        self.state
    }
}

impl DerefMut for Exchange<'_> {
    fn deref_mut(&mut self) -> &mut ExchangeState {
        self.state
    }
}

impl Exchange<'_> {
    /// Returns the error of a request that has to end before its answer is complete: its key was revoked, its account
    /// was suspended, or the time to drain is over; `None` for any other request.
    pub fn interruption_error(&self) -> Option<ApiError> {
        if self.principal.is_revoked_or_suspended() {
            return Some(ApiError::new(ErrorCode::InvalidKey));
        }
        let message = "The gateway was stopped during this request; send it again.";
        let refusal = || ApiError::with_message(ErrorCode::Overloaded, message).with_retry_after(1);
        self.app.is_interrupting().then(refusal)
    }

    /// Reads the request head: the dialect of errors, the origin of a web page, the client's trace ids, and the rights
    /// of a batch line or of a request of the console.
    pub(crate) fn read_head(&mut self) {
        let caller = &self.caller;
        let headers = MessagesDialectHint::from_request(|name| caller.custom_header_field(name).is_some());
        let dialect = endpoint::error_dialect(caller.path(), headers);
        let state = &mut *self.state;
        state.origin = CrossOrigin::from_request(
            caller.header_field(header::ORIGIN),
            &state.config.settings.listen.cors,
        );
        // CONNECT is refused, and the bytes after it may be meant for a tunnel, so they are not read as a request.
        state.keep_alive = caller.may_keep_alive() && caller.method() != http::Method::CONNECT;
        state.dialect = dialect;
        state.record.dialect = dialect;
        state.record.trace = TraceContext::from_fields(caller.header_fields());
        if let Some(line) = caller.in_process_line() {
            state.work = line.work_class();
            if state.work == WorkClass::BatchLine {
                state.record.kind = ExchangeKind::BatchLine;
            }
        }
        if let Some(principal) = caller.request_source().and_then(RequestSource::principal) {
            state.principal = principal.clone();
        }
        let (keep, within) = (self.keep_alive, self.config.settings.limits.client_write);
        self.caller.set_keep_alive(keep);
        self.caller.set_h2_write_timeout(within);
    }

    /// Finds the handler of the request: an endpoint, or the answer to a CORS preflight.
    ///
    /// # Errors
    /// Returns a refusal if the path is unknown or does not support the method.
    pub(crate) fn find_route(&mut self) -> Result<RequestRoute, ApiError> {
        #[cfg(feature = "inject")]
        self.app.panic_injector.panic_if_armed(crate::net::panic_injection::PanicInjectionPoint::Route);
        let method = self.caller.method().clone();
        if method == http::Method::OPTIONS && self.origin.answers_preflight() {
            return Ok(RequestRoute::Preflight);
        }
        let found = endpoint::find_endpoint(&method, self.caller.path())
            .map(|(found, tail)| (found, Box::from(tail)));
        let (found, tail) = found.inspect_err(|_| self.find_key())?;
        self.record.endpoint = found.name();
        Ok(RequestRoute::Endpoint(found, tail))
    }

    /// Runs the handler of the request.
    ///
    /// # Errors
    /// Returns the refusal of the request.
    pub(crate) async fn handle_route(&mut self, route: RequestRoute) -> Result<WriteOutcome, ApiError> {
        match route {
            RequestRoute::Preflight => Ok(self.write_preflight().await),
            RequestRoute::Endpoint(found, tail) => found.handle(self, &tail).await,
        }
    }

    /// Returns the next use of the connection: another request, or one of the ways to close it.
    pub(crate) fn connection_reuse(&mut self, ended: WriteOutcome) -> ConnectionReuse {
        match ended {
            WriteOutcome::Disconnected => ConnectionReuse::Abort,
            WriteOutcome::Complete if self.keep_alive && self.caller.is_body_done() => ConnectionReuse::Reuse,
            WriteOutcome::Complete if self.record.status == REQUEST_TIMEOUT_STATUS => {
                ConnectionReuse::EndAfterTimeout
            }
            WriteOutcome::Complete => ConnectionReuse::End,
        }
    }
}

impl Exchange<'_> {
    /// Finds the key of a request that is refused before its authentication. The response can then carry the status
    /// of the key's limits.
    fn find_key(&mut self) {
        if let Ok(principal) = self.authenticate() {
            self.record.key = Some(principal.public_id.clone());
            self.principal = principal;
        }
    }

    /// Returns the principal of the API key in the request headers.
    ///
    /// # Errors
    /// Returns a refusal if the API key is missing or invalid.
    pub(crate) fn authenticate(&self) -> Result<Arc<Principal>, ApiError> {
        let (authorization, api_key) =
            (self.caller.header_field(header::AUTHORIZATION), self.caller.custom_header_field("x-api-key"));
        self.app.key_cache.authenticate(authorization, api_key)
    }

    /// Returns the permits and handles that counting tokens for this exchange needs.
    pub(crate) fn token_count_context(&self) -> TokenCountContext {
        let wait = match self.work {
            WorkClass::Request => Some(self.config.settings.overload.wait),
            WorkClass::BatchLine => None,
        };
        TokenCountContext {
            permits: self.app.tokenizer_permits.clone(),
            admission: self.app.admission.clone(),
            blocking: self.app.blocking_context.clone(),
            config: self.config.clone(),
            account: self.principal.account.id.clone(),
            wait,
            moment: SelectionTime {
                steady: self.app.clock.steady_now(),
                unix_seconds: self.app.clock.unix_seconds(),
            },
            engine_wait: AtomicU64::new(0),
        }
    }

    /// Returns the public scheme and host of the gateway: as configured, else the host of the request if it is known to
    /// be the gateway's. Otherwise returns an empty string, which makes URLs relative to the host.
    pub fn public_url(&self) -> String {
        let listen = &self.config.settings.listen;
        if let Some(url) = &listen.public_url {
            return url.to_string();
        }
        let host = self.caller.authority().filter(|host| match listen.hosts.classify_request_host(host) {
            RequestHostKind::Loopback | RequestHostKind::Configured => true,
            RequestHostKind::Address(address) => is_local_address(address),
            RequestHostKind::Missing | RequestHostKind::Unknown => false,
        });
        let scheme = if self.caller.is_tls() { "https" } else { "http" };
        host.map_or_else(String::new, |host| format!("{scheme}://{host}"))
    }

    /// Returns true if the response head carries the state of the key's limits.
    fn is_limited(&self) -> bool {
        self.work == WorkClass::Request && self.record.key.is_some()
    }

    /// Creates a response head of this exchange, with the state of the key's limits and the CORS headers.
    pub fn new_response_head(&self, status: u16) -> ResponseHead {
        let mut head = ResponseHead::new(status, &self.id);
        if self.is_limited() {
            let now = self.app.clock.calendar_now();
            head = head.with_rate_limits(
                self.dialect,
                &rate_limit::limit_status(&self.principal, now),
                now,
                None,
            );
        }
        head.with_cors(&self.origin)
    }

    /// Sends a JSON body of the gateway itself. A long body counts as memory until the client has read it.
    pub async fn send_json(&mut self, status: u16, body: Vec<u8>) -> WriteOutcome {
        if body.len() > UNCOUNTED_RESPONSE
            && let Err(refusal) = self.reserve_memory(body.len())
        {
            return Box::pin(self.write_error(&refusal)).await;
        }
        self.record.status = status;
        let head = self.new_response_head(status);
        write_outcome(head.send_json(&mut self.caller, vec![Bytes::from(body)]).await)
    }

    /// Records a refusal and writes it, unless a response has begun. Before it is written, the reservation in the
    /// limits and the permit of admission control are released.
    pub(crate) async fn write_error(&mut self, refusal: &ApiError) -> WriteOutcome {
        self.record.record_refusal(refusal);
        if self.caller.has_response_head() {
            return WriteOutcome::Disconnected;
        }
        if refusal.spec().status != REQUEST_TIMEOUT_STATUS {
            self.drain_body().await;
        }
        if !self.keep_alive || !self.caller.is_body_done() {
            // The rest of a refused body is not read.
            self.caller.set_keep_alive(false);
            self.keep_alive = false;
        }
        // A refusal has a short write timeout, because the memory of the request is no longer counted from here on. A
        // refusal fits any receive window.
        self.caller.set_h2_write_timeout(REFUSAL_WRITE_TIMEOUT);
        // Both permits are released before the client receives the refusal, so that they are free for a retry.
        self.limit_reservation = None;
        self.admission_permit = None;
        let now = self.app.clock.calendar_now();
        let limits = self.is_limited().then(|| (rate_limit::limit_status(&self.principal, now), now));
        let (dialect, id, origin) = (self.dialect, self.id, std::mem::take(&mut self.origin));
        let written = response::send_refusal(&mut self.caller, dialect, &id, refusal, limits, &origin).await;
        write_outcome(written)
    }

    async fn write_preflight(&mut self) -> WriteOutcome {
        self.record.endpoint = "preflight";
        self.record.status = 204;
        let asked = self.caller.header_field(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let head = ResponseHead::new(204, &self.id).with_preflight(&self.origin, asked);
        write_outcome(head.send_json(&mut self.caller, Vec::new()).await)
    }
}

/// Returns true for an address of this machine: only such an address can be bound.
fn is_local_address(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

/// Converts the result of the last write of a response.
pub fn write_outcome(written: std::io::Result<()>) -> WriteOutcome {
    if written.is_ok() { WriteOutcome::Complete } else { WriteOutcome::Disconnected }
}
