//! Errors of a store, each with a one-sentence message. No message contains a key or a value of a row.

use std::io;
use std::path::PathBuf;

/// Error of a store operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Store that is open in another process.
    #[error("the store at {} is open in another process", path.display())]
    Locked {
        /// Directory of the store.
        path: PathBuf,
    },
    /// Full disk. A transaction that failed with this error may nevertheless be complete in the store after it is
    /// reopened; guards make a retry safe.
    #[error("the disk of the store is full; writes resume automatically once there is free space")]
    Full,
    /// Row or file that does not match its checksum.
    #[error(
        "the store is damaged ({what}); `penstock store repair` saves what can be read, `penstock store import` restores a backup"
    )]
    Corrupt {
        /// Description of the damaged part, without contents.
        what: String,
    },
    /// Key, value or transaction over its size limit; nothing was written.
    #[error("{what} is {bytes}, over the store's limit of {cap}")]
    TooLarge {
        /// Name of the measure over the limit, with its unit.
        what: &'static str,
        /// Size of the item, in the unit of the measure.
        bytes: usize,
        /// Limit on the size, in the same unit.
        cap: usize,
    },
    /// Guard that failed; nothing of the transaction was written.
    #[error("the row was changed concurrently (guard {step} of the transaction failed)")]
    Guard {
        /// Index of the failed guard among the operations of the transaction.
        step: usize,
    },
    /// I/O error of the disk. The outcome of a transaction in flight is unknown until the store is read again.
    #[error("the store's disk failed to {what}: {kind}")]
    Io {
        /// Operation that failed, as an infinitive that completes the sentence.
        what: &'static str,
        /// Kind of the I/O error.
        kind: io::ErrorKind,
    },
    /// Store that another process took over in an upgrade, or that was lost in a failed upgrade. The outcome of a
    /// transaction is unknown.
    #[error("{what}")]
    HandedOver {
        /// Sentence without its period that says why the store cannot be used.
        what: &'static str,
    },
    /// Timeout of the writer, or a commit to which the database did not answer. The outcome of the transaction is
    /// unknown.
    #[error("the store has not answered in time")]
    Stuck,
    /// Database that cannot be reached; nothing was written.
    #[error("the database cannot be reached at the moment ({what})")]
    Unreachable {
        /// Description of the failure, without credentials. It contains the address if the failure occurs when a
        /// store is opened or checked.
        what: String,
    },
    /// Database that another live process uses.
    #[error(
        "the database is in use by another gateway ({holder}): stop that one first, or give all of them a [fleet] section"
    )]
    InUse {
        /// Name of the other process: its host and process id.
        holder: String,
    },
    /// This process, which other processes consider dead. Every write fails with this error, and the process has to
    /// be restarted.
    #[error("this process was taken for dead ({what}) and writes nothing more: start it again")]
    Evicted {
        /// Description of the step by which the others excluded this process.
        what: String,
    },
    /// Database that lacks commits that it acknowledged to this process, such as a promoted standby that lagged
    /// behind. The process has to be restarted, because rows that it has read may be gone.
    #[error("the database lacks commits that it had acknowledged")]
    Reverted,
    /// Database that refuses a statement or a connection, for example because of missing rights or a wrong version;
    /// or invalid options of a database.
    #[error("the database cannot be used: {what}")]
    Database {
        /// Description of the refusal, without contents and credentials.
        what: String,
    },
    /// Directory, row or export in a format that this version does not read.
    #[error("the store's format is unknown to this version ({what})")]
    Format {
        /// Description of the unknown format.
        what: String,
    },
    /// Argument that the operation does not accept, such as an empty id or a store that has rows; nothing was written.
    #[error("{what}")]
    InvalidArgument {
        /// Sentence without its period that says what the operation expects.
        what: &'static str,
    },
}

impl StoreError {
    /// Creates the error for an I/O failure of `operation`; a full disk becomes `Full`.
    #[must_use]
    pub fn io(operation: &'static str, error: &io::Error) -> StoreError {
        StoreError::from_io_kind(operation, error.kind())
    }

    /// Creates the error for an I/O failure of this kind during `operation`; a full disk becomes `Full`.
    pub(crate) fn from_io_kind(operation: &'static str, kind: io::ErrorKind) -> StoreError {
        match kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
            kind => StoreError::Io { what: operation, kind },
        }
    }

    /// Creates the error for the damaged `object`.
    pub(crate) fn corrupt(object: impl Into<String>) -> StoreError {
        StoreError::Corrupt { what: object.into() }
    }
}
