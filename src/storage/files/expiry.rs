//! Expiry of files.

use penstock_storage::files::{FileRecord, FileStatus};

/// Current time and retention period, by which the expired files are determined.
#[derive(Clone, Copy, Debug)]
pub struct FileExpiryContext {
    /// Current time in Unix seconds.
    pub now: u64,
    /// Retention period in seconds; `None` without a limit.
    pub retention: Option<u64>,
}

impl FileExpiryContext {
    /// Returns the expiry of a file in Unix seconds; `None` if the file never expires. The retention period of an
    /// output file starts when its last result was written.
    #[must_use]
    pub fn expires_at(&self, file: &FileRecord) -> Option<u64> {
        let whole = file.finished_at.unwrap_or(file.created_at);
        let retained_until = self.retention.map(|seconds| whole.saturating_add(seconds));
        match (retained_until, file.expires_at) {
            (Some(retained_until), Some(asked)) => Some(retained_until.min(asked)),
            (retained_until, asked) => retained_until.or(asked),
        }
    }

    /// Returns true if a file has expired. A growing file never expires.
    #[must_use]
    pub fn is_expired(&self, file: &FileRecord) -> bool {
        file.status != FileStatus::Uploaded && self.expires_at(file).is_some_and(|end| end <= self.now)
    }
}
