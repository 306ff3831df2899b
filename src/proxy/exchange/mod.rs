//! Exchange: one request and its response, as the phases of the proxy (`crate::proxy`) handle them. Errors are written
//! in the client's dialect, and the access record is written once.

mod body;

pub(crate) use body::{too_large, unread};

use crate::auth::key_cache::Grant;
use crate::http::After;
use crate::limits::admission_control::Place;
use crate::limits::rate_limit::{self, Entry, Habits, Pass};
use crate::proxy::downstream::Caller;
use crate::proxy::endpoint::{self, Endpoint};
use crate::proxy::response::{self, cors::CrossOrigin, head::Head};
use crate::state::House;
use crate::telemetry::request_id::RequestId;
use crate::telemetry::{Record, Trace};
use crate::upstream::config_snapshot::Live;
use crate::upstream::count_queue::Counting;
use bytes::Bytes;
use http::header;
use penstock_contract::{Dialect, Refusal};
use penstock_limits::{Cost, Used, Work};
use penstock_wire::host::Named;
use std::net::{IpAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Status of a request that did not arrive in time.
const LATE: u16 = 408;
/// Bytes of an own response that are not counted as memory: finished work is not refused for lack of memory.
const FEW: usize = 16 << 10;
/// Write timeout of a refusal.
const REFUSED: Duration = Duration::from_secs(2);

/// Request and response in one phase of the proxy: the state of the exchange and its caller.
pub struct Exchange<'a> {
    /// State of the process.
    pub house: &'a Arc<House>,
    /// Caller of the request.
    pub caller: Caller<'a>,
    /// State that lasts from phase to phase.
    pub state: &'a mut ExchangeState,
}

/// State of an exchange from its first phase to its last.
pub struct ExchangeState {
    /// Configuration snapshot at the start of the request; a reload does not change it.
    pub live: Arc<Live>,
    /// Request id.
    pub id: RequestId,
    /// Time at which the head had arrived.
    pub started: Instant,
    /// Dialect in which errors are written.
    pub dialect: Dialect,
    /// Principal of the API key; set before any endpoint runs.
    pub grant: Arc<Grant>,
    /// Class of work, which selects the limits: a line of a batch is only subject to the budgets.
    pub work: Work,
    /// Permit of admission control, once a body is expected, with the memory that the request holds.
    place: Option<Place>,
    /// Reservation in the limits; `None` until an endpoint makes one.
    pass: Option<Pass>,
    /// Access record, which is logged at the end.
    pub record: Record,
    /// True if the connection may serve another request.
    pub keep: bool,
    /// Origin of the web page that sends the request, if one does.
    pub origin: CrossOrigin,
}

/// Outcome of writing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Complete response.
    Written,
    /// Client that has left or can no longer be written to.
    Left,
}

/// Handler of a request.
#[derive(Clone)]
pub enum Route {
    /// CORS preflight of a web page.
    Preflight,
    /// Endpoint, and the part of the path that its `*` matched.
    Endpoint(&'static dyn Endpoint, Box<str>),
}

impl ExchangeState {
    /// Creates the state of an exchange that starts now.
    #[must_use]
    pub fn new(house: &House) -> Self {
        let id = RequestId::random();
        Self {
            live: house.live(),
            id,
            started: Instant::now(),
            dialect: Dialect::Chat,
            grant: Grant::nobody(),
            work: Work::Request,
            place: None,
            pass: None,
            record: Record::new(id, Dialect::Chat),
            keep: false,
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
    /// Reads the request head: the dialect of errors, the origin of a web page, the client's trace ids.
    pub(crate) fn read_head(&mut self) {
        let caller = &self.caller;
        let dialect = endpoint::dialect(caller.path(), caller.field("anthropic-version").is_some());
        let state = &mut *self.state;
        state.origin = CrossOrigin::of(caller.field(header::ORIGIN), &state.live.settings.listen.cors);
        // Bytes after a refused CONNECT may be meant for a tunnel.
        state.keep = caller.may_keep() && caller.method() != http::Method::CONNECT;
        state.dialect = dialect;
        state.record.dialect = dialect;
        state.record.trace = Trace::of(|name| caller.field(name));
        if let Some(line) = caller.line() {
            state.work = Work::BatchLine;
            state.record.line = true;
            state.grant = line.grant().cloned().unwrap_or_else(Grant::nobody);
        }
        let (keep, within) = (self.keep, self.live.settings.limits.client_write);
        self.caller.keep(keep);
        self.caller.hurry(within);
    }

    /// Finds the endpoint of the request.
    ///
    /// # Errors
    /// No such path or method.
    pub(crate) fn find_route(&mut self) -> Result<Route, Refusal> {
        #[cfg(feature = "inject")]
        self.house.inject.at(crate::net::fault_injection::At::Route);
        let method = self.caller.method().clone();
        if method == http::Method::OPTIONS && self.origin.is_handled() {
            return Ok(Route::Preflight);
        }
        let found = endpoint::find(&method, self.caller.path()).map(|(found, tail)| (found, Box::from(tail)));
        let (found, tail) = found.inspect_err(|_| self.recognise())?;
        self.record.endpoint = found.name();
        Ok(Route::Endpoint(found, tail))
    }

    /// Answers the request.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) async fn answer_by(&mut self, route: Route) -> Result<Ended, Refusal> {
        match route {
            Route::Preflight => Ok(self.preflight().await),
            Route::Endpoint(found, tail) => found.handle(self, &tail).await,
        }
    }

    /// Decides the use of the connection after the response.
    pub(crate) fn after(&mut self, ended: Ended) -> After {
        match ended {
            Ended::Left => After::Cut,
            Ended::Written if self.keep && self.caller.is_body_done() => After::Reuse,
            Ended::Written if self.record.status == LATE => After::Late,
            Ended::Written => After::End,
        }
    }
}

impl Exchange<'_> {
    /// Finds the key of a request whose refusal needs none, so that its response carries the state of the limits.
    fn recognise(&mut self) {
        if let Ok(grant) = self.admit() {
            self.record.key = Some(grant.public_id.clone());
            self.grant = grant;
        }
    }

    /// The grant of the request's headers.
    ///
    /// # Errors
    /// No API key, or none that is valid.
    pub(crate) fn admit(&self) -> Result<Arc<Grant>, Refusal> {
        let (authorization, api_key) =
            (self.caller.field(header::AUTHORIZATION), self.caller.field("x-api-key"));
        self.house.keyring.admit(authorization, api_key)
    }

    /// Reserves the most that a request may use in the limits of its key and account, in place of the provisional
    /// permit and before anything is sent. At the end of the exchange the reservation is released, except for the usage
    /// that [`Exchange::used`] reports.
    ///
    /// # Errors
    /// 429 for a limit, 402 for a budget.
    pub fn pass(&mut self, entry: Entry, cost: &Cost) -> Result<(), Refusal> {
        let pass = rate_limit::pass(entry, cost);
        self.pass = Some(pass.map_err(|hit| self.limited(hit))?);
        Ok(())
    }

    /// Takes a provisional permit of the limits before any work; a request that no cost could pass is refused. Also
    /// returns the usual usage of the key.
    ///
    /// # Errors
    /// As [`Exchange::pass`].
    pub fn come_in(&self) -> Result<(Entry, Habits), Refusal> {
        rate_limit::enter(&self.grant, self.work, self.house.clock).map_err(|hit| self.limited(hit))
    }

    fn limited(&self, (hit, refusal): (rate_limit::Hit, Refusal)) -> Refusal {
        self.house.metrics.limited(hit.limit.name(), hit.whose.name());
        refusal
    }

    /// Settles the limits with the actual usage, in place of the reservation.
    pub fn used(&mut self, used: &Used) {
        let Some(pass) = &mut self.pass else { return };
        pass.settle(used);
        if used.money.0 > 0 {
            self.house.keyring.charged(&self.grant);
        }
    }

    /// Returns the permits and handles that a count for this exchange needs.
    pub(crate) fn counting(&self) -> Counting {
        let wait = match self.work {
            Work::Request => Some(self.live.settings.overload.wait),
            Work::BatchLine => None,
        };
        Counting {
            permits: self.house.counting.clone(),
            overload: self.house.overload.clone(),
            blocking: self.house.blocking.clone(),
            live: self.live.clone(),
            whose: self.grant.account.id.clone(),
            wait,
        }
    }

    /// Returns the scheme and host of the gateway as this client reaches it: as configured, else the host of the
    /// request if that is known to be the gateway, else an empty string, so that an address is a path.
    pub fn public_url(&self) -> String {
        let listen = &self.live.settings.listen;
        if let Some(url) = &listen.public_url {
            return url.to_string();
        }
        let host = self.caller.authority().filter(|host| match listen.hosts.named(host) {
            Named::Loopback | Named::Known => true,
            Named::Address(address) => is_own(address),
            Named::Nothing | Named::Unknown => false,
        });
        let scheme = if self.caller.is_tls() { "https" } else { "http" };
        host.map_or_else(String::new, |host| format!("{scheme}://{host}"))
    }

    /// Returns true if the response head carries the state of the key's limits.
    fn is_limited(&self) -> bool {
        self.work == Work::Request && self.record.key.is_some()
    }

    /// Creates a response head of this exchange, with the state of the key's limits.
    pub fn head(&self, status: u16) -> Head {
        let mut head = Head::new(status, &self.id);
        if self.is_limited() {
            let now = self.house.clock.date();
            head = head.standing(self.dialect, &rate_limit::standing(&self.grant, now), now, None);
        }
        head.for_origin(&self.origin)
    }

    /// Answers with a JSON body of the gateway itself. A long one counts as memory until the client has read it.
    pub async fn answer(&mut self, status: u16, body: Vec<u8>) -> Ended {
        if body.len() > FEW
            && let Err(refusal) = self.hold(body.len())
        {
            return Box::pin(self.refuse(&refusal)).await;
        }
        self.record.status = status;
        let head = self.head(status);
        ended(head.json(&mut self.caller, vec![Bytes::from(body)]).await)
    }

    /// Writes a refusal, unless a response has begun.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) -> Ended {
        self.record.refused(refusal);
        if self.caller.answered() {
            return Ended::Left;
        }
        if refusal.row().status != LATE {
            self.swallow().await;
        }
        if !self.keep || !self.caller.is_body_done() {
            // The rest of a refused body is not read.
            self.caller.keep(false);
            self.keep = false;
        }
        // Its memory is no longer counted, and a short refusal fits any window.
        self.caller.hurry(REFUSED);
        // Before the client gets the refusal, so that a retry finds the permit free.
        self.pass = None;
        self.place = None;
        let now = self.house.clock.date();
        let limits = self.is_limited().then(|| (rate_limit::standing(&self.grant, now), now));
        let (dialect, id, origin) = (self.dialect, self.id, std::mem::take(&mut self.origin));
        let written = response::refuse(&mut self.caller, dialect, &id, refusal, limits, &origin).await;
        ended(written)
    }

    async fn preflight(&mut self) -> Ended {
        self.record.endpoint = "preflight";
        self.record.status = 204;
        let asked = self.caller.field(header::ACCESS_CONTROL_REQUEST_HEADERS);
        let head = Head::new(204, &self.id).for_preflight(&self.origin, asked);
        ended(head.json(&mut self.caller, Vec::new()).await)
    }
}

/// Returns true for an address of this machine: only those can be bound.
fn is_own(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

/// Converts the result of the last write.
pub fn ended(written: std::io::Result<()>) -> Ended {
    if written.is_ok() { Ended::Written } else { Ended::Left }
}
