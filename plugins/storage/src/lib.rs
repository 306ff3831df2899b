//! Durable store for small state, as rows in typed tables behind the [`Store`] trait.
//!
//! - [`Store`] is the interface: `get`, `scan` and `apply` of atomic guarded transactions, durable when they return.
//! - [`FOLDER_ENGINES`] lists the engines that keep a store in a folder, [`open`] opens the default one (`sled/`),
//!   [`open_postgres`] a PostgreSQL database, [`open_in_memory`] creates one that lives as long as the process.
//! - [`export`] and [`import`] move rows between stores, [`compact`] frees disk space, [`repair`] recovers the readable
//!   rows of a damaged store.
//! - [`ledger`] stores the blocks of ledger entries, and a replica of them in monthly files.
//! - [`fleet`] lets several processes share a store and its balances.
//! - [`files`] stores the metadata of files; their contents are plain files outside the store.
//! - [`keys`] and [`accounts`] store API keys and accounts, [`audit`] the log of changes to them, [`spend`] their
//!   spending across restarts, [`batches`] the batches, [`measurements`] measured speeds.
//! - [`users`] stores the persons who may sign in to the console, [`sessions`] their sessions, [`invoices`] issued
//!   invoices.
//! - Rows on disk are versioned and checksummed.
//!
//! Every call blocks: callers on an async runtime run them on blocking threads. The current time is an argument.

pub mod accounts;
pub mod audit;
pub mod batches;
mod engine;
mod error;
mod export;
pub mod files;
mod filtered_page;
pub mod fleet;
pub mod invoices;
pub mod keys;
pub mod ledger;
pub mod measurements;
mod memory;
mod permissions;
mod postgres;
mod row;
mod row_sum;
pub mod sessions;
mod sled;
pub mod spend;
mod store;
mod table;
mod transaction;
mod transaction_group;
pub mod users;
mod versioned_json;

pub use self::sled::{
    CompactionOutcome, RepairLoss, RepairOutcome, StoreOptions, compact, open, repair, repair_with_progress,
};
pub use engine::{EMBEDDED_ENGINE, FOLDER_ENGINES, FolderEngine, RepairStoreFn};
pub use error::StoreError;
pub use export::{export, import};
pub use memory::open_in_memory;
pub use permissions::{create_private_dir_all, restrict_permissions_recursively};
pub use postgres::{
    DatabaseReport, PasswordSource, PostgresOptions, StoreSharing, begin_import, check_postgres,
    check_postgres_options, describe_database, finish_import, open_postgres,
};
pub use row_sum::RowAddition;
pub use store::{
    MAX_PAGE_BYTES, MAX_PAGE_ROWS, RowPage, RowScan, SnapshotRow, Store, StoreHealth, StoredRow,
    VerifyOutcome,
};
pub use table::StoreTable;
pub use transaction::{
    MAX_KEY_BYTES, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES, RowOperation, Transaction,
    TransactionOp, counter_row, parse_counter,
};

/// Key of the row of [`StoreTable::Meta`] with the fingerprint of the pepper of the API keys.
pub const PEPPER_CHECK_KEY: &[u8] = b"pepper";
