//! What goes out: response heads from an allow-list, bodies with an exact
//! length, refusals in the caller's dialect. Nothing of a provider's own head
//! ever passes.

use crate::caller::Caller;
use crate::civil::{moment, span};
use crate::request_id::RequestId;
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, header};
use penstock_contract::{Code, Dialect, Refusal};
use penstock_limits::Standing;
use pingora_error::{Error, Result};
use pingora_http::ResponseHeader;
use std::time::Duration;

/// Names of response headers that browsers may read.
const EXPOSED: &str = "x-request-id, request-id, retry-after, x-ratelimit-reset, x-penstock-provider, \
     x-penstock-flavor, x-penstock-attempts, x-token-count-method, x-environment-impact, x-billing-cost, \
     x-should-retry, content-disposition, content-range, etag, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
     anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
     anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
     anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset";
/// Request headers that browsers may send: what the client libraries add by themselves.
const ALLOWED: &str = "authorization, content-type, range, x-api-key, anthropic-version, anthropic-beta, \
     anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta, \
     idempotency-key, x-stainless-arch, x-stainless-lang, x-stainless-os, x-stainless-package-version, \
     x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, \
     x-stainless-helper-method, x-stainless-async, x-stainless-poll-helper";

/// Limit, remaining and reset of requests, by dialect.
static REQUESTS: [[HeaderName; 3]; 2] = [
    [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ],
    [
        HeaderName::from_static("anthropic-ratelimit-requests-limit"),
        HeaderName::from_static("anthropic-ratelimit-requests-remaining"),
        HeaderName::from_static("anthropic-ratelimit-requests-reset"),
    ],
];
/// The same of tokens.
static TOKENS: [[HeaderName; 3]; 2] = [
    [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ],
    [
        HeaderName::from_static("anthropic-ratelimit-tokens-limit"),
        HeaderName::from_static("anthropic-ratelimit-tokens-remaining"),
        HeaderName::from_static("anthropic-ratelimit-tokens-reset"),
    ],
];
/// The longest `Retry-After` that client libraries obey, in seconds.
const LONGEST_WAIT: u32 = 60;

/// Slices in which a long body is written, so that a slow reader is noticed between them.
const SLICE: usize = 64 * 1024;

/// A response head in the making.
pub struct Head {
    head: ResponseHeader,
}

impl Head {
    /// A head with the two request id headers.
    ///
    /// # Errors
    /// A status that is none.
    pub fn new(status: u16, id: &RequestId) -> Result<Self> {
        // Without the case of names, which HTTP does not have: each costs an allocation.
        let mut head = ResponseHeader::build_no_case(status, Some(20))?;
        let value = id.header();
        head.insert_header(HeaderName::from_static("x-request-id"), value.clone())?;
        head.insert_header(HeaderName::from_static("request-id"), value)?;
        Ok(Self { head })
    }

    /// Adds one header.
    ///
    /// # Errors
    /// A value that is none.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Result<Self> {
        self.head.insert_header(name, value)?;
        Ok(self)
    }

    /// When a refused request may come again. Client libraries wait at most a minute by themselves; where that
    /// would be too soon, or no wait helps, they are told not to try.
    fn limited(self, after: Option<u32>, now: Duration) -> Result<Self> {
        let head = match after {
            Some(seconds) => {
                let at = now.as_secs() + u64::from(now.subsec_nanos() > 0) + u64::from(seconds);
                self.with(HeaderName::from_static("x-ratelimit-reset"), HeaderValue::from(at))?
            }
            None => self,
        };
        if after.is_some_and(|seconds| seconds <= LONGEST_WAIT) {
            return Ok(head);
        }
        head.with(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"))
    }

    /// How the limits stand, in the headers of the caller's dialect.
    ///
    /// # Errors
    /// Never for these values.
    pub fn standing(mut self, dialect: Dialect, standing: &Standing, now: Duration) -> Result<Self> {
        for (gauge, names) in [(standing.requests, &REQUESTS), (standing.tokens, &TOKENS)] {
            let (Some(gauge), Some(names)) = (gauge, names.get(dialect as usize)) else { continue };
            let reset = match dialect {
                Dialect::Chat => span(gauge.reset),
                Dialect::Messages => moment(now + gauge.reset),
            };
            let reset = HeaderValue::try_from(reset).map_err(|_| Error::new_str("header"))?;
            let [limit, remaining, until] = names;
            self = self
                .with(limit.clone(), HeaderValue::from(gauge.limit))?
                .with(remaining.clone(), HeaderValue::from(gauge.remaining))?
                .with(until.clone(), reset)?;
        }
        Ok(self)
    }

    /// The headers of a page's script: any origin may call, keys are what counts.
    ///
    /// # Errors
    /// Never for these constant values.
    pub fn for_browser(self, preflight: bool) -> Result<Self> {
        let any = HeaderValue::from_static("*");
        let head = self
            .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, any)?
            .with(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED))?;
        if !preflight {
            return Ok(head);
        }
        head.with(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED))?
            .with(
                header::ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("GET, POST, DELETE, OPTIONS"),
            )?
            .with(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"))
    }

    /// Sends a JSON body with its exact length.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn json(self, caller: &mut Caller<'_>, body: Vec<Bytes>) -> Result<()> {
        self.whole(caller, "application/json", body).await
    }

    /// Sends a body of any type with its exact length.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn whole(
        mut self,
        caller: &mut Caller<'_>,
        kind: &'static str,
        body: Vec<Bytes>,
    ) -> Result<()> {
        let length: usize = body.iter().map(Bytes::len).sum();
        self.head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static(kind))?;
        self.head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length))?;
        let silent = caller.req_header().method == http::Method::HEAD;
        caller.write_response_header(Box::new(self.head)).await?;
        if length == 0 || silent {
            return caller.write_response_body(Bytes::new(), true).await;
        }
        write_all(caller, body).await
    }

    /// Sends the head of a body of this length; its bytes follow one by one.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn piecewise(mut self, caller: &mut Caller<'_>, kind: &'static str, length: u64) -> Result<()> {
        self.head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static(kind))?;
        self.head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(length))?;
        let silent = caller.req_header().method == http::Method::HEAD || length == 0;
        caller.write_response_header(Box::new(self.head)).await?;
        if silent { caller.write_response_body(Bytes::new(), true).await } else { Ok(()) }
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn stream(mut self, caller: &mut Caller<'_>) -> Result<()> {
        let head = &mut self.head;
        head.insert_header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream; charset=utf-8"),
        )?;
        head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))?;
        head.insert_header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))?;
        if caller.in_chunks() {
            head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
        caller.write_response_header(Box::new(self.head)).await
    }
}

/// Writes pieces as one body: small neighbours joined, long ones in slices. A line takes them as they are.
async fn write_all(caller: &mut Caller<'_>, body: Vec<Bytes>) -> Result<()> {
    if let Caller::Line(line) = caller {
        line.take(body);
        return Ok(());
    }
    let mut pending = BytesMut::new();
    let mut pieces = body.into_iter().peekable();
    while let Some(mut piece) = pieces.next() {
        let last = pieces.peek().is_none();
        if pending.len() + piece.len() <= SLICE && !(last && pending.is_empty()) {
            pending.extend_from_slice(&piece);
            if last {
                return caller.write_response_body(pending.freeze(), true).await;
            }
            continue;
        }
        if !pending.is_empty() {
            caller.write_response_body(pending.split().freeze(), false).await?;
        }
        while piece.len() > SLICE {
            caller.write_response_body(piece.split_to(SLICE), false).await?;
        }
        caller.write_response_body(piece, last).await?;
    }
    Ok(())
}

/// A refusal on the wire: status, envelope of the path's dialect, `Retry-After`, how the limits stand.
///
/// # Errors
/// The client is gone.
pub async fn refuse(
    caller: &mut Caller<'_>,
    dialect: Dialect,
    id: &RequestId,
    refusal: &Refusal,
    limits: Option<(Standing, Duration)>,
    browser: bool,
) -> Result<()> {
    let mut head = Head::new(refusal.row().status, id)?;
    if let Some(seconds) = refusal.retry_after {
        head = head.with(header::RETRY_AFTER, HeaderValue::from(seconds))?;
    }
    if refusal.code == Code::Conflict {
        // Client libraries try a 409 again by themselves; what is in the way here stays there.
        head = head.with(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"))?;
    }
    if let Some((standing, now)) = limits {
        head = head.standing(dialect, &standing, now)?;
        if refusal.code == Code::RateLimited {
            head = head.limited(refusal.retry_after, now)?;
        }
    }
    if let Some(allow) = refusal.details.get("allow").and_then(|value| value.as_str())
        && let Ok(value) = HeaderValue::from_str(allow)
    {
        head = head.with(header::ALLOW, value)?;
    }
    if refusal.code == Code::RangeNotSatisfiable
        && let Some(bytes) = refusal.details.get("bytes").and_then(serde_json::Value::as_u64)
        && let Ok(value) = HeaderValue::try_from(format!("bytes */{bytes}"))
    {
        head = head.with(header::CONTENT_RANGE, value)?;
    }
    if browser {
        head = head.for_browser(false)?;
    }
    let body = penstock_wire::error::envelope(dialect, refusal, id.as_str());
    head.json(caller, vec![Bytes::from(body)]).await
}
