//! What an answer weighs: its bytes in memory, counted against what all requests may hold (`overload.bytes`).

use crate::proxy::exchange::Exchange;
use penstock_contract::Fault;

/// Bytes of an answer that are not counted …
pub const FREE: usize = 64 << 10;
/// … and how many more are taken at once.
const STEP: usize = 256 << 10;

/// The answer of one request, whoever gives it. What was counted stays so until the request is over.
#[derive(Debug)]
pub struct Weight {
    now: usize,
    counted: usize,
}

impl Weight {
    /// Nothing so far.
    pub const fn new() -> Self {
        Self { now: 0, counted: FREE }
    }

    /// Another attempt begins, and nothing is left of the one before.
    pub const fn drop_all(&mut self) {
        self.now = 0;
    }

    /// So many bytes more.
    ///
    /// # Errors
    /// All requests together hold too many.
    pub fn add(&mut self, x: &mut Exchange<'_>, bytes: usize) -> Result<(), Fault> {
        self.set(x, self.now.saturating_add(bytes))
    }

    /// So many bytes in all.
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
