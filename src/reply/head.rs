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

/// Names of response headers that browsers may read.
const EXPOSED: &str = "x-request-id, request-id, retry-after, x-ratelimit-reset, x-penstock-provider, \
     x-penstock-flavor, x-penstock-attempts, x-token-count-method, x-environment-impact, x-billing-cost, \
     x-should-retry, content-disposition, content-range, etag, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
     anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
     anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset";
/// Request headers that browsers may send: what the client libraries add by themselves.
const ALLOWED: &str = "authorization, content-type, range, user-agent, x-api-key, anthropic-version, anthropic-beta, \
     anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta, \
     idempotency-key, x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, \
     x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, \
     x-stainless-helper, x-stainless-helper-method, x-stainless-async, x-stainless-poll-helper, x-stainless-custom-poll-interval";

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

    /// When a refused request may come again. Client libraries wait at most a minute by themselves; where that
    /// would be too soon, or no wait helps, they are told not to try.
    pub(super) fn limited(self, after: Option<u32>, now: Duration) -> Self {
        let head = match after {
            Some(seconds) => {
                let at = now.as_secs() + u64::from(now.subsec_nanos() > 0) + u64::from(seconds);
                self.number("x-ratelimit-reset", at)
            }
            None => self,
        };
        if after.is_some_and(|seconds| seconds <= LONGEST_WAIT) {
            return head;
        }
        head.with("x-should-retry", "false")
    }

    /// How the limits stand, in the headers of the caller's dialect.
    #[must_use]
    pub fn standing(mut self, dialect: Dialect, standing: &Standing, now: Duration) -> Self {
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
        self
    }

    /// The headers of a page's script: any origin may call, keys are what counts.
    #[must_use]
    pub fn for_browser(self, preflight: bool) -> Self {
        let head = self
            .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
            .with(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if !preflight {
            return head;
        }
        head.with(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED)
            .with(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE, OPTIONS")
            .with(header::ACCESS_CONTROL_MAX_AGE, "86400")
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
