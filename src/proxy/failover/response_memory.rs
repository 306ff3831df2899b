//! Memory of a response, counted against the limit of all requests (`overload.bytes`).

use crate::proxy::exchange::Exchange;
use penstock_contract::Fault;

/// Bytes of a response that are not counted.
pub const FREE: usize = 64 << 10;
/// Bytes by which the counted memory grows.
const STEP: usize = 256 << 10;

/// Memory of the response of one request, over all attempts. Counted bytes stay so until the end of the request.
#[derive(Debug)]
pub struct Weight {
    now: usize,
    counted: usize,
}

impl Weight {
    /// Creates the memory of a response without bytes.
    pub const fn new() -> Self {
        Self { now: 0, counted: FREE }
    }

    /// Drops the bytes of an attempt before the next one.
    pub const fn drop_all(&mut self) {
        self.now = 0;
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// All requests together hold too many.
    pub fn add(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), Fault> {
        self.set(x, self.now.saturating_add(bytes))
    }

    /// Sets the number of bytes.
    ///
    /// # Errors
    /// All requests together hold too many.
    pub fn set(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), Fault> {
        self.now = bytes;
        if bytes > self.counted {
            let more = (bytes - self.counted).max(STEP);
            x.hold(more).map_err(Fault::caller)?;
            self.counted += more;
        }
        Ok(())
    }
}
