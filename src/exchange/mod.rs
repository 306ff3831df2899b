//! The life of one request, top to bottom: route, key, scope, body, answer,
//! record. Whatever ends it, the client hears its own dialect and the record
//! is written once.

mod body;

pub(crate) use body::{too_large, unread};

use crate::caller::Caller;
use crate::endpoint::{self, Endpoint};
use crate::gate::{self, Entry, Habits, Pass};
use crate::house::House;
use crate::keyring::Grant;
use crate::live::Live;
use crate::observe::{Record, Trace, panics};
use crate::overload::Place;
use crate::reply::{self, cors::CrossOrigin, head::Head};
use crate::request_id::RequestId;
use crate::session::Session;
use bytes::Bytes;
use http::header;
use penstock_contract::{Dialect, Refusal};
use penstock_limits::{Cost, Used, Work};
use penstock_wire::host::Named;
use std::net::{IpAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The status of a request that did not arrive in time.
const LATE: u16 = 408;
/// Bytes of an answer of our own that need no room: what is done is not refused for want of it.
const FEW: usize = 16 << 10;
/// How long a refusal waits for its client to make room for it.
const REFUSED: Duration = Duration::from_secs(2);

/// One request and its answer.
pub struct Exchange<'a> {
    /// The house it happens in.
    pub house: &'a Arc<House>,
    /// The configuration it began with; a reload does not touch it.
    pub live: Arc<Live>,
    /// Who asks.
    pub caller: Caller<'a>,
    /// Its name.
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

/// Runs one request.
pub async fn run(house: &Arc<House>, session: &mut Session, keep: bool) -> After {
    let path = session.path().to_owned();
    let dialect = endpoint::dialect(&path, session.field("anthropic-version").is_some());
    session.keep(keep);
    let mut exchange = Exchange::new(house, Caller::Connection(session), dialect, Work::Request);
    exchange.keep = keep;
    // What it held is dropped before a panic is answered.
    let served = panics::caught(pin!(serve(&mut exchange, &path))).await;
    let ended = match served.unwrap_or_else(|| Err(exchange.panicked())) {
        Ok(ended) => ended,
        Err(refusal) => Box::pin(exchange.refuse(&refusal)).await,
    };
    exchange.record.end(matches!(ended, Ended::Left), exchange.caller.body_bytes_sent());
    house.observe(&exchange.record, exchange.started);
    match ended {
        Ended::Left => After::Cut,
        Ended::Written if keep && exchange.caller.is_body_done() => After::Reuse,
        Ended::Written if exchange.record.status == LATE => After::Late,
        Ended::Written => After::End,
    }
}

/// Refuses a request whose head alone says that it is not to be served.
pub async fn refuse(house: &Arc<House>, session: &mut Session, refusal: &Refusal) -> After {
    let path = session.path().to_owned();
    let dialect = endpoint::dialect(&path, session.field("anthropic-version").is_some());
    let mut exchange = Exchange::new(house, Caller::Connection(session), dialect, Work::Request);
    let ended = exchange.refuse(refusal).await;
    exchange.record.end(matches!(ended, Ended::Left), exchange.caller.body_bytes_sent());
    house.observe(&exchange.record, exchange.started);
    if matches!(ended, Ended::Left) { After::Cut } else { After::End }
}

/// From the route to the endpoint.
async fn serve(x: &mut Exchange<'_>, path: &str) -> Result<Ended, Refusal> {
    let method = x.caller.method().clone();
    if method == http::Method::OPTIONS && x.origin.is_handled() {
        return Ok(x.preflight().await);
    }
    let (found, tail) = endpoint::find(&method, path).inspect_err(|_| x.recognise())?;
    x.record.endpoint = found.name();
    if !found.is_open() {
        x.authenticate(found)?;
    }
    found.handle(x, tail).await
}

impl<'a> Exchange<'a> {
    /// An exchange that begins now.
    pub(crate) fn new(house: &'a Arc<House>, caller: Caller<'a>, dialect: Dialect, work: Work) -> Self {
        let id = RequestId::random();
        let live = house.live();
        let origin = CrossOrigin::of(caller.field(header::ORIGIN), &live.settings.listen.cors);
        let mut record = Record::new(id, dialect);
        record.trace = Trace::of(|name| caller.field(name));
        Self {
            house,
            live,
            caller,
            id,
            started: Instant::now(),
            dialect,
            grant: Grant::nobody(),
            work,
            place: None,
            pass: None,
            record,
            keep: false,
            origin,
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
    fn admit(&self) -> Result<Arc<Grant>, Refusal> {
        let (authorization, api_key) =
            (self.caller.field(header::AUTHORIZATION), self.caller.field("x-api-key"));
        self.house.keyring.admit(authorization, api_key)
    }

    /// Finds the key and checks its scope.
    fn authenticate(&mut self, endpoint: &dyn Endpoint) -> Result<(), Refusal> {
        self.grant = self.admit()?;
        self.record.key = Some(self.grant.public_id.clone());
        self.grant.require(endpoint.scope())
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
