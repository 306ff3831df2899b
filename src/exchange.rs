//! The life of one request, top to bottom: route, key, scope, body, answer,
//! record. Whatever ends it, the client hears its own dialect and the record
//! is written once.

use crate::caller::Caller;
use crate::endpoint::{self, Endpoint};
use crate::gate::{self, Habits, Pass};
use crate::house::{House, Live};
use crate::keyring::Grant;
use crate::observe::{Record, panics};
use crate::overload::Place;
use crate::reply::{self, Head};
use crate::request_id::RequestId;
use bytes::{Bytes, BytesMut};
use http::header;
use penstock_contract::{Code, Dialect, Refusal};
use penstock_limits::{Cost, Used, Work};
use pingora_core::protocols::http::ServerSession;
use pingora_error::ErrorType;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The longest body that is read to its end although it is refused.
const SHORT: usize = 1 << 20;
/// How long that may take.
const SWALLOW: Duration = Duration::from_millis(500);

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
    /// Seconds to keep the connection for another request; `None` closes it.
    pub keep: Option<u64>,
    /// The request came from a page's script.
    pub browser: bool,
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
    /// It ends without one: the answer was not written to its end.
    Cut,
}

/// Runs one request.
pub async fn run(house: &Arc<House>, session: &mut ServerSession, keep: Option<u64>) -> After {
    let path = session.req_header().uri.path().to_owned();
    let dialect = endpoint::dialect(&path, session.get_header("anthropic-version").is_some());
    session.set_keepalive(keep);
    let browser = session.get_header(header::ORIGIN).is_some();
    let mut exchange = Exchange::new(house, Caller::Connection(session), dialect, Work::Request);
    exchange.keep = keep;
    exchange.browser = browser;
    let served = panics::caught(serve(&mut exchange, &path)).await;
    let ended = match served.unwrap_or_else(|| Err(exchange.panicked())) {
        Ok(ended) => ended,
        Err(refusal) => exchange.refuse(&refusal).await,
    };
    exchange.record.end(matches!(ended, Ended::Left), exchange.caller.body_bytes_sent());
    house.observe(&exchange.record, exchange.started);
    match ended {
        Ended::Left => After::Cut,
        Ended::Written if keep.is_some() && exchange.caller.is_body_done() => After::Reuse,
        Ended::Written => After::End,
    }
}

/// Refuses a request whose head alone says that it is not to be served.
pub async fn refuse(house: &Arc<House>, session: &mut ServerSession, refusal: &Refusal) -> After {
    let path = session.req_header().uri.path().to_owned();
    let dialect = endpoint::dialect(&path, session.get_header("anthropic-version").is_some());
    let mut exchange = Exchange::new(house, Caller::Connection(session), dialect, Work::Request);
    let ended = exchange.refuse(refusal).await;
    exchange.record.end(matches!(ended, Ended::Left), exchange.caller.body_bytes_sent());
    house.observe(&exchange.record, exchange.started);
    if matches!(ended, Ended::Left) { After::Cut } else { After::End }
}

/// From the route to the endpoint.
async fn serve(x: &mut Exchange<'_>, path: &str) -> Result<Ended, Refusal> {
    let method = x.caller.req_header().method.clone();
    if method == http::Method::OPTIONS && x.browser {
        return Ok(x.preflight().await);
    }
    let (found, tail) = endpoint::find(&method, path)?;
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
        Self {
            house,
            live: house.live(),
            caller,
            id,
            started: Instant::now(),
            dialect,
            grant: Grant::nobody(),
            work,
            place: None,
            pass: None,
            record: Record::new(id, dialect),
            keep: None,
            browser: false,
        }
    }
}

impl Exchange<'_> {
    /// Finds the key and checks its scope.
    fn authenticate(&mut self, endpoint: &dyn Endpoint) -> Result<(), Refusal> {
        let head = self.caller.req_header();
        let authorization = head.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let api_key = head.headers.get("x-api-key").map(|value| value.as_bytes());
        self.grant = self.house.keyring.admit(authorization, api_key)?;
        self.record.key = Some(self.grant.public_id.clone());
        self.grant.require(endpoint.scope())
    }

    /// Reads the whole JSON body within its limits.
    ///
    /// # Errors
    /// Wrong content type, too large, too slow, cut short.
    pub async fn json_body(&mut self) -> Result<Bytes, Refusal> {
        self.json_only()?;
        let limits = &self.live.settings.limits;
        let (cap, within, idle) = (limits.json_body, limits.body, limits.body_idle);
        let announced = self.invite(cap, cap).await?;
        let body = timeout(within, gather(&mut self.caller, announced, (cap, idle), self.place.as_mut()))
            .await
            .unwrap_or_else(|_| Err(Refusal::new(Code::RequestTimeout)));
        self.invited(body.is_ok());
        let body = body?;
        #[cfg(feature = "inject")]
        self.house.inject.at(crate::inject::At::Body);
        self.record.bytes_in = body.len();
        Ok(body)
    }

    /// Lets a client that waits for it send its body, unless that is too large or the
    /// house has enough to do; returns the announced length. Of the body at most `held`
    /// bytes are in memory.
    ///
    /// # Errors
    /// Larger than `cap`; no place in the house.
    pub(crate) async fn invite(&mut self, cap: usize, held: usize) -> Result<Option<usize>, Refusal> {
        let announced = self.content_length()?;
        if announced.is_some_and(|length| length > cap) {
            self.keep = None;
            return Err(too_large(cap));
        }
        self.enter(announced.unwrap_or(0).min(held)).await?;
        if self.caller.get_header_bytes(header::EXPECT).eq_ignore_ascii_case(b"100-continue") {
            self.caller.write_continue_response().await;
        }
        Ok(announced)
    }

    /// Takes a place in the house, or waits a moment for one. A line of a batch takes none.
    async fn enter(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.work == Work::BatchLine {
            return Ok(());
        }
        let wait = self.live.settings.overload.wait;
        let (place, waited) = self.house.overload.enter(&self.grant.account.id, bytes, wait).await;
        if let Some(waited) = waited {
            self.record.queued += waited;
            self.house.metrics.queued("house", waited);
        }
        self.place = Some(place?);
        Ok(())
    }

    /// Holds so many bytes more until it is over.
    ///
    /// # Errors
    /// 503: all requests together hold too many.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        let overload = &self.house.overload;
        self.place.get_or_insert_with(|| overload.line()).grow(bytes)
    }

    /// It met a mistake of the gateway's own: the connection, in whatever state it is, serves no other.
    pub(crate) fn panicked(&mut self) -> Refusal {
        self.house.metrics.panicked();
        self.keep = None;
        Refusal::new(Code::Internal)
    }

    /// The body is read, or will not be.
    pub(crate) fn invited(&mut self, whole: bool) {
        // The interim response marks the connection for closing while a body is unread.
        if !whole {
            self.keep = None;
        }
        self.caller.set_keepalive(self.keep);
    }

    pub(crate) fn plain_encoding(&self) -> Result<(), Refusal> {
        let encoding = self.caller.get_header_bytes(header::CONTENT_ENCODING);
        if encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        Err(Refusal::because(
            Code::UnsupportedMediaType,
            "Compressed request bodies are not read; send the body without content-encoding.",
        ))
    }

    fn json_only(&self) -> Result<(), Refusal> {
        self.plain_encoding()?;
        let kind = self.caller.get_header_bytes(header::CONTENT_TYPE);
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if essence.is_empty() || essence.eq_ignore_ascii_case(b"application/json") {
            return Ok(());
        }
        Err(Refusal::because(
            Code::UnsupportedMediaType,
            "This path reads JSON; send content-type: application/json.",
        ))
    }

    fn content_length(&self) -> Result<Option<usize>, Refusal> {
        let value = self.caller.get_header_bytes(header::CONTENT_LENGTH);
        if value.is_empty() {
            return Ok(None);
        }
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .map(Some)
            .ok_or_else(|| Refusal::because(Code::InvalidRequest, "content-length is not a number."))
    }

    /// Takes what the ask may use from the limits of its key and account, before anything is sent.
    /// What was taken goes back with the end of the exchange, but for what [`Exchange::used`] says.
    ///
    /// # Errors
    /// 429 for a limit, 402 for a budget.
    pub fn pass(&mut self, cost: &Cost) -> Result<(), Refusal> {
        let pass = gate::pass(&self.grant, cost, self.work, self.house.clock);
        self.pass = Some(pass.map_err(|hit| self.limited(hit))?);
        Ok(())
    }

    /// Refuses what no ask could pass, before any work is put into it; else what is known of the key.
    ///
    /// # Errors
    /// As [`Exchange::pass`].
    pub fn early(&self) -> Result<Habits, Refusal> {
        gate::early(&self.grant, self.work, self.house.clock).map_err(|hit| self.limited(hit))
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

    /// Scheme and host by which this client reaches the gateway: as configured,
    /// else what it asked itself.
    pub fn public_url(&self) -> String {
        if let Some(url) = &self.live.settings.listen.public_url {
            return url.to_string();
        }
        let head = self.caller.req_header();
        let asked = head.uri.authority().map(http::uri::Authority::as_str);
        let host = asked.or_else(|| head.headers.get(header::HOST)?.to_str().ok());
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let host = host.filter(|host| !host.is_empty() && host.bytes().all(may));
        let scheme = if self.caller.is_tls() { "https" } else { "http" };
        host.map_or_else(String::new, |host| format!("{scheme}://{host}"))
    }

    /// A response head of this exchange, with how the limits stand if it met any.
    ///
    /// # Errors
    /// Never for a real status.
    pub fn head(&self, status: u16) -> pingora_error::Result<Head> {
        let mut head = Head::new(status, &self.id)?;
        if self.pass.is_some() && self.work == Work::Request {
            let now = self.house.clock.now();
            head = head.standing(self.dialect, &gate::standing(&self.grant, now), now)?;
        }
        if self.browser { head.for_browser(false) } else { Ok(head) }
    }

    /// Answers with a JSON body of the gateway's own.
    pub async fn answer(&mut self, status: u16, body: Vec<u8>) -> Ended {
        self.record.status = status;
        let Ok(head) = self.head(status) else { return Ended::Left };
        ended(head.json(&mut self.caller, vec![Bytes::from(body)]).await)
    }

    /// Speaks a refusal; after a stream has begun there is nothing left to say.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) -> Ended {
        self.record.refused(refusal);
        if self.caller.answered() {
            return Ended::Left;
        }
        self.swallow().await;
        if self.keep.is_none() || !self.caller.is_body_done() {
            // Unread bytes of a refused body are not worth reading.
            self.caller.set_keepalive(None);
            self.keep = None;
        }
        // Before the client hears of it: whoever asks again at once finds the place free.
        let met = self.pass.take().is_some();
        self.place = None;
        let limited = matches!(refusal.code, Code::RateLimited | Code::BudgetExceeded);
        let now = self.house.clock.now();
        let limits = (met || limited).then(|| (gate::standing(&self.grant, now), now));
        let (dialect, id, browser) = (self.dialect, self.id, self.browser);
        let written = reply::refuse(&mut self.caller, dialect, &id, refusal, limits, browser).await;
        ended(written)
    }

    /// Reads what is left of a short body: a connection that is closed over unread
    /// bytes is reset, and may take the refusal with it.
    async fn swallow(&mut self) {
        let awaits = !self.caller.get_header_bytes(header::EXPECT).is_empty();
        let short = self.content_length().ok().flatten().is_some_and(|length| length <= SHORT);
        if short && !awaits && !self.caller.is_body_done() {
            let rest = async { while let Ok(Some(_)) = self.caller.read_request_body().await {} };
            timeout(SWALLOW, rest).await.ok();
        }
    }

    async fn preflight(&mut self) -> Ended {
        self.record.endpoint = "preflight";
        self.record.status = 204;
        let Ok(head) = Head::new(204, &self.id).and_then(|head| head.for_browser(true)) else {
            return Ended::Left;
        };
        ended(head.json(&mut self.caller, Vec::new()).await)
    }
}

/// Whether a write reached its end.
pub fn ended(written: pingora_error::Result<()>) -> Ended {
    if written.is_ok() { Ended::Written } else { Ended::Left }
}

pub(crate) fn too_large(cap: usize) -> Refusal {
    Refusal::because(Code::TooLarge, format!("The request body is larger than {cap} bytes."))
        .with("limit_bytes", cap)
}

/// A body that could not be read to its end: too slow, or cut short.
pub(crate) fn unread(error: &pingora_error::Error) -> Refusal {
    match error.etype() {
        ErrorType::ReadTimedout => Refusal::new(Code::RequestTimeout),
        _ => Refusal::because(Code::InvalidRequest, "The request body ended before its announced length."),
    }
}

/// Gathers a body in one buffer, never more than `cap`. A body that comes in one
/// piece is not copied.
async fn gather(
    caller: &mut Caller<'_>,
    announced: Option<usize>,
    (cap, idle): (usize, Duration),
    mut place: Option<&mut Place>,
) -> Result<Bytes, Refusal> {
    let whole = matches!(caller, Caller::Line(_));
    let Some(first) = more(caller, idle).await? else {
        return Ok(Bytes::new());
    };
    if announced == Some(first.len()) || (whole && first.len() <= cap) {
        return Ok(first);
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(first.len() * 2).min(cap));
    let mut next = Some(first);
    while let Some(piece) = next {
        if body.len() + piece.len() > cap {
            return Err(too_large(cap));
        }
        if let Some(place) = place.as_deref_mut().filter(|_| announced.is_none()) {
            place.grow(piece.len())?;
        }
        body.extend_from_slice(&piece);
        next = more(caller, idle).await?;
    }
    Ok(body.freeze())
}

/// The next piece of a body, within the silence that it may keep.
async fn more(caller: &mut Caller<'_>, idle: Duration) -> Result<Option<Bytes>, Refusal> {
    // A session of HTTP/1.1 watches this itself.
    if caller.in_chunks() {
        return caller.read_request_body().await.map_err(|error| unread(&error));
    }
    match timeout(idle, caller.read_request_body()).await {
        Ok(read) => read.map_err(|error| unread(&error)),
        Err(_) => Err(Refusal::new(Code::RequestTimeout)),
    }
}
