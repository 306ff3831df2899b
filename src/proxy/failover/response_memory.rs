//! Accounts the buffered bytes of a response against the limit of all requests (`overload.bytes`).

use crate::proxy::exchange::Exchange;
use penstock_core::UpstreamError;

/// Number of buffered bytes of a response that are not counted.
pub const UNCOUNTED_BYTES: usize = 64 << 10;
/// Step in bytes by which the counted memory grows.
const GROWTH_STEP: usize = 256 << 10;

/// Accounts the buffered bytes of the response to one request, over all attempts. Bytes that are reserved stay reserved
/// until the end of the request, and are used again by the next attempt.
#[derive(Debug)]
pub struct ResponseMemoryReservation {
    buffered: usize,
    /// Number of bytes that may be buffered without a further reservation: [`UNCOUNTED_BYTES`] plus the reserved bytes.
    counted: usize,
}

impl ResponseMemoryReservation {
    /// Creates the counter of an empty response.
    pub const fn new() -> Self {
        Self { buffered: 0, counted: UNCOUNTED_BYTES }
    }

    /// Sets the buffered bytes to 0 before the next attempt; reserved bytes stay reserved.
    pub const fn reset(&mut self) {
        self.buffered = 0;
    }

    /// Adds buffered bytes, and reserves memory if more than before is needed.
    ///
    /// # Errors
    /// Returns an error if all requests together hold too many bytes.
    pub fn try_grow(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), UpstreamError> {
        self.try_resize(x, self.buffered.saturating_add(bytes))
    }

    /// Sets the number of buffered bytes, and reserves memory if more than before is needed.
    ///
    /// # Errors
    /// Returns an error if all requests together hold too many bytes.
    pub fn try_resize(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), UpstreamError> {
        self.buffered = bytes;
        if bytes > self.counted {
            let more = (bytes - self.counted).max(GROWTH_STEP);
            x.reserve_memory(more).map_err(UpstreamError::caller_error)?;
            self.counted += more;
        }
        Ok(())
    }
}
