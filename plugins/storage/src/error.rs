//! What can go wrong in a store, one sentence each. No text carries a key or a value of a row.

use std::io;
use std::path::PathBuf;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the store open.
    #[error("the store at {} is open in another process", path.display())]
    Locked {
        /// The folder of the store.
        path: PathBuf,
    },
    /// The disk is full. A batch refused with this error may still be found after a reopening, whole;
    /// its guards make asking again safe.
    #[error("the disk of the store is full; writing resumes by itself once there is room")]
    Full,
    /// A row or a file does not match its checksum.
    #[error("the store is damaged ({what}); `penstock store repair` saves what can be read")]
    Corrupt {
        /// What is damaged, without contents.
        what: String,
    },
    /// A key, a value or a batch exceeds its cap; nothing was written.
    #[error("{what} of {bytes} is over the store's cap of {cap}")]
    TooLarge {
        /// Which of them.
        what: &'static str,
        /// Its size: bytes, or operations for a batch.
        bytes: usize,
        /// The cap in the same unit.
        cap: usize,
    },
    /// A guard of the batch did not hold; nothing of the batch was written.
    #[error("the row changed meanwhile (step {step} of the batch did not hold)")]
    Guard {
        /// Index of the failed guard among the steps of the batch.
        step: usize,
    },
    /// The disk refused. Whether a batch in flight was kept is unknown until the store is read again.
    #[error("the store's disk failed to {what}: {kind}")]
    Io {
        /// What was being done, completing the sentence.
        what: &'static str,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
    /// The writer has not answered in time. Whether the batch was kept is unknown.
    #[error("the store has not answered in time")]
    Stuck,
    /// A folder or an export is of a format this version does not read.
    #[error("the store's format is not known to this version ({what})")]
    Format {
        /// What was met.
        what: String,
    },
}

impl StoreError {
    /// An I/O failure met while doing `what`; a full disk is told apart.
    #[must_use]
    pub fn io(what: &'static str, error: &io::Error) -> StoreError {
        StoreError::of_kind(what, error.kind())
    }

    pub(crate) fn of_kind(what: &'static str, kind: io::ErrorKind) -> StoreError {
        match kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
            kind => StoreError::Io { what, kind },
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> StoreError {
        StoreError::Corrupt { what: what.into() }
    }
}
