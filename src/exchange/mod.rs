//! One request and its response: what the phases of the proxy (`crate::proxy`) do with it. Whatever ends it, the client
//! hears its own dialect and the record is written once.

mod body;

pub(crate) use body::{too_large, unread};

use crate::caller::Caller;
use crate::endpoint::{self, Endpoint};
use crate::gate::{self, Entry, Habits, Pass};
use crate::house::House;
use crate::keyring::Grant;
use crate::live::Live;
use crate::observe::{Record, Trace};
use crate::overload::Place;
use crate::reply::{self, cors::CrossOrigin, head::Head};
use crate::request_id::RequestId;
use bytes::Bytes;
use http::header;
use penstock_contract::{Dialect, Refusal};
use penstock_limits::{Cost, Used, Work};
use penstock_wire::host::Named;
use std::net::{IpAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The status of a request that did not arrive in time.
const LATE: u16 = 408;
/// Bytes of an answer of our own that need no room: what is done is not refused for want of it.
const FEW: usize = 16 << 10;
/// How long a refusal waits for its client to make room for it.
const REFUSED: Duration = Duration::from_secs(2);

/// One request and its response, as a phase of the proxy sees it: the state of the exchange, and its caller.
pub struct Exchange<'a> {
    /// The house it happens in.
    pub house: &'a Arc<House>,
    /// Who asks.
    pub caller: Caller<'a>,
    /// State that is kept from phase to phase.
    pub state: &'a mut ExchangeState,
}

/// State of an exchange from its first phase to its last.
pub struct ExchangeState {
    /// The configuration it began with; a reload does not touch it.
    pub live: Arc<Live>,
    /// Its id.
    pub id: RequestId,
    /// When its head was there.
    pub started: Instant,
    /// The dialect that errors are spoken in.
    pub dialect: Dialect,
    /// Who asks; set before any endpoint runs.
    pub grant: Arc<Grant>,
    /// Which limits it meets; a line of a batch meets the budgets alone.
    pub work: Work,
    /// Its place in the house, once it has sent more than a head, and the bytes that it holds there.
    place: Option<Place>,
    /// What was taken from its limits; `None` before an endpoint asked, and for those that never do.
    pass: Option<Pass>,
    /// What is told of it afterwards.
    pub record: Record,
    /// The connection may serve another request.
    pub keep: bool,
    /// The origin of the page whose script asks, if one does.
    pub origin: CrossOrigin,
}

/// What became of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was written to its end.
    Written,
    /// The client left, or can no longer be written to.
    Left,
}

/// What may become of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It may serve another.
    Reuse,
    /// It ends, with the answer that was written.
    End,
    /// The same, and the client was told that it is too slow: nothing of it is worth another wait.
    Late,
    /// It ends without one: the answer was not written to its end.
    Cut,
}

/// Handler of a request.
#[derive(Clone)]
pub enum Route {
    /// The preflight of a page's script.
    Preflight,
    /// An endpoint, and what the `*` of its path matched.
    Endpoint(&'static dyn Endpoint, Box<str>),
}

impl ExchangeState {
    /// The state of an exchange that begins now.
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
    /// Reads what the head says: the dialect of errors, the page that asks, the client's own names for the request.
    pub(crate) fn read_head(&mut self) {
        let caller = &self.caller;
        let dialect = endpoint::dialect(caller.path(), caller.field("anthropic-version").is_some());
        let state = &mut *self.state;
        state.origin = CrossOrigin::of(caller.field(header::ORIGIN), &state.live.settings.listen.cors);
        // Behind a refused CONNECT may be bytes that were meant for a tunnel.
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
        self.house.inject.at(crate::inject::At::Route);
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
    /// Finds the key of a request that is refused without need of one: its answer tells how the limits stand.
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

    /// Takes what the ask may use from the limits of its key and account, before anything is sent: instead of what it
    /// took by coming in.
    /// What was taken goes back with the end of the exchange, but for what [`Exchange::used`] says.
    ///
    /// # Errors
    /// 429 for a limit, 402 for a budget.
    pub fn pass(&mut self, entry: Entry, cost: &Cost) -> Result<(), Refusal> {
        let pass = gate::pass(entry, cost);
        self.pass = Some(pass.map_err(|hit| self.limited(hit))?);
        Ok(())
    }

    /// Comes in, before any work is put into the ask: refused is what none could pass. With what is known of the key.
    ///
    /// # Errors
    /// As [`Exchange::pass`].
    pub fn come_in(&self) -> Result<(Entry, Habits), Refusal> {
        gate::enter(&self.grant, self.work, self.house.clock).map_err(|hit| self.limited(hit))
    }

    fn limited(&self, (hit, refusal): (gate::Hit, Refusal)) -> Refusal {
        self.house.metrics.limited(hit.limit.name(), hit.whose.name());
        refusal
    }

    /// What the answer used counts from now on, instead of what it might have.
    pub fn used(&mut self, used: &Used) {
        let Some(pass) = &mut self.pass else { return };
        pass.settle(used);
        if used.money.0 > 0 {
            self.house.keyring.charged(&self.grant);
        }
    }

    /// Scheme and host by which this client reaches the gateway: as configured, else what it asked itself if that is
    /// known to be the gateway. Empty otherwise: an address is a path then.
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

    /// Whether its answer tells how the limits of its key stand.
    fn is_limited(&self) -> bool {
        self.work == Work::Request && self.record.key.is_some()
    }

    /// A response head of this exchange, with how the limits of its key stand.
    pub fn head(&self, status: u16) -> Head {
        let mut head = Head::new(status, &self.id);
        if self.is_limited() {
            let now = self.house.clock.date();
            head = head.standing(self.dialect, &gate::standing(&self.grant, now), now, None);
        }
        head.for_origin(&self.origin)
    }

    /// Answers with a JSON body of the gateway's own. A long one counts until its client has read it.
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

    /// Speaks a refusal; after a stream has begun there is nothing left to say.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) -> Ended {
        self.record.refused(refusal);
        if self.caller.answered() {
            return Ended::Left;
        }
        if refusal.row().status != LATE {
            self.swallow().await;
        }
        if !self.keep || !self.caller.is_body_done() {
            // Unread bytes of a refused body are not worth reading.
            self.caller.keep(false);
            self.keep = false;
        }
        // What it holds is not counted any more, and few words fit any window.
        self.caller.hurry(REFUSED);
        // Before the client hears of it: whoever asks again at once finds the place free.
        self.pass = None;
        self.place = None;
        let now = self.house.clock.date();
        let limits = self.is_limited().then(|| (gate::standing(&self.grant, now), now));
        let (dialect, id, origin) = (self.dialect, self.id, std::mem::take(&mut self.origin));
        let written = reply::refuse(&mut self.caller, dialect, &id, refusal, limits, &origin).await;
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

/// Whether an address is one of this machine's: only those can be bound.
fn is_own(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

/// Whether a write reached its end.
pub fn ended(written: std::io::Result<()>) -> Ended {
    if written.is_ok() { Ended::Written } else { Ended::Left }
}
