//! Errors of file operations, and their responses to the client.

use super::quota::Full;
use penstock_batch::jsonl::FileErrors;
use penstock_contract::{Code, Refusal};
use penstock_storage::StoreError;
use std::io;

/// Error of a file operation.
#[derive(Debug)]
pub enum Failed {
    /// Not enough space.
    Full(Full),
    /// Invalid lines.
    Lines(FileErrors),
    /// Error of the disk.
    Disk(io::Error),
    /// Error of the store.
    Store(StoreError),
    /// Panic of the worker thread.
    Gone,
}

impl Failed {
    /// Converts the error to the error of the client.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Full(full) => full.refusal(),
            Self::Lines(mistakes) => mistakes.to_refusal("file"),
            Self::Disk(error) if error.kind() == io::ErrorKind::InvalidData => Refusal::because(
                Code::Internal,
                "The contents of this file are damaged, and damaged bytes are not served.",
            ),
            Self::Disk(error) => disk(error),
            Self::Store(StoreError::Full) => Refusal::new(Code::StorageFull),
            Self::Store(StoreError::Io { .. } | StoreError::Stuck) => unread(),
            Self::Store(_) | Self::Gone => Refusal::new(Code::Internal),
        }
    }
}

/// Error while the store's disk fails.
pub fn unread() -> Refusal {
    let message = "The store cannot be read or written at the moment; try again shortly.";
    Refusal::because(Code::Unavailable, message).retry_after(5)
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        failed.refusal()
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What a failing disk means to a client.
pub fn disk(error: &std::io::Error) -> Refusal {
    Refusal::new(match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::StorageFull,
        _ => Code::Internal,
    })
}
