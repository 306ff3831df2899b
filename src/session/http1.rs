//! A request over HTTP/1.1 or 1.0: its body in, its answer out in as few writes
//! as it takes. The head is proven already (`penstock_wire::head`). Where a body
//! ends is decided once; what comes after it belongs to nobody, and ends the
//! connection with this answer. Reading may be given up at any point and taken
//! up again.

use super::date;
use crate::reply::head::{Framing, Head};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::Method;
use penstock_wire::answer::{Chunks, Step};
use penstock_wire::head::Request;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use std::future::pending;
use std::io::{Error, ErrorKind, Result, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Most bytes that are read at once of a body that is handed on in pieces.
const PIECE: usize = 64 * 1024;
/// Room below which more is made before a read.
const CRAMPED: usize = 512;
/// Bytes that most requests have at most.
const USUAL: u64 = 4 * 1024;
/// What is kept of the bytes that a client sends ahead of its answer …
const AHEAD: usize = 16 * 1024;
/// … and how many more are read and thrown away, so that the end of the connection behind them is noticed. The
/// connection serves no other request then.
const PASSED_OVER: usize = 64 << 20;
/// Pieces of an answer up to here are written in one go with what stands around them; copying them costs less than
/// another write.
const SMALL: usize = 16 * 1024;
/// A buffer of so many times what was written from it is given back.
const ROOMY: usize = 4;

/// A request, its connection, and its answer.
pub struct Http1 {
    stream: Stream,
    request: Request,
    method: Method,
    /// What has come and was not read yet.
    buffer: BytesMut,
    /// Bytes behind it that were thrown away.
    passed_over: usize,
    body: Body,
    keep: bool,
    /// The house is told to stop: what is answered from then on is the last of its connection.
    stop: ShutdownWatch,
    answer: Answer,
    /// What is to be written next.
    out: BytesMut,
    sent: usize,
}

/// The request's body.
enum Body {
    Left(u64),
    Chunked(Chunks),
    Over,
}

/// The answer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Its head is still to come.
    Ahead,
    Left(u64),
    Chunked,
    /// Ends with the connection.
    Close,
    /// It has none that is sent.
    Silent,
    Over,
}

impl Http1 {
    /// A request on its connection, with what came behind its head.
    #[must_use]
    pub fn new(stream: Stream, request: Request, buffer: BytesMut, stop: ShutdownWatch) -> Self {
        let body = match request.length() {
            None => Body::Chunked(Chunks::default()),
            Some(0) => Body::Over,
            Some(length) => Body::Left(length),
        };
        let method = Method::from_bytes(request.method()).unwrap_or_default();
        let (out, answer) = (BytesMut::new(), Answer::Ahead);
        Self {
            stream,
            request,
            method,
            buffer,
            passed_over: 0,
            body,
            keep: false,
            stop,
            answer,
            out,
            sent: 0,
        }
    }

    pub(super) const fn request(&self) -> &Request {
        &self.request
    }

    pub(super) const fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn is_tls(&self) -> bool {
        self.stream.get_ssl_digest().is_some()
    }

    pub(super) const fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }

    pub(super) const fn is_body_done(&self) -> bool {
        matches!(self.body, Body::Over)
    }

    /// Whether something came behind the request.
    fn has_more(&self) -> bool {
        !self.buffer.is_empty() || self.passed_over > 0
    }

    pub(super) const fn answered(&self) -> bool {
        !matches!(self.answer, Answer::Ahead)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.out.capacity()
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    pub(super) const fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    pub(super) async fn read_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            match &mut self.body {
                Body::Over => return Ok(None),
                Body::Chunked(chunks) => {
                    match chunks.take(&mut self.buffer).map_err(|_| ErrorKind::InvalidData)? {
                        Step::Data(data) => return Ok(Some(data)),
                        Step::End => self.body = Body::Over,
                        Step::More => self.fill(PIECE).await?,
                    }
                }
                Body::Left(left) if self.buffer.is_empty() => {
                    let room = usize::try_from(*left).map_or(PIECE, |left| left.min(PIECE));
                    self.fill(room).await?;
                }
                Body::Left(left) => {
                    let here = usize::try_from(*left).map_or(usize::MAX, |left| left).min(self.buffer.len());
                    self.took(here);
                    return Ok(Some(self.buffer.split_to(here).freeze()));
                }
            }
        }
    }

    /// A body of a known length goes where it is wanted without a stop.
    pub(super) async fn read_into(&mut self, into: &mut BytesMut) -> Result<usize> {
        if let Body::Left(left) = self.body
            && self.buffer.is_empty()
            && into.capacity() > into.len()
        {
            let room = (into.capacity() - into.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = self.stream.read_buf(&mut into.limit(room)).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.took(read);
            return Ok(read);
        }
        let piece = self.read_body().await?.unwrap_or_default();
        into.extend_from_slice(&piece);
        Ok(piece.len())
    }

    fn took(&mut self, bytes: usize) {
        if let Body::Left(left) = &mut self.body {
            *left = left.saturating_sub(bytes as u64);
            if *left == 0 {
                self.body = Body::Over;
            }
        }
    }

    async fn fill(&mut self, room: usize) -> Result<()> {
        if self.buffer.capacity() - self.buffer.len() < room.min(CRAMPED) {
            self.buffer.reserve(room);
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Ends only when the client is gone. Of what it sends meanwhile the beginning waits.
    pub(super) async fn gone(&mut self) {
        while self.buffer.len() < AHEAD {
            if self.fill(CRAMPED).await.is_err() {
                return;
            }
        }
        while self.is_body_done() && self.passed_over < PASSED_OVER {
            let kept = self.buffer.len();
            if self.fill(CRAMPED).await.is_err() {
                return;
            }
            self.passed_over += self.buffer.len() - kept;
            self.buffer.truncate(kept);
        }
        pending().await
    }

    /// HTTP/1.0 has no answers before the answer (RFC 9110 §10.1.1).
    pub(super) async fn write_continue(&mut self) -> Result<()> {
        if self.request.is_old() {
            return Ok(());
        }
        self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        self.stream.flush().await
    }

    pub(super) fn write_head(&mut self, head: Head) {
        let bare = self.method == Method::HEAD || matches!(head.status(), 204 | 304);
        self.answer = match head.framing() {
            _ if bare => Answer::Silent,
            Framing::Length(length) => Answer::Left(length),
            Framing::Stream if !self.request.is_old() => Answer::Chunked,
            Framing::Stream => Answer::Close,
        };
        self.keep &= self.may_serve_again();
        self.out = head.into_wire();
        self.out.extend_from_slice(b"date: ");
        date::put(&mut self.out);
        let connection: &[u8] =
            if self.keep { b"\r\nconnection: keep-alive\r\n\r\n" } else { b"\r\nconnection: close\r\n\r\n" };
        self.out.extend_from_slice(connection);
    }

    /// Whether another request may follow this one. Its body is not read after the answer has begun, so what has
    /// come of one that nobody wanted is passed over now. What ended in chunks may have ended elsewhere in the eyes
    /// of another, and what came ahead belongs to nobody: nothing is read behind either.
    fn may_serve_again(&mut self) -> bool {
        if let Body::Left(left) = self.body
            && let Ok(left) = usize::try_from(left)
            && left <= self.buffer.len()
        {
            self.buffer.advance(left);
            self.body = Body::Over;
        }
        let behind = !self.is_body_done() || self.has_more() || self.request.length().is_none();
        !behind && self.answer != Answer::Close && !*self.stop.borrow()
    }

    pub(super) async fn write_body(&mut self, piece: &[u8], end: bool) -> Result<()> {
        let piece = if self.answer == Answer::Silent { &[] } else { piece };
        let tail = self.frame(piece.len(), end)?;
        self.sent += piece.len();
        if piece.len() <= SMALL {
            self.out.extend_from_slice(piece);
            self.out.extend_from_slice(tail);
            return self.flush().await;
        }
        let mut all = Buf::chain(Buf::chain(&*self.out, piece), tail);
        self.stream.write_all_buf(&mut all).await?;
        self.out.clear();
        self.stream.flush().await
    }

    /// A whole body in short pieces: they leave as one.
    pub(super) async fn write_whole(&mut self, pieces: &[Bytes]) -> Result<()> {
        let length = pieces.iter().map(Bytes::len).sum();
        if self.answer != Answer::Silent {
            let tail = self.frame(length, true)?;
            self.sent += length;
            self.out.reserve(length + tail.len());
            pieces.iter().for_each(|piece| self.out.extend_from_slice(piece));
            self.out.extend_from_slice(tail);
            return self.flush().await;
        }
        self.write_body(&[], true).await
    }

    /// Writes what comes before a piece; what comes after it.
    fn frame(&mut self, length: usize, end: bool) -> Result<&'static [u8]> {
        let mut tail: &[u8] = b"";
        match self.answer {
            Answer::Left(left) => {
                let left = left.checked_sub(length as u64).ok_or(ErrorKind::InvalidData)?;
                if end && left > 0 {
                    return Err(ErrorKind::InvalidData.into());
                }
                self.answer = Answer::Left(left);
            }
            Answer::Chunked if length == 0 => tail = if end { b"0\r\n\r\n" } else { b"" },
            Answer::Chunked => {
                write!((&mut self.out).writer(), "{length:x}\r\n")?;
                tail = if end { b"\r\n0\r\n\r\n" } else { b"\r\n" };
            }
            Answer::Close | Answer::Silent => {}
            Answer::Ahead | Answer::Over => return Err(Error::from(ErrorKind::InvalidInput)),
        }
        if end {
            self.answer = Answer::Over;
        }
        Ok(tail)
    }

    /// Sends what waits.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let wrote = self.out.len();
        if wrote > 0 {
            self.stream.write_all(&self.out).await?;
            self.out.clear();
            // The head of a stream needed more than its events do, which may come for minutes.
            if self.out.capacity() / ROOMY > wrote {
                self.out = BytesMut::new();
            }
        }
        self.stream.flush().await
    }

    /// The connection after its answer.
    #[must_use]
    pub fn rest(self) -> Rest {
        if self.answer != Answer::Over {
            return Rest::Cut;
        }
        if !self.is_body_done() || self.has_more() {
            return Rest::Unread(self.stream);
        }
        let Some(length) = self.request.length().filter(|_| self.keep) else {
            return Rest::Ended(self.stream);
        };
        // A connection that waits for its next request holds no more than most of them need.
        let short = self.request.size() as u64 + length <= USUAL;
        Rest::Idle(self.stream, if short { self.buffer } else { BytesMut::new() })
    }
}

/// What is left of a connection.
pub enum Rest {
    /// It may serve another request; the buffer is empty and may be used again.
    Idle(Stream, BytesMut),
    /// It has served its last.
    Ended(Stream),
    /// The same, and its client may still be sending.
    Unread(Stream),
    /// The answer is not whole.
    Cut,
}
