//! Memory of a response, counted against the limit of all requests (`overload.bytes`).

use crate::proxy::exchange::Exchange;
use penstock_core::UpstreamError;

/// Number of bytes of a response that are not counted.
pub const UNCOUNTED_BYTES: usize = 64 << 10;
/// Step in bytes by which the counted memory grows.
const GROWTH_STEP: usize = 256 << 10;

/// Memory of the response of one request, over all attempts. Counted bytes stay counted until the end of the request.
#[derive(Debug)]
pub struct ResponseMemory {
    now: usize,
    counted: usize,
}

impl ResponseMemory {
    /// Creates the counter of an empty response.
    pub const fn new() -> Self {
        Self { now: 0, counted: UNCOUNTED_BYTES }
    }

    /// Drops the bytes of an attempt before the next one.
    pub const fn reset(&mut self) {
        self.now = 0;
    }

    /// Adds bytes of the response.
    ///
    /// # Errors
    /// Returns an error if all requests together hold too many bytes.
    pub fn add_bytes(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), UpstreamError> {
        self.set_total(x, self.now.saturating_add(bytes))
    }

    /// Sets the number of bytes of the response.
    ///
    /// # Errors
    /// Returns an error if all requests together hold too many bytes.
    pub fn set_total(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), UpstreamError> {
        self.now = bytes;
        if bytes > self.counted {
            let more = (bytes - self.counted).max(GROWTH_STEP);
            x.reserve_memory(more).map_err(UpstreamError::caller_error)?;
            self.counted += more;
        }
        Ok(())
    }
}
