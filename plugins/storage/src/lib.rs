//! Embedded durable store for small state, as rows in typed tables behind the [`Store`] trait.
//!
//! - [`Store`] is the interface: `get`, `scan` and `apply` of atomic guarded transactions, durable when they return.
//! - [`open`] opens the durable engine (`sled/`), [`memory`] creates one that lives as long as the process.
//! - [`export`] and [`import`] move rows between stores, [`compact`] frees disk space, [`repair`] recovers the readable
//!   rows of a damaged store.
//! - [`ledger`] stores the blocks of ledger entries, and a replica of them in monthly files.
//! - [`files`] stores the metadata of files; their contents are plain files outside the store.
//! - [`keys`] and [`accounts`] store API keys and accounts, [`audit`] the log of changes to them, [`spend`] their
//!   spending across restarts, [`batches`] the batches, [`figures`] measured speeds.
//! - Rows on disk are versioned and checksummed.
//!
//! Every call blocks: callers on an async runtime run them on blocking threads. The current time is an argument.

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
