//! Builder of response heads. It contains only header fields of the gateway itself.

use crate::proxy::filters::ResponseFields;
use crate::telemetry::request_id::RequestId;
use crate::time::format::{format_duration, format_rfc3339_rounded_up};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use penstock_core::{Dialect, RateLimitResetFormat};
use penstock_limits::RateLimitStatus;
use pingora_http::ResponseHeader;
use std::time::Duration;

/// Capacity of the header map; few heads have more fields.
const USUAL_FIELDS: usize = 20;

/// Longest `Retry-After` that client libraries obey, in seconds.
const MAX_RETRY_AFTER: u32 = 60;

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
static RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static RATE_LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Returns a duration in whole seconds, rounded up.
pub(super) fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Name of a header field: a constant of the `http` crate, or a literal in lower case.
pub trait HeaderFieldName {
    /// Converts into a header name of the `http` crate.
    fn into_name(self) -> HeaderName;
}

impl HeaderFieldName for HeaderName {
    fn into_name(self) -> HeaderName {
        self
    }
}

impl HeaderFieldName for &'static HeaderName {
    fn into_name(self) -> HeaderName {
        self.clone()
    }
}

impl HeaderFieldName for &'static str {
    fn into_name(self) -> HeaderName {
        HeaderName::from_static(self)
    }
}

/// Response head. Fields are added directly to the map of the `http` crate, because Pingora's own functions also copy
/// each name in its original case.
pub struct ResponseHead {
    parts: Box<Parts>,
}

impl ResponseFields for ResponseHead {
    fn fields(&self) -> &HeaderMap {
        &self.parts.headers
    }

    fn remove_field(&mut self, name: &HeaderName) {
        self.parts.headers.remove(name);
    }
}

impl ResponseHead {
    /// Creates a head with the two request id headers. An invalid status becomes 500.
    #[must_use]
    pub fn new(status: u16, id: &RequestId) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = status;
        parts.headers.reserve(USUAL_FIELDS);
        Self { parts: Box::new(parts) }
            .with_field(&X_REQUEST_ID, id.as_str())
            .with_field(&REQUEST_ID, id.as_str())
    }

    /// Returns the status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// Adds a field. An invalid value is left out, because it could end the head or begin another field.
    #[must_use]
    pub fn with_field(mut self, name: impl HeaderFieldName, value: impl AsRef<[u8]>) -> Self {
        if let Ok(value) = HeaderValue::from_bytes(value.as_ref()) {
            self.append(name, value);
        }
        self
    }

    /// Adds a field with a numeric value.
    #[must_use]
    pub fn with_numeric_field(mut self, name: impl HeaderFieldName, value: u64) -> Self {
        self.append(name, HeaderValue::from(value));
        self
    }

    fn append(&mut self, name: impl HeaderFieldName, value: HeaderValue) {
        self.parts.headers.try_append(name.into_name(), value).ok();
    }

    /// Adds `x-should-retry: false` if a retry does not help (`after` is `None`), or if the wait before the retry is
    /// longer than `MAX_RETRY_AFTER`.
    pub(super) fn with_should_retry(self, after: Option<u32>) -> Self {
        if after.is_some_and(|seconds| seconds <= MAX_RETRY_AFTER) {
            return self;
        }
        self.with_field("x-should-retry", "false")
    }

    /// Adds the status of the limits in the headers of the caller's dialect, and in three headers that all dialects
    /// have. For a refused request, `reset` is the time at which it may be retried, in Unix seconds; it replaces the
    /// time at which the limit is fully restored.
    #[must_use]
    pub fn with_rate_limits(
        mut self,
        dialect: Dialect,
        limit_status: &RateLimitStatus,
        now: Duration,
        reset: Option<u64>,
    ) -> Self {
        let conventions = dialect.spec().http;
        for (gauge, [limit, remaining, until]) in [
            (limit_status.requests, conventions.request_limit_headers),
            (limit_status.tokens, conventions.token_limit_headers),
        ] {
            let Some(gauge) = gauge else { continue };
            let reset = match conventions.reset_format {
                RateLimitResetFormat::Duration => format_duration(gauge.reset),
                RateLimitResetFormat::Timestamp => format_rfc3339_rounded_up(now + gauge.reset),
            };
            self = self
                .with_numeric_field(limit, gauge.limit)
                .with_numeric_field(remaining, gauge.remaining)
                .with_field(until, reset);
        }
        let gauge = limit_status.requests.or(limit_status.tokens);
        if let Some(gauge) = gauge {
            self = self
                .with_numeric_field(&RATE_LIMIT, gauge.limit)
                .with_numeric_field(&RATE_LIMIT_REMAINING, gauge.remaining);
        }
        match reset.or_else(|| gauge.map(|gauge| ceil_seconds(now.saturating_add(gauge.reset)))) {
            Some(reset) => self.with_numeric_field(&RATE_LIMIT_RESET, reset),
            None => self,
        }
    }

    /// Sets the type and the length of the body, unless the status has no body.
    #[must_use]
    pub fn with_body_headers(self, kind: &str, length: u64) -> Self {
        if matches!(self.parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return self;
        }
        self.with_field(header::CONTENT_TYPE, kind).with_numeric_field(header::CONTENT_LENGTH, length)
    }

    /// Marks the body as a stream of server-sent events, with chunked encoding if `chunked`.
    #[must_use]
    pub fn with_event_stream_headers(self, chunked: bool) -> Self {
        let head = self
            .with_field(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")
            .with_field(header::CACHE_CONTROL, "no-cache")
            .with_field("x-accel-buffering", "no");
        if chunked { head.with_field(header::TRANSFER_ENCODING, "chunked") } else { head }
    }

    /// Converts the head into Pingora's type of response head.
    #[must_use]
    pub fn into_response(self) -> Box<ResponseHeader> {
        Box::new(ResponseHeader::from(*self.parts))
    }
}
