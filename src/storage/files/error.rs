//! Errors of file operations, and their responses to the client.

use super::quota::QuotaExceeded;
use penstock_batch::jsonl::FileErrors;
use penstock_core::{ApiError, ErrorCode};
use penstock_object_storage::BucketError;
use penstock_storage::StoreError;
use std::{fmt, io};

/// Error of a file operation.
#[derive(Debug)]
pub enum FileError {
    /// Upload that exceeds a limit or the free disk space.
    Quota(QuotaExceeded),
    /// Uploaded file with invalid lines.
    InvalidLines(FileErrors),
    /// I/O error of the disk or of the bucket.
    Io(io::Error),
    /// Error of the store.
    Store(StoreError),
    /// Panic of the worker thread.
    ThreadEnded,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(_) => f.write_str("there is not enough space"),
            Self::InvalidLines(_) => f.write_str("the file has invalid lines"),
            Self::Io(error) => write!(f, "{error}"),
            Self::Store(error) => write!(f, "{error}"),
            Self::ThreadEnded => f.write_str("the thread ended"),
        }
    }
}

impl FileError {
    /// Converts the error to an API error.
    #[must_use]
    pub fn to_api_error(&self) -> ApiError {
        match self {
            Self::Quota(full) => full.to_api_error(),
            Self::InvalidLines(mistakes) => mistakes.to_api_error("file"),
            Self::Io(error) if is_bucket_unavailable(error) => bucket_unavailable(),
            Self::Io(error) if error.kind() == io::ErrorKind::InvalidData => ApiError::with_message(
                ErrorCode::Internal,
                "The contents of this file are damaged, and damaged bytes are not served.",
            ),
            Self::Io(error) => io_to_api_error(error),
            Self::Store(error) => store_to_api_error(error),
            Self::ThreadEnded => ApiError::new(ErrorCode::Internal),
        }
    }
}

/// Returns the API error for an error of the store, without its details.
pub fn store_to_api_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Full => ApiError::new(ErrorCode::StorageFull),
        StoreError::Io { .. }
        | StoreError::HandedOver { .. }
        | StoreError::Stuck
        | StoreError::Unreachable { .. }
        | StoreError::Database { .. }
        | StoreError::Reverted
        | StoreError::InUse { .. }
        | StoreError::Evicted { .. } => {
            let message = "The store cannot be read or written at the moment; try again shortly.";
            ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
        }
        _ => ApiError::new(ErrorCode::Internal),
    }
}

/// Returns the error for requests while the bucket of the contents cannot be used.
fn bucket_unavailable() -> ApiError {
    let message = "The contents of files cannot be read or written at the moment; try again shortly.";
    ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
}

/// Returns true if the bucket cannot be reached, or refuses requests until the operator changes something.
pub(super) fn is_bucket_unavailable(error: &io::Error) -> bool {
    matches!(BucketError::from_io_error(error), Some(BucketError::Unreachable(_) | BucketError::Refused(_)))
}

impl From<FileError> for ApiError {
    fn from(failed: FileError) -> Self {
        failed.to_api_error()
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Converts an I/O error of the disk or of the bucket to an API error.
pub fn io_to_api_error(error: &std::io::Error) -> ApiError {
    if is_bucket_unavailable(error) {
        return bucket_unavailable();
    }
    ApiError::new(match error.kind() {
        // A file that exceeds the limit of the process or of the file system needs another disk, like a full one.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorCode::StorageFull
        }
        _ => ErrorCode::Internal,
    })
}
