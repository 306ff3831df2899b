//! Zero-downtime upgrade: the running process starts its successor, hands it the listening sockets and the store, and
//! drains its own exchanges.
//!
//! ```text
//! SIGUSR2 ─▶ old: starts its own program again, with one end of a socket pair as its input
//!            old ── Sockets, descriptors ─▶ new: reads its configuration, binds missing sockets
//!            old ◀─ Prepared ────────────── new
//!            old: batches stop (they are resumed), administration waits in the backlog, ledger at a
//!                 commit's end, store closed
//!            old ── Yours ────────────────▶ new: opens store and ledger, serves
//!            old ◀─ Ready ───────────────── new
//!            old: stops accepting connections, drains
//!            old ── Acts, Calls ──────────▶ new: records them, answers them
//!            old ── Bye ──────────────────▶ new        old ends
//! ```
//! - No connection is refused: both processes have the same sockets, and the old one accepts until the new one does.
//!   Idle connections get a short time for one more request.
//! - One process has the store at any time, guarded by its lock. During the handover, requests are served from
//!   memory: their reservations and charges are queued.
//! - A charge is counted once or not at all. The new process reads the open reservations of the old one from the
//!   ledger and does not void them; each ledger action that the old process sends ends one of these reservations or
//!   opens a new one. An action without a matching reservation is not recorded. Reservations that are open when the
//!   old process sends `Bye` or is gone are voided.
//! - All other store accesses of the old process (a long upload, a download, the end of a file) go to the
//!   new one by [`handover_store`].
//! - After any failure before `Ready` the new process is killed, and the old one opens its store again and continues;
//!   nothing is lost except time. After `Ready`, no step can fail: all threads that the two processes need from then
//!   on are started before.
//! - If the new process ends after `Ready` while the old one still drains, the charges of the old one's remaining
//!   streams are lost. The old one logs this, and the reservations of these streams are voided at the next start.
//! - After several upgrades in a row, several old processes may drain at once: each has a connection to its
//!   successor.
//! - Between `Yours` and the end of the old process, each process has its own copy of the balances. So the balance of
//!   an account may fall below zero, at most by the reservations that the old process makes in this time.

pub mod control_channel;
mod fd_passing;
pub mod handover_store;
pub mod messages;
pub mod new_process;
pub mod old_process;
mod outbox;

/// Environment variable of a process whose standard input is the connection to its predecessor.
pub const TAKEOVER_VARIABLE: &str = "PENSTOCK_TAKES_OVER";
