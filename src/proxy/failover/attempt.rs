//! Attempt at a provider up to its response head: connection, request, status.

use super::Run;
use super::wait::Woken;
use crate::config::settings::{LogLevel, Provider};
use crate::storage::spool::Spooled;
use crate::telemetry::{Trace, log};
use crate::time::clock;
use crate::time::format;
use crate::upstream::content_encoding::Decoder;
use crate::upstream::http1::Broken;
use crate::upstream::offer::OfferLive;
use crate::upstream::send::Unsent;
use crate::upstream::upstream_exchange::Way;
use crate::upstream::wire_format::Speech;

use bytes::{Bytes, BytesMut};
use penstock_contract::{Call, Dialect, Extra, Extras, Fault, FaultKind, Refusal, Target, Translator};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Failure of an attempt.
pub enum Stop {
    /// Fault of the provider, or of the caller as the provider reports it.
    Fault(Fault),
    /// Request that cannot be sent to this offer; another may take it.
    Pass(Refusal),
    /// Refusal that may be due to the number of choices: each choice is requested separately.
    OneByOne,
    /// Error of the gateway with the response: no other provider is asked, since it would occur again.
    Own(Refusal),
    /// Client that has left.
    Left,
    /// API key that was revoked.
    Revoked,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Response of a provider after its head with status 200.
pub struct Answering {
    /// Connection and response head.
    pub way: Way,
    /// Decoder of the content encoding.
    pub decoder: Decoder,
    /// Deadline of this attempt.
    pub until: Instant,
}

/// Most bytes of an error body that are read.
const ERROR_BODY: usize = 64 * 1024;
/// Timeout of reading an error body.
const ERROR_WAIT: Duration = Duration::from_secs(2);

/// Returns the translator of an offer that is asked for a stream.
pub fn translator(run: &Run<'_, '_>, offer: &OfferLive) -> Result<&'static dyn Translator, Stop> {
    match speech(run, offer)? {
        Speech::Dialects(translator) => Ok(translator),
        Speech::Shape(_) => Err(malformed()),
    }
}

/// Returns the wire format of an offer: a dialect, or a provider's shape.
pub fn speech(run: &Run<'_, '_>, offer: &OfferLive) -> Result<Speech, Stop> {
    Speech::of(offer, run.ask).ok_or_else(malformed)
}

/// Returns the parameters of an offer for its translator.
pub fn target<'t>(run: &'t Run<'_, '_>, offer: &'t OfferLive, dialect: Dialect, created: u64) -> Target<'t> {
    Target {
        model: &offer.offer.name,
        dialect,
        abilities: &offer.offer.abilities,
        preset: run.chosen.preset(offer),
        max_tokens: run.max_tokens(offer),
        adjust: run.adjust(offer),
        answer_model: run.chosen.answer_model(offer),
        id: run.x.id.unique(),
        created,
    }
}

/// Sends the request and waits for a response head with status 200.
pub async fn open(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    call: &Call,
    first_byte: Duration,
) -> Result<Answering, Stop> {
    let until = run.deadline.min(clock::now() + offer.offer.provider.timeouts.total);
    let mut again = 0;
    loop {
        match once(run, offer, speech, call, first_byte, until).await {
            // The provider closed the idle connection while it was taken from the pool.
            Err((_, most)) if again < most => again += 1,
            Err((stop, _)) => return Err(stop),
            Ok(answering) => return Ok(answering),
        }
    }
}

/// Sends the request on one connection. An error comes with the number of other connections that may be tried.
async fn once(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    call: &Call,
    first_byte: Duration,
    until: Instant,
) -> Result<Answering, (Stop, usize)> {
    let connect = pin!(offer.provider.route.open());
    let way = match run.watch.race(&mut run.x.caller, connect, until).await {
        Woken::Done(way) => way.map_err(|fault| (Stop::Fault(fault), 0))?,
        woken => return Err((woken.stop(FaultKind::Connect, run.deadline), 0)),
    };
    let alarm = until.min(clock::now() + first_byte);
    let without = run.adjust(offer).without;
    let asked = {
        let trace = run.x.state.record.trace.as_deref().filter(|_| !without.has(Extra::TraceContext));
        let exchange = pin!(send(way, offer, speech, call, without, (run.upload.as_ref(), trace)));
        run.watch.race(&mut run.x.caller, exchange, alarm).await
    };
    let (way, status) = match asked {
        Woken::Done(sent) => sent.map_err(|(fault, again)| (Stop::Fault(fault), again))?,
        woken => return Err((woken.stop(FaultKind::FirstByte, run.deadline), 0)),
    };
    let cap = run.x.live.settings.limits.response_buffer;
    let decoder = Decoder::new(way.field("content-encoding").unwrap_or_default(), cap).ok();
    if status != 200 {
        return Err((Box::pin(refused(run, offer, speech, (way, decoder), status)).await, 0));
    }
    let decoder = decoder.ok_or_else(|| (malformed(), 0))?;
    Ok(Answering { way, decoder, until })
}

fn malformed() -> Stop {
    Stop::Fault(Fault::new(FaultKind::Malformed))
}

/// Writes head and body, then reads the response head. A provider may answer early and stop reading, so the head is
/// read after a failed write too. An error comes with the number of other connections that may be tried.
async fn send(
    mut way: Way,
    offer: &OfferLive,
    speech: Speech,
    call: &Call,
    without: Extras,
    (upload, trace): (Option<&Spooled>, Option<&Trace>),
) -> Result<(Way, u16), (Fault, usize)> {
    let reset = |again| (Fault::new(FaultKind::Reset), again);
    let head = speech.head(offer).ok_or_else(|| reset(0))?;
    let shortened = (without.headers().next().is_some()).then(|| head.without(without.headers()));
    let written = match way.call(shortened.as_ref().unwrap_or(head), call, upload, trace).await {
        Ok(()) => true,
        Err(Unsent::Unasked) => return Err(reset(way.again(Broken::Unasked))),
        Err(Unsent::Stopped) => false,
        Err(Unsent::Unread(error)) => return Err((Fault::caller(crate::storage::files::disk(&error)), 0)),
    };
    match way.read_head().await {
        // After a failed write only an error status counts.
        Ok(200) if !written => Err(reset(0)),
        Ok(status) => Ok((way, status)),
        Err(Broken::Malformed) => Err((Fault::new(FaultKind::Malformed), 0)),
        Err(broken) => Err(reset(way.again(broken))),
    }
}

/// Reads the body of a status other than 200 and classifies the fault. In an unknown encoding only the status counts.
async fn refused(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    (mut way, mut decoder): (Way, Option<Decoder>),
    status: u16,
) -> Stop {
    let retry_after =
        way.field("retry-after").and_then(text).map(|said| rest(said, run.x.house.clock.date()));
    let mut body = BytesMut::new();
    let alarm = clock::now() + ERROR_WAIT;
    let whole = loop {
        if clock::now() >= alarm {
            break false;
        }
        let read = {
            let read = pin!(way.read_body());
            run.watch.race(&mut run.x.caller, read, alarm).await
        };
        match read {
            Woken::Done(Ok(Some(piece))) if body.len() + piece.len() <= ERROR_BODY => {
                let Some(Ok(piece)) = decoder.as_mut().map(|decoder| decoder.push(piece)) else {
                    break false;
                };
                body.extend_from_slice(&piece);
            }
            Woken::Done(Ok(None)) => break true,
            Woken::Left => return Stop::Left,
            Woken::Revoked => return Stop::Revoked,
            Woken::Done(_) | Woken::Alarm => break false,
        }
    };
    if whole {
        way.release().await;
    }
    let window = offer.offer.context_length;
    let (dialect, request) = (speech.dialect(), &run.ask.body);
    let mut fault =
        penstock_dialect::classify(dialect, status, retry_after.as_deref(), &body, window, request);
    if let Some(refusal) = &mut fault.refusal {
        hide_secrets(&offer.offer.provider, refusal);
    }
    Stop::Fault(fault)
}

/// Removes the provider's key and the values of its configured headers from the provider's error message: some
/// providers repeat the request there.
fn hide_secrets(provider: &Provider, refusal: &mut Refusal) {
    let headers = provider.headers.iter().map(|(_, value)| value);
    for secret in provider.api_key.iter().chain(headers) {
        let secret = secret.reveal();
        if !secret.is_empty() && refusal.message.contains(secret) {
            refusal.message = refusal.message.replace(secret, "…").into();
        }
    }
}

/// Logs the error message of a provider, without any part of the request.
pub fn tell_refused(run: &Run<'_, '_>, offer: &OfferLive, refusal: &Refusal) {
    let fields = [
        ("id", run.x.id.as_str()),
        ("provider", &*offer.offer.provider.id),
        ("model", &*offer.offer.model.card.id),
        ("code", refusal.row().code),
        ("param", refusal.param.as_deref().unwrap_or_default()),
        ("says", &*refusal.message),
    ];
    log::event(LogLevel::Info, "refused_by_provider", &fields);
}

/// Returns a `Retry-After` in seconds: a date becomes the time until then, since the plugins have no clock.
fn rest(said: String, now: Duration) -> String {
    format::until(&said, now).map_or(said, |seconds| seconds.to_string())
}

/// Returns the value of a header field, if it is text.
pub fn text(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().map(|value| value.trim().to_owned())
}

/// Reads the next bytes of a response body until `alarm`; `None` at its end.
pub async fn read(
    run: &mut Run<'_, '_>,
    answering: &mut Answering,
    alarm: Instant,
    silent: FaultKind,
) -> Result<Option<Bytes>, Stop> {
    let alarm = alarm.min(answering.until);
    let read = if clock::now() >= alarm {
        Woken::Alarm
    } else {
        let read = pin!(answering.way.read_body());
        run.watch.race(&mut run.x.caller, read, alarm).await
    };
    match read {
        Woken::Done(Ok(Some(piece))) => answering.decoder.push(piece).map(Some).map_err(|_| malformed()),
        Woken::Done(Ok(None)) => Ok(None),
        Woken::Done(Err(_)) => Err(Stop::Fault(Fault::new(FaultKind::Reset))),
        woken => Err(woken.stop(silent, run.deadline)),
    }
}

impl<T> Woken<T> {
    /// Converts a wait without a result to the failure of an attempt.
    pub fn stop(self, silent: FaultKind, deadline: Instant) -> Stop {
        match self {
            Self::Left => Stop::Left,
            Self::Revoked => Stop::Revoked,
            Self::Alarm if clock::now() >= deadline => Stop::Fault(Fault::new(FaultKind::Deadline)),
            Self::Alarm | Self::Done(_) => Stop::Fault(Fault::new(silent)),
        }
    }
}
