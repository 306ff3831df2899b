//! Request body: admission of it, its limits, and reading it into one buffer.

use super::Exchange;
use crate::http::buffer_pool::Buffers;
use crate::limits::admission_control::Place;
use crate::proxy::downstream::Caller;
use crate::time::clock;
use bytes::{Buf, Bytes};
use http::header;
use penstock_contract::{Code, Refusal};
use penstock_limits::Work;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{timeout, timeout_at};

/// Longest refused body that is read to its end, bytes.
const SHORT: usize = 1 << 20;
/// Timeout of that read.
const SWALLOW: Duration = Duration::from_millis(500);
/// Longest body that needs no wider window of its HTTP/2 connection, bytes.
const BRIEF: usize = 4 << 10;

impl Exchange<'_> {
    /// Reads the JSON body within its limits.
    ///
    /// # Errors
    /// Wrong content type, too large, too slow, cut short.
    pub async fn json_body(&mut self) -> Result<Bytes, Refusal> {
        self.json_only()?;
        let limits = &self.live.settings.limits;
        let (cap, within, idle) = (limits.json_body, limits.body, limits.body_idle);
        let announced = self.invite(cap, None).await?;
        let body = timeout_at(
            (clock::now() + within).into(),
            gather(&mut self.caller, &self.house.buffers, announced, (cap, idle), self.state.place.as_mut()),
        )
        .await
        .unwrap_or_else(|_| Err(Refusal::new(Code::RequestTimeout)));
        self.invited(body.is_ok());
        let body = without_mark(body?);
        #[cfg(feature = "inject")]
        self.house.inject.at(crate::net::fault_injection::At::Body);
        self.record.bytes_in = body.len();
        Ok(body)
    }

    /// Admits the body and sends `100 Continue` to a client that waits for it; returns the announced length. Of a body
    /// that goes to the disk at most `held` bytes are in memory; they count from the start.
    ///
    /// # Errors
    /// A body larger than `cap`, or no permit of admission control.
    pub(crate) async fn invite(&mut self, cap: usize, held: Option<usize>) -> Result<Option<usize>, Refusal> {
        let announced = self.content_length()?;
        if announced.is_some_and(|length| length > cap) {
            self.keep = false;
            return Err(too_large(cap));
        }
        let held =
            held.map_or(announced.unwrap_or(0), |held| announced.map_or(held, |length| length.min(held)));
        self.enter(held).await?;
        self.caller.reads(announced.is_none_or(|length| length > BRIEF));
        if self.caller.field(header::EXPECT).unwrap_or_default().eq_ignore_ascii_case(b"100-continue") {
            self.caller.write_continue_response().await;
        }
        Ok(announced)
    }

    /// Takes a permit of admission control, or waits a moment for one. A line of a batch takes none.
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

    /// Counts more bytes of memory until the end of the exchange.
    ///
    /// # Errors
    /// 503 if all requests together hold too many.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        let overload = &self.house.overload;
        self.place.get_or_insert_with(|| overload.line()).grow(bytes)
    }

    /// Records a panic: the connection, whose state is unknown, serves no other request.
    pub(crate) fn panicked(&mut self) -> Refusal {
        self.house.metrics.panicked();
        self.keep = false;
        Refusal::new(Code::Internal)
    }

    /// Ends the read of a body; `whole` is true if it is complete.
    pub(crate) fn invited(&mut self, whole: bool) {
        self.caller.reads(false);
        // The interim response marks the connection for closing while a body is unread.
        if !whole {
            self.keep = false;
        }
        self.caller.keep(self.keep);
    }

    pub(crate) fn plain_encoding(&self) -> Result<(), Refusal> {
        let encoding = self.caller.field(header::CONTENT_ENCODING).unwrap_or_default();
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
        let kind = self.caller.field(header::CONTENT_TYPE).unwrap_or_default();
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
        let value = self.caller.field(header::CONTENT_LENGTH).unwrap_or_default();
        if value.is_empty() {
            return Ok(None);
        }
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .map(Some)
            .ok_or_else(|| Refusal::because(Code::InvalidRequest, "content-length is not a number."))
    }

    /// Reads the rest of a short body: a connection that is closed with unread bytes is reset, and the client may lose
    /// the refusal.
    pub(super) async fn swallow(&mut self) {
        let awaits = !self.caller.field(header::EXPECT).unwrap_or_default().is_empty();
        let short = self.content_length().ok().flatten().is_some_and(|length| length <= SHORT);
        if short && !awaits && !self.caller.is_body_done() {
            let rest = async { while let Ok(Some(_)) = self.caller.read_request_body().await {} };
            timeout(SWALLOW, rest).await.ok();
        }
    }
}

/// Byte order mark in UTF-8, which some editors and libraries write before a text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Removes a byte order mark, which is not part of JSON and which readers may ignore (RFC 8259 §8.1).
fn without_mark(mut body: Bytes) -> Bytes {
    if body.starts_with(MARK) {
        body.advance(MARK.len());
    }
    body
}

pub(crate) fn too_large(cap: usize) -> Refusal {
    Refusal::because(Code::TooLarge, format!("The request body is larger than {cap} bytes."))
        .with("limit_bytes", cap)
}

/// Refusal of a body that was not read to its end: too slow, or cut short.
pub(crate) fn unread(error: &std::io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::TimedOut => Refusal::new(Code::RequestTimeout),
        ErrorKind::InvalidData => {
            Refusal::because(Code::InvalidRequest, "The chunks of the body are not sound.")
        }
        _ => Refusal::because(Code::InvalidRequest, "The request body ended before its announced length."),
    }
}

/// Reads a body of at most `cap` bytes into one buffer. A body that arrives in one piece is not copied; the rest of a
/// longer one is read into the buffer directly.
async fn gather(
    caller: &mut Caller<'_>,
    buffers: &Arc<Buffers>,
    announced: Option<usize>,
    (cap, idle): (usize, Duration),
    mut place: Option<&mut Place>,
) -> Result<Bytes, Refusal> {
    let whole = caller.line().is_some();
    let Some(first) = within(idle, caller.read_request_body()).await? else {
        return Ok(Bytes::new());
    };
    if announced == Some(first.len()) || (whole && first.len() <= cap) {
        return Ok(first);
    }
    let mut body = buffers.take(announced.unwrap_or(first.len() * 2).min(cap));
    body.extend_from_slice(&first);
    let mut read = first.len();
    drop(first);
    while read > 0 {
        if body.len() > cap {
            return Err(too_large(cap));
        }
        if let Some(place) = place.as_deref_mut().filter(|_| announced.is_none()) {
            place.grow(read)?;
        }
        read = within(idle, caller.read_into(&mut body)).await?;
    }
    Ok(body.freeze())
}

/// Awaits a read within the idle timeout of the client.
async fn within<T>(idle: Duration, read: impl Future<Output = std::io::Result<T>>) -> Result<T, Refusal> {
    match timeout_at((clock::now() + idle).into(), read).await {
        Ok(read) => read.map_err(|error| unread(&error)),
        Err(_) => Err(Refusal::new(Code::RequestTimeout)),
    }
}
