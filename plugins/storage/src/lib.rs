//! The storage room: small state that must not be lost, as rows in typed spaces behind one seam.
//!
//! - [`Store`] is the seam: `get`, `scan`, `apply` of atomic guarded batches, durable when they return.
//! - [`open`] gives the durable engine (`sled/`), [`memory`] one that keeps nothing past the process.
//! - [`export`] and [`import`] carry rows between stores, [`compact`] gives room back, [`repair`] saves what a
//!   damaged store still holds.
//! - [`ledger`] keeps the ledger's sheets, and a second copy of them in monthly files.
//! - [`files`] tells what is known of files, whose contents lie elsewhere.
//! - [`keys`] and [`accounts`] are the rows of API keys and of accounts, [`audit`] tells who changed them,
//!   [`spend`] bounds their budgets across restarts. [`batches`] are those of batches, [`figures`] of measured speeds.
//! - Rows on disk are versioned and checksummed (`row.rs`).
//!
//! Every call blocks: callers on an async runtime put them on threads that may. Time is an argument.

pub mod accounts;
pub mod audit;
mod batch;
pub mod batches;
mod error;
mod export;
pub mod figures;
pub mod files;
pub mod keys;
pub mod ledger;
mod memory;
mod private;
mod row;
mod sled;
mod space;
pub mod spend;
mod store;
mod versioned;

pub use self::sled::{Compacted, Options, Repaired, compact, open, repair, repair_with};
pub use batch::{Batch, MAX_BATCH, MAX_KEY, MAX_STEPS, MAX_VALUE, Operation, Step};
pub use error::StoreError;
pub use export::{export, import};
pub use memory::memory;
pub use private::restrict;
pub use space::Space;
pub use store::{Copied, Health, MAX_PAGE, MAX_PAGE_BYTES, Page, Row, Store, Verified};
