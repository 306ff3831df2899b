//! Who asks and hears the answer: a client over its connection, or a line of a
//! batch, which has its body already and keeps its answer. One exchange serves both.

use crate::ledger::Ending;
use crate::pace;
use crate::relay::Part;
use crate::reply::head::Head;
use crate::session::Session;
use bytes::{Bytes, BytesMut};
use http::Method;
use penstock_contract::Finish;
use std::io::{ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;

/// The caller of an exchange.
pub enum Caller<'a> {
    /// A client.
    Connection(&'a mut Session),
    /// A line of a batch.
    Line(&'a mut Line),
}

/// A line of a batch: no socket, and no headers either way.
#[derive(Default)]
pub struct Line {
    body: Option<Bytes>,
    begun: bool,
    sent: Vec<Bytes>,
    cancel: CancelLine,
    asked_back: CancelLine,
    /// It is one choice of a request for several.
    sink: Option<Sink>,
    /// How its reserve ends; entered with its answer.
    pub end: Option<Ending>,
}

/// Where the answer of one choice goes: to the exchange of the request that wants several.
pub struct Sink {
    /// Pieces of a stream; a whole answer is kept by its line.
    pieces: Option<Sender<Bytes>>,
    /// Who sends the first content of all choices, and at which attempt.
    told: Arc<OnceLock<(Box<str>, u32)>>,
    /// The signal that asks the request to leave, where that is a line of a batch.
    back: Option<CancelLine>,
    /// What the choice used.
    part: Option<Part>,
    /// Why it ended.
    finish: Option<Finish>,
}

impl Sink {
    /// A sink of these pieces.
    pub(crate) fn new(
        pieces: Option<Sender<Bytes>>,
        told: Arc<OnceLock<(Box<str>, u32)>>,
        back: Option<CancelLine>,
    ) -> Self {
        Self { pieces, told, back, part: None, finish: None }
    }
}

/// Tells once, to everybody who holds it, that their work is to end.
#[derive(Clone, Debug, Default)]
pub struct CancelLine(Arc<Cancellation>);

#[derive(Debug, Default)]
struct Cancellation {
    so: AtomicBool,
    told: Notify,
}

impl CancelLine {
    /// Tells.
    pub fn cancel(&self) {
        self.0.so.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    /// Whether it was told.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.so.load(Ordering::Acquire)
    }

    /// Ends when it is told.
    pub async fn cancelled(&self) {
        let told = self.0.told.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if !self.is_cancelled() {
            told.await;
        }
    }
}

impl Line {
    /// A line with this body, until `cancel` is told.
    #[must_use]
    pub fn new(body: Bytes, cancel: CancelLine) -> Self {
        Self { body: Some(body).filter(|body| !body.is_empty()), cancel, ..Self::default() }
    }

    /// One choice of a request for several, until `cancel` is told.
    pub(crate) fn choice(cancel: CancelLine, sink: Sink) -> Self {
        Self { sink: Some(sink), cancel, ..Self::default() }
    }

    /// What the choice used, and why it ended.
    pub(crate) fn take_part(&mut self) -> (Option<Part>, Option<Finish>) {
        self.sink.as_mut().map_or((None, None), |sink| (sink.part.take(), sink.finish))
    }

    /// Its batch wants no more of it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Its seat was needed by a request at once.
    #[must_use]
    pub fn was_asked_back(&self) -> bool {
        self.asked_back.is_cancelled()
    }

    /// Takes more of its answer.
    pub fn take(&mut self, pieces: Vec<Bytes>) {
        self.sent.extend(pieces);
    }

    /// Its answer.
    #[must_use]
    pub fn answer(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.sent)
    }
}

/// As of a session; a line reads its body in one piece and can always be written to.
impl Caller<'_> {
    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> &Method {
        match self {
            Self::Connection(session) => session.method(),
            Self::Line(_) => &Method::POST,
        }
    }

    /// The query of its target.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        match self {
            Self::Connection(session) => session.query(),
            Self::Line(_) => None,
        }
    }

    /// The host that was asked, and perhaps the port.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        match self {
            Self::Connection(session) => session.authority(),
            Self::Line(_) => None,
        }
    }

    /// A header of the request, its name in lower case.
    #[must_use]
    pub fn field(&self, name: impl AsRef<str>) -> Option<&[u8]> {
        match self {
            Self::Connection(session) => session.field(name.as_ref()),
            Self::Line(_) => None,
        }
    }

    /// Whether it came over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Connection(session) => session.is_tls(),
            Self::Line(_) => false,
        }
    }

    /// The next piece of the request's body, `None` at its end. Ends the turn of its task when that has read enough.
    ///
    /// # Errors
    /// It was cut short.
    pub async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Connection(session) => {
                pace::step().await;
                let piece = session.read_body().await?;
                pace::charge(piece.as_ref().map_or(0, Bytes::len));
                Ok(piece)
            }
            Self::Line(line) => Ok(line.body.take()),
        }
    }

    /// Reads more of it behind what `body` has; how much, 0 at its end.
    ///
    /// # Errors
    /// It was cut short.
    pub async fn read_into(&mut self, body: &mut BytesMut) -> Result<usize> {
        match self {
            Self::Connection(session) => {
                pace::step().await;
                let read = session.read_into(body).await?;
                pace::charge(read);
                Ok(read)
            }
            Self::Line(line) => {
                let piece = line.body.take().unwrap_or_default();
                body.extend_from_slice(&piece);
                Ok(piece.len())
            }
        }
    }

    /// Whether the body was read to its end.
    pub fn is_body_done(&mut self) -> bool {
        match self {
            Self::Connection(session) => session.is_body_done(),
            Self::Line(_) => true,
        }
    }

    /// Whether its body, a long one, is read from now on.
    pub fn reads(&mut self, read: bool) {
        if let Self::Connection(session) = self {
            session.reads(read);
        }
    }

    /// A client may leave what is written from now on waiting for so long at most.
    pub fn hurry(&mut self, within: Duration) {
        if let Self::Connection(session) = self {
            session.hurry(within);
        }
    }

    /// Ends only when the caller is gone.
    pub async fn gone(&mut self) {
        match self {
            Self::Connection(session) => session.gone().await,
            Self::Line(line) => tokio::select! {
                biased;
                () = line.cancel.cancelled() => {}
                () = line.asked_back.cancelled() => {}
            },
        }
    }

    /// The signal that asks a line to leave its seat.
    #[must_use]
    pub fn asked_back(&self) -> Option<CancelLine> {
        match self {
            Self::Connection(_) => None,
            Self::Line(Line { sink: Some(sink), .. }) => sink.back.clone(),
            Self::Line(line) => Some(line.asked_back.clone()),
        }
    }

    /// Tells a client that waits for it to send its body.
    pub async fn write_continue_response(&mut self) {
        if let Self::Connection(session) = self {
            session.write_continue().await;
        }
    }

    /// Whether the connection may serve another request.
    pub fn keep(&mut self, keep: bool) {
        if let Self::Connection(session) = self {
            session.keep(keep);
        }
    }

    /// Whether the answer is sent in chunks where its length is not told.
    #[must_use]
    pub fn in_chunks(&self) -> bool {
        match self {
            Self::Connection(session) => session.in_chunks(),
            Self::Line(_) => false,
        }
    }

    /// Takes the head of the answer, which leaves with what is written next, or with [`Caller::flush`].
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_header(&mut self, head: Head) -> Result<()> {
        match self {
            Self::Connection(session) => session.write_head(head).await,
            Self::Line(line) => {
                line.begun = true;
                Ok(())
            }
        }
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Connection(session) => session.flush().await,
            Self::Line(_) => Ok(()),
        }
    }

    /// Sends some of its body.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        match self {
            Self::Connection(session) => session.write_body(piece, end).await,
            Self::Line(Line { sink: Some(Sink { pieces: Some(pieces), .. }), .. }) => {
                pieces.send(piece).await.map_err(|_| ErrorKind::BrokenPipe.into())
            }
            Self::Line(line) => {
                line.take(vec![piece]);
                Ok(())
            }
        }
    }

    /// Sends a short body as one.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_whole(&mut self, pieces: &[Bytes]) -> Result<()> {
        match self {
            Self::Connection(session) => session.write_whole(pieces).await,
            Self::Line(line) => {
                line.take(pieces.to_vec());
                Ok(())
            }
        }
    }

    /// Keeps what one choice used for the request that wants several; gives it back where there is none.
    pub(crate) fn keep_part(&mut self, part: Part) -> std::result::Result<(), Part> {
        match self {
            Self::Line(Line { sink: Some(sink), .. }) => {
                sink.part = Some(part);
                Ok(())
            }
            Self::Connection(_) | Self::Line(_) => Err(part),
        }
    }

    /// Notes who sends the first content of a choice, and at which attempt.
    pub(crate) fn note_provider(&mut self, provider: &str, number: u32) {
        if let Self::Line(Line { sink: Some(sink), .. }) = self {
            // The first of all choices counts.
            let _ = sink.told.set((provider.into(), number));
        }
    }

    /// Notes why a choice ended.
    pub(crate) fn note_finish(&mut self, finish: Option<Finish>) {
        if let Self::Line(Line { sink: Some(sink), .. }) = self {
            sink.finish = finish;
        }
    }

    /// Whether the head of the answer has gone out.
    #[must_use]
    pub fn answered(&self) -> bool {
        match self {
            Self::Connection(session) => session.answered(),
            Self::Line(line) => line.begun,
        }
    }

    /// Size of the answer's body so far.
    #[must_use]
    pub fn body_bytes_sent(&self) -> usize {
        match self {
            Self::Connection(session) => session.body_bytes_sent(),
            Self::Line(line) => line.sent.iter().map(Bytes::len).sum(),
        }
    }
}
