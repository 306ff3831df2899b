//! A new binary without a gap: the process that runs starts its successor, hands
//! it the listening sockets and the store, and lets its own exchanges end.
//!
//! ```text
//! SIGUSR2 ─▶ old: starts its own program again, with one end of a socket pair as its input
//!            old ── Sockets, descriptors ─▶ new: reads its configuration, binds what it lacks
//!            old ◀─ Prepared ────────────── new
//!            old: batches stop (they are resumed), administration waits in the backlog, ledger at a
//!                 commit's end, store closed
//!            old ── Yours ────────────────▶ new: opens store and ledger, serves
//!            old ◀─ Ready ───────────────── new
//!            old: takes no connection any more, drains
//!            old ── Acts, Calls ──────────▶ new: enters them, answers them
//!            old ── Bye ──────────────────▶ new        old ends
//! ```
//! - No connection is refused: both have the same sockets, and the old process
//!   takes connections until the new one does. Idle ones get a moment to ask once more.
//! - One process has the store at any time, by its lock. While it changes hands,
//!   requests are served out of memory: what they reserve and are charged waits.
//! - A charge counts once or not at all. The new process knows the old one's open
//!   reserves from the ledger and does not void them; each act that comes over the
//!   line ends one of them, or opens one, and what ends nothing is not entered. What
//!   is still open when the old process says `Bye`, or is gone, is voided.
//! - Everything else that the old process wants of the store (a long upload, a
//!   download, the end of a file) it asks of the new one by [`far`].
//! - Whatever goes wrong before `Ready`, the new process is ended, the old one opens
//!   its store again and goes on; nothing is lost but time.
//! - If the new process dies afterwards, charges of streams that the old one still
//!   has are lost, and it says so: their reserves are voided at the next start.
//! - Several may drain at once: each has its line to the next, which has one itself.
//! - For the moment between `Yours` and the end of the old process both look at
//!   balances of their own: an account may go below zero by what the old one reserves then.

pub mod control_channel;
mod fd_passing;
pub mod messages;
pub mod new_process;
pub mod old_process;
pub mod remote;

/// Tells a process that its input is the line to the one before it.
pub const VARIABLE: &str = "PENSTOCK_TAKES_OVER";
