//! A response head in the making: the bytes that HTTP/1.1 sends. HTTP/2 reads it
//! from them. Only fields of the gateway's own are ever put here.

use crate::civil::{moment, span};
use crate::request_id::RequestId;
use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode, header};
use penstock_contract::Dialect;
use penstock_limits::Standing;
use pingora_http::ResponseHeader;
use std::time::Duration;

/// Bytes that most heads fit in, with the short body of most answers behind them.
const USUAL: usize = 2048;

/// Limit, remaining and reset of requests, by dialect.
const REQUESTS: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
];
/// The same of tokens.
const TOKENS: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
];
/// The longest `Retry-After` that client libraries obey, in seconds.
const LONGEST_WAIT: u32 = 60;

/// Whole seconds, rounded up.
pub(super) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length.
    Length(u64),
    /// As the connection tells the end of what has no length.
    Stream,
}

/// A response head.
pub struct Head {
    status: u16,
    /// Status line and fields, without the line that ends them.
    wire: BytesMut,
    framing: Framing,
}

impl Head {
    /// A head with the two request id headers. A status that is none is 500.
    #[must_use]
    pub fn new(status: u16, id: &RequestId) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut wire = BytesMut::with_capacity(USUAL);
        for part in ["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or_default(), "\r\n"]
        {
            wire.put_slice(part.as_bytes());
        }
        let head = Self { status: status.as_u16(), wire, framing: Framing::Length(0) };
        head.with("x-request-id", id.as_str()).with("request-id", id.as_str())
    }

    /// Adds a field. One whose value cannot be a field's is left out: it would be the end of the head, or another
    /// field.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.put(name.as_ref(), value.as_ref());
        self
    }

    /// Adds a field that is a number.
    #[must_use]
    pub fn number(self, name: impl AsRef<str>, value: u64) -> Self {
        self.with(name, itoa::Buffer::new().format(value))
    }

    fn put(&mut self, name: &str, value: &[u8]) {
        if value.iter().fold(false, |found, byte| found | (*byte < b' ' && *byte != b'\t') | (*byte == 0x7f))
        {
            return;
        }
        self.wire.reserve(name.len() + value.len() + 4);
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.wire.put_slice(part);
        }
    }

    /// Tells client libraries not to try again where no wait helps, or it would be too long: by themselves they wait
    /// at most a minute.
    pub(super) fn limited(self, after: Option<u32>) -> Self {
        if after.is_some_and(|seconds| seconds <= LONGEST_WAIT) {
            return self;
        }
        self.with("x-should-retry", "false")
    }

    /// How the limits stand: in the headers of the caller's dialect, and in three that all dialects share. `reset` is
    /// when a refused request may come again, Unix seconds, instead of when the limit is whole again.
    #[must_use]
    pub fn standing(
        mut self,
        dialect: Dialect,
        standing: &Standing,
        now: Duration,
        reset: Option<u64>,
    ) -> Self {
        for (gauge, names) in [(standing.requests, &REQUESTS), (standing.tokens, &TOKENS)] {
            let (Some(gauge), Some([limit, remaining, until])) = (gauge, names.get(dialect as usize)) else {
                continue;
            };
            let reset = match dialect {
                Dialect::Chat => span(gauge.reset),
                Dialect::Messages => moment(now + gauge.reset),
            };
            self = self.number(limit, gauge.limit).number(remaining, gauge.remaining).with(until, reset);
        }
        let gauge = standing.requests.or(standing.tokens);
        if let Some(gauge) = gauge {
            self = self
                .number("x-ratelimit-limit", gauge.limit)
                .number("x-ratelimit-remaining", gauge.remaining);
        }
        match reset.or_else(|| gauge.map(|gauge| whole_seconds(now.saturating_add(gauge.reset)))) {
            Some(reset) => self.number("x-ratelimit-reset", reset),
            None => self,
        }
    }

    /// Says what the body is and how long.
    #[must_use]
    pub fn of_length(mut self, kind: &str, length: u64) -> Self {
        self.framing = Framing::Length(length);
        if self.status == StatusCode::NO_CONTENT {
            return self;
        }
        self.with(header::CONTENT_TYPE, kind).number(header::CONTENT_LENGTH, length)
    }

    /// Says that the body is a stream of events; whether it is sent in chunks.
    #[must_use]
    pub fn of_events(mut self, chunked: bool) -> Self {
        self.framing = Framing::Stream;
        let head = self
            .with(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")
            .with(header::CACHE_CONTROL, "no-cache")
            .with("x-accel-buffering", "no");
        if chunked { head.with(header::TRANSFER_ENCODING, "chunked") } else { head }
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// How the end of the body is told.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Status line and fields, without the line that ends them.
    #[must_use]
    pub fn into_wire(self) -> BytesMut {
        self.wire
    }

    /// As the library takes it.
    #[must_use]
    pub fn parsed(&self) -> Option<Box<ResponseHeader>> {
        // Without the case of names, which HTTP does not have: each costs an allocation.
        let mut head = ResponseHeader::build_no_case(self.status, Some(20)).ok()?;
        for line in
            self.wire.as_ref().split(|byte: &u8| *byte == b'\n').skip(1).filter(|line| !line.is_empty())
        {
            let colon = memchr::memchr(b':', line)?;
            let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
            let value = HeaderValue::from_bytes(line.get(colon + 1..)?.trim_ascii()).ok()?;
            head.insert_header(name, value).ok()?;
        }
        Some(Box::new(head))
    }
}
