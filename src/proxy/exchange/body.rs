//! Request body: admission, size limits, and the read into one buffer.

use super::Exchange;
use crate::http::buffer_pool::BufferPool;
use crate::limits::admission_control::AdmissionPermit;
use crate::proxy::downstream::Downstream;
use crate::time::clock;
use bytes::{Buf, Bytes};
use http::header;
use penstock_core::{ApiError, ErrorCode};
use penstock_limits::WorkClass;
use std::future::Future;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{timeout, timeout_at};

/// Maximum size in bytes of a refused body that is read to its end.
const MAX_DRAINED_BODY: usize = 1 << 20;
/// Minimum size in bytes of a body that is read directly into its buffer.
const MIN_DIRECT_BODY: usize = 8 << 10;
/// Timeout of reading a refused body.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum size in bytes of a body for which the receive window of its HTTP/2 connection is not enlarged.
const MAX_BRIEF_BODY: usize = 4 << 10;

impl Exchange<'_> {
    /// Reads the JSON body within its limits.
    ///
    /// # Errors
    /// Returns a refusal if the content type is wrong, or if the body is too large, too slow or truncated.
    pub async fn read_json_body(&mut self) -> Result<Bytes, ApiError> {
        self.require_json()?;
        let limits = &self.config.settings.limits;
        let (cap, within, idle) = (limits.json_body, limits.body, limits.body_idle);
        let announced = self.admit_body(cap, None).await?;
        let body = timeout_at(
            (clock::cached_now() + within).into(),
            read_to_buffer(
                &mut self.caller,
                &self.app.buffer_pool,
                announced,
                (cap, idle),
                self.state.admission_permit.as_mut(),
            ),
        )
        .await
        .unwrap_or_else(|_| Err(ApiError::new(ErrorCode::RequestTimeout)));
        self.record_body_end(body.is_ok());
        let body = strip_byte_order_mark(body?);
        self.require_current_key()?;
        #[cfg(feature = "inject")]
        self.app.panic_injector.panic_if_armed(crate::net::panic_injection::PanicInjectionPoint::Body);
        self.record.bytes_in = body.len();
        Ok(body)
    }

    /// Checks that the key was not revoked, and its account not suspended, while the body arrived. The key of a batch
    /// line is checked by its batch.
    ///
    /// # Errors
    /// Returns the refusal of an invalid key.
    pub(crate) fn require_current_key(&self) -> Result<(), ApiError> {
        if self.caller.in_process_line().is_none() && self.principal.is_revoked_or_suspended() {
            return Err(ApiError::new(ErrorCode::InvalidKey));
        }
        Ok(())
    }

    /// Acquires a permit of admission control for the body, and sends `100 Continue` to a client that waits for it.
    /// Returns the announced length; `None` if the client announced none. `held` is set for a body that is spooled to
    /// the disk: the maximum number of its bytes in memory. The permit covers these bytes from the start.
    ///
    /// # Errors
    /// Returns a refusal if the body is larger than `cap`, or if admission control has no permit.
    pub(crate) async fn admit_body(
        &mut self,
        cap: usize,
        held: Option<usize>,
    ) -> Result<Option<usize>, ApiError> {
        let announced = self.content_length()?;
        if announced.is_some_and(|length| length > cap) {
            self.keep_alive = false;
            return Err(body_too_large_error(cap));
        }
        let held =
            held.map_or(announced.unwrap_or(0), |held| announced.map_or(held, |length| length.min(held)));
        self.acquire_admission(held).await?;
        self.caller.set_reading_long_body(announced.is_none_or(|length| length > MAX_BRIEF_BODY));
        if self.caller.header_field(header::EXPECT).unwrap_or_default().eq_ignore_ascii_case(b"100-continue")
        {
            self.caller.write_continue_response().await;
        }
        Ok(announced)
    }

    /// Acquires a permit of admission control, after a wait if none is free. A batch line gets none here:
    /// [`Exchange::reserve_memory`] acquires it.
    async fn acquire_admission(&mut self, bytes: usize) -> Result<(), ApiError> {
        if self.work == WorkClass::BatchLine {
            return Ok(());
        }
        let wait = self.config.settings.overload.wait;
        let (permit, waited) = self.app.admission.acquire(&self.principal.account.id, bytes, wait).await;
        if let Some(waited) = waited {
            self.record.queued += waited;
            self.app.metrics.record_wait("process", waited);
        }
        self.admission_permit = Some(permit?);
        Ok(())
    }

    /// Counts more bytes of memory for the request until the end of the exchange, or until
    /// [`Exchange::release_admission`].
    ///
    /// # Errors
    /// Returns a 503 if all requests together hold too much memory.
    pub fn reserve_memory(&mut self, bytes: usize) -> Result<(), ApiError> {
        let (admission, state) = (&self.app.admission, &mut *self.state);
        let account = &state.principal.account.id;
        let permit = state.admission_permit.get_or_insert_with(|| admission.acquire_for_batch_line(account));
        permit.reserve_bytes(bytes)
    }

    /// Releases the permit of admission control and the memory that the request held. Called when the request has no
    /// work left and only waits.
    pub(crate) fn release_admission(&mut self) {
        self.admission_permit = None;
    }

    /// Records a panic, and returns the refusal of the request. The state of the connection is unknown, so it serves no
    /// other request.
    pub(crate) fn record_panic(&mut self) -> ApiError {
        self.app.metrics.count_panic();
        self.keep_alive = false;
        ApiError::new(ErrorCode::Internal)
    }

    /// Records that the read of the body ended. If the body is not `complete`, the connection serves no other request.
    pub(crate) fn record_body_end(&mut self, complete: bool) {
        self.caller.set_reading_long_body(false);
        // An interim response that was sent while the body was unread has marked the connection for closing, so its
        // reuse is set again here.
        if !complete {
            self.keep_alive = false;
        }
        self.caller.set_keep_alive(self.keep_alive);
    }

    /// Checks that the request body is not compressed.
    ///
    /// # Errors
    /// Returns 415 for any `Content-Encoding` other than `identity`.
    pub(crate) fn require_uncompressed_request_body(&self) -> Result<(), ApiError> {
        let encoding = self.caller.header_field(header::CONTENT_ENCODING).unwrap_or_default();
        if encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        Err(ApiError::with_message(
            ErrorCode::UnsupportedMediaType,
            "Compressed request bodies are not read; send the body without content-encoding.",
        ))
    }

    /// Checks that the request body is not compressed, and that its `Content-Type`, if there is one, is JSON.
    ///
    /// # Errors
    /// Returns 415 otherwise.
    fn require_json(&self) -> Result<(), ApiError> {
        self.require_uncompressed_request_body()?;
        let kind = self.caller.header_field(header::CONTENT_TYPE).unwrap_or_default();
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if essence.is_empty() || essence.eq_ignore_ascii_case(b"application/json") {
            return Ok(());
        }
        Err(ApiError::with_message(
            ErrorCode::UnsupportedMediaType,
            "This path reads JSON; send content-type: application/json.",
        ))
    }

    /// Returns the value of `Content-Length`; `None` without this field, or if it is empty.
    ///
    /// # Errors
    /// Returns 400 if the value is not a number.
    fn content_length(&self) -> Result<Option<usize>, ApiError> {
        let value = self.caller.header_field(header::CONTENT_LENGTH).unwrap_or_default();
        if value.is_empty() {
            return Ok(None);
        }
        std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()).map(Some).ok_or_else(|| {
            ApiError::with_message(ErrorCode::InvalidRequest, "content-length is not a number.")
        })
    }

    /// Reads and discards the rest of a refused body of at most `MAX_DRAINED_BODY` bytes. If the connection were
    /// closed with unread bytes, it would be reset, and the client could lose the refusal.
    pub(super) async fn drain_body(&mut self) {
        let awaits = !self.caller.header_field(header::EXPECT).unwrap_or_default().is_empty();
        let is_small = self.content_length().ok().flatten().is_some_and(|length| length <= MAX_DRAINED_BODY);
        if is_small && !awaits && !self.caller.is_body_done() {
            let rest = async { while let Ok(Some(_)) = self.caller.read_request_body().await {} };
            timeout(DRAIN_TIMEOUT, rest).await.ok();
        }
    }
}

/// Byte order mark in UTF-8, which some editors and libraries write at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Removes a byte order mark, which is not part of JSON and which readers may ignore (RFC 8259 §8.1).
fn strip_byte_order_mark(mut body: Bytes) -> Bytes {
    if body.starts_with(BYTE_ORDER_MARK) {
        body.advance(BYTE_ORDER_MARK.len());
    }
    body
}

/// Returns the 413 of a body that is larger than `cap` bytes.
pub(crate) fn body_too_large_error(cap: usize) -> ApiError {
    ApiError::with_message(ErrorCode::TooLarge, format!("The request body is larger than {cap} bytes."))
        .with_details_member("limit_bytes", cap)
}

/// Returns the refusal of a body that was not read completely: too slow, truncated, or with invalid chunks.
pub(crate) fn body_read_refusal(error: &std::io::Error) -> ApiError {
    match error.kind() {
        ErrorKind::TimedOut => ApiError::new(ErrorCode::RequestTimeout),
        ErrorKind::InvalidData => {
            ApiError::with_message(ErrorCode::InvalidRequest, "The chunks of the body are not sound.")
        }
        _ => ApiError::with_message(
            ErrorCode::InvalidRequest,
            "The request body ended before its announced length.",
        ),
    }
}

/// Reads a body of at most `cap` bytes into one buffer. A body that arrives in one piece is not copied; the rest of a
/// longer body of known length is read directly into the buffer.
async fn read_to_buffer(
    caller: &mut Downstream<'_>,
    buffers: &Arc<BufferPool>,
    announced: Option<usize>,
    (cap, idle): (usize, Duration),
    mut permit: Option<&mut AdmissionPermit>,
) -> Result<Bytes, ApiError> {
    let complete = caller.is_in_process();
    if let Some(length) = announced.filter(|length| *length >= MIN_DIRECT_BODY)
        && let Some(first) = with_idle_timeout(idle, caller.begin_direct_body_read()).await?
    {
        return read_rest(caller, first, buffers, (length, idle)).await;
    }
    let Some(first) = with_idle_timeout(idle, caller.read_request_body()).await? else {
        return Ok(Bytes::new());
    };
    if announced == Some(first.len()) || (complete && first.len() <= cap) {
        return Ok(first);
    }
    let mut body = buffers.take_buffer(announced.unwrap_or(first.len() * 2).min(cap));
    body.extend_from_slice(&first);
    let (mut read, mut reserved) = (first.len(), 0);
    drop(first);
    while read > 0 {
        if body.len() > cap {
            return Err(body_too_large_error(cap));
        }
        // The capacity counts and not the length, because the buffer grows by more than the bytes that were read.
        let held = body.capacity();
        if let Some(permit) = permit.as_deref_mut().filter(|_| announced.is_none() && held > reserved) {
            permit.reserve_body_bytes(held - reserved)?;
            reserved = held;
        }
        read = with_idle_timeout(idle, caller.read_body_into(&mut body)).await?;
    }
    Ok(body.freeze())
}

/// Reads the rest of a body of known length.
async fn read_rest(
    caller: &mut Downstream<'_>,
    first: Bytes,
    buffers: &Arc<BufferPool>,
    (length, idle): (usize, Duration),
) -> Result<Bytes, ApiError> {
    if first.len() == length {
        return Ok(first);
    }
    let mut body = buffers.take_buffer(length);
    body.extend_from_slice(&first);
    drop(first);
    while body.len() < length && with_idle_timeout(idle, caller.read_body_into(&mut body)).await? > 0 {}
    Ok(body.freeze())
}

/// Awaits a read within the idle timeout of the client.
async fn with_idle_timeout<T>(
    idle: Duration,
    read: impl Future<Output = std::io::Result<T>>,
) -> Result<T, ApiError> {
    match timeout_at((clock::cached_now() + idle).into(), read).await {
        Ok(read) => read.map_err(|error| body_read_refusal(&error)),
        Err(_) => Err(ApiError::new(ErrorCode::RequestTimeout)),
    }
}

#[cfg(test)]
mod tests;
