//! Why a file could not be had or kept, and how a client is told.

use super::quota::Full;
use penstock_batch::jsonl::FileErrors;
use penstock_contract::{Code, Refusal};
use penstock_storage::StoreError;
use std::io;

/// Why not.
#[derive(Debug)]
pub enum Failed {
    /// There is no room.
    Full(Full),
    /// Its lines are not what they should be.
    Lines(FileErrors),
    /// The disk says no.
    Disk(io::Error),
    /// The store says no.
    Store(StoreError),
    /// The thread that did it is gone.
    Gone,
}

impl Failed {
    /// As a client is told.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Full(full) => full.refusal(),
            Self::Lines(mistakes) => mistakes.to_refusal("file"),
            Self::Disk(error) if error.kind() == io::ErrorKind::InvalidData => Refusal::because(
                Code::Internal,
                "The contents of this file are damaged, and damaged bytes are not given.",
            ),
            Self::Disk(error) => disk(error),
            Self::Store(StoreError::Full) => Refusal::new(Code::StorageFull),
            Self::Store(StoreError::Io { .. } | StoreError::Stuck) => unread(),
            Self::Store(_) | Self::Gone => Refusal::new(Code::Internal),
        }
    }
}

/// The store's disk fails at the moment.
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
