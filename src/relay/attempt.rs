//! One attempt up to the provider's response head: connection, request, status.

use super::Run;
use super::watch::Woken;
use crate::spool::Spooled;
use crate::upstream::connect::{self, Link, Unsent, Way};
use crate::upstream::decode::Decoder;
use crate::upstream::offer::OfferLive;
use crate::upstream::speech::Speech;
use bytes::{Bytes, BytesMut};
use http::header;
use penstock_contract::{Call, Dialect, Fault, FaultKind, Refusal, Target, Translator};
use pingora_error::ErrorType;
use pingora_http::RequestHeader;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why an attempt did not answer.
pub enum Stop {
    /// The provider failed, or blames the caller.
    Fault(Fault),
    /// The request cannot be said to this offer; another may do.
    Pass(Refusal),
    /// The client left.
    Left,
    /// The client's key was revoked.
    Revoked,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A provider that has begun to answer with 200.
pub struct Answering {
    /// The connection.
    pub way: Way,
    /// Undoes its content encoding.
    pub decoder: Decoder,
    /// Latest end of this attempt.
    pub until: Instant,
}

/// Bytes of an error body that are read to learn what is wrong.
const ERROR_BODY: usize = 64 * 1024;
/// How long they are waited for.
const ERROR_WAIT: Duration = Duration::from_secs(2);
/// Pooled connections that may turn out to be closed before a new one is made.
pub const STALE: usize = 3;
/// Slices in which a long body is written, so that a write timeout covers little.
const SLICE: usize = 64 * 1024;

/// The translator for an offer that is asked for a stream.
pub fn translator(run: &Run<'_, '_>, offer: &OfferLive) -> Result<&'static dyn Translator, Stop> {
    match speech(run, offer)? {
        Speech::Dialects(translator) => Ok(translator),
        Speech::Shape(_) => Err(malformed()),
    }
}

/// How an offer is asked.
pub fn speech(run: &Run<'_, '_>, offer: &OfferLive) -> Result<Speech, Stop> {
    Speech::of(offer, run.ask).ok_or_else(malformed)
}

/// What a translator needs to know of an offer.
pub fn target<'t>(run: &'t Run<'_, '_>, offer: &'t OfferLive, dialect: Dialect, created: u64) -> Target<'t> {
    Target {
        model: &offer.offer.name,
        dialect,
        abilities: &offer.offer.abilities,
        preset: run.chosen.preset(offer),
        max_tokens: run.chosen.max_tokens(offer, run.ask),
        answer_model: run.chosen.answer_model(offer),
        id: run.x.id.unique(),
        created,
    }
}

/// Sends the request and waits for a head that says 200.
pub async fn open(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    call: &Call,
    first_byte: Duration,
) -> Result<Answering, Stop> {
    let until = run.deadline.min(Instant::now() + offer.offer.provider.timeouts.total);
    for _ in 0..STALE {
        match once(run, offer, speech, call, first_byte, until).await {
            // The provider closed an idle connection at the very moment it was used.
            Err((Stop::Fault(fault), true)) if fault.kind == FaultKind::Reset => {}
            Err((stop, _)) => return Err(stop),
            Ok(answering) => return Ok(answering),
        }
    }
    once(run, offer, speech, call, first_byte, until).await.map_err(|(stop, _)| stop)
}

/// One try on one connection; with an error, whether the connection was a pooled one.
async fn once(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    call: &Call,
    first_byte: Duration,
    until: Instant,
) -> Result<Answering, (Stop, bool)> {
    let connect = pin!(offer.provider.route.open());
    let link = match run.watch.race(&mut run.x.caller, connect, until).await {
        Woken::Done(link) => link.map_err(|fault| (Stop::Fault(fault), false))?,
        woken => return Err((woken.stop(FaultKind::Connect, run.deadline), false)),
    };
    let reused = link.reused();
    let alarm = until.min(Instant::now() + first_byte);
    let asked = {
        let exchange = pin!(send(link, offer, speech, call, run.upload.as_ref()));
        run.watch.race(&mut run.x.caller, exchange, alarm).await
    };
    let way = match asked {
        Woken::Done(sent) => sent.map_err(|fault| (Stop::Fault(fault), reused))?,
        woken => return Err((woken.stop(FaultKind::FirstByte, run.deadline), false)),
    };
    let (status, encoding) = match way.session.response_header() {
        Some(head) => {
            let encoding = head.headers.get(header::CONTENT_ENCODING);
            (head.status.as_u16(), encoding.map(|value| value.as_bytes().to_vec()).unwrap_or_default())
        }
        None => return Err((Stop::Fault(Fault::new(FaultKind::Reset)), reused)),
    };
    let cap = run.x.live.settings.limits.response_buffer;
    let decoder = Decoder::new(&encoding, cap).map_err(|_| (malformed(), false))?;
    let answering = Answering { way, decoder, until };
    if status == 200 {
        return Ok(answering);
    }
    Err((Box::pin(refused(run, offer, speech, answering, status)).await, false))
}

fn malformed() -> Stop {
    Stop::Fault(Fault::new(FaultKind::Malformed))
}

/// Writes head and body, then reads the response head. A provider may answer
/// early and stop reading, so a failed write still looks for its answer.
async fn send(
    link: Link,
    offer: &OfferLive,
    speech: Speech,
    call: &Call,
    upload: Option<&Spooled>,
) -> Result<Way, Fault> {
    let reset = || Fault::new(FaultKind::Reset);
    let head = speech.head(offer).ok_or_else(reset)?;
    let (mut way, written) = match link {
        Link::Stream(line) => line.ask(&head.wire, call, upload).await,
        Link::Session(mut way) => {
            let written = Box::pin(write(&mut way, head.parsed.clone(), call, upload)).await;
            (*way, written)
        }
    };
    let written = match written {
        Ok(()) => true,
        Err(Unsent::Stopped) => false,
        Err(Unsent::Unread(error)) => return Err(Fault::caller(crate::intake::disk(&error))),
    };
    way.whole = written;
    loop {
        match way.session.read_response_header().await {
            Ok(()) => {}
            Err(error) if matches!(error.etype(), ErrorType::InvalidHTTPHeader) => {
                return Err(Fault::new(FaultKind::Malformed));
            }
            Err(_) => return Err(reset()),
        }
        match way.session.response_header() {
            Some(head) if head.status.is_informational() => {}
            // After a failed write the answer counts only if it says why.
            Some(head) if !written && head.status == 200 => return Err(reset()),
            Some(_) => return Ok(way),
            None => return Err(reset()),
        }
    }
}

async fn write(
    way: &mut Way,
    mut head: RequestHeader,
    call: &Call,
    upload: Option<&Spooled>,
) -> Result<(), Unsent> {
    let mut left = connect::length(call, upload);
    head.insert_header(header::CONTENT_TYPE, &*call.content_type)?;
    head.insert_header(header::CONTENT_LENGTH, left)?;
    way.session.write_request_header(Box::new(head)).await?;
    for (index, piece) in call.body.iter().enumerate() {
        if let Some(upload) = upload.filter(|_| call.upload == Some(index)) {
            let mut at = 0;
            while at < upload.len() {
                let slice = upload.read(at).await.map_err(Unsent::Unread)?;
                at += slice.len() as u64;
                left -= slice.len() as u64;
                way.session.write_request_body(slice, left == 0).await?;
            }
        }
        let mut piece = piece.clone();
        while !piece.is_empty() {
            let slice = piece.split_to(piece.len().min(SLICE));
            left -= slice.len() as u64;
            way.session.write_request_body(slice, left == 0).await?;
        }
    }
    Ok(way.session.finish_request_body().await?)
}

/// Reads what a status other than 200 has to say, and gives it its kind.
async fn refused(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    mut answering: Answering,
    status: u16,
) -> Stop {
    let retry_after = answering
        .way
        .session
        .response_header()
        .and_then(|head| head.headers.get(header::RETRY_AFTER))
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let mut body = BytesMut::new();
    let alarm = Instant::now() + ERROR_WAIT;
    let whole = loop {
        let read = {
            let read = pin!(answering.way.session.read_response_body());
            run.watch.race(&mut run.x.caller, read, alarm).await
        };
        match read {
            Woken::Done(Ok(Some(piece))) if body.len() + piece.len() <= ERROR_BODY => {
                let Ok(piece) = answering.decoder.push(piece) else { break false };
                body.extend_from_slice(&piece);
            }
            Woken::Done(Ok(None)) => break true,
            Woken::Left => return Stop::Left,
            Woken::Revoked => return Stop::Revoked,
            Woken::Done(_) | Woken::Alarm => break false,
        }
    };
    if whole {
        answering.way.release().await;
    }
    let window = offer.offer.context_length;
    let fault = penstock_dialect::classify(speech.dialect(), status, retry_after.as_deref(), &body, window);
    Stop::Fault(fault)
}

/// Reads the next bytes of an answer; `None` at its end.
pub async fn read(
    run: &mut Run<'_, '_>,
    answering: &mut Answering,
    alarm: Instant,
    silent: FaultKind,
) -> Result<Option<Bytes>, Stop> {
    let alarm = alarm.min(answering.until);
    let read = {
        let read = pin!(answering.way.session.read_response_body());
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
    /// A wait that brought nothing, as the end of an attempt.
    pub fn stop(self, silent: FaultKind, deadline: Instant) -> Stop {
        match self {
            Self::Left => Stop::Left,
            Self::Revoked => Stop::Revoked,
            Self::Alarm if Instant::now() >= deadline => Stop::Fault(Fault::new(FaultKind::Deadline)),
            Self::Alarm | Self::Done(_) => Stop::Fault(Fault::new(silent)),
        }
    }
}
