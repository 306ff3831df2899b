//! Files of stored responses, in a folder of this machine or where all gateways of a fleet can access them.

use super::{MAX_ID_BYTES, RESPONSE_ID_PREFIX};
use std::io::Result;

/// Name of a stored response: the id of its API key, and its own id.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseName<'a> {
    /// Public id of the API key.
    pub(super) key: &'a str,
    /// Id of the response.
    pub(super) id: &'a str,
}

impl<'a> ResponseName<'a> {
    /// Checks a name; `None` for ids that name no file, such as `../key`.
    pub(super) fn new(key: &'a str, id: &'a str) -> Option<Self> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let unique = id.strip_prefix(RESPONSE_ID_PREFIX)?;
        (is_word(key) && is_word(unique) && id.len() <= MAX_ID_BYTES).then_some(Self { key, id })
    }
}

/// File of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseFile {
    /// Id of the response.
    pub(super) id: String,
    /// Length of the file, in bytes.
    pub(super) bytes: u64,
    /// Start of the retention, Unix seconds; in a bucket, the time of the last write.
    pub(super) retained_since: u64,
    /// Time of the last write in nanoseconds, which orders files with the same second in `retained_since`; 0 if it is
    /// unknown.
    pub(super) written_at: i64,
    /// False for a background response that has not ended.
    pub(super) has_ended: bool,
}

impl ResponseFile {
    /// Returns an entry with the id and the length of an ended response. Its other fields are not set, so it serves
    /// only to remove the file.
    pub(super) fn for_ended_response(id: &str, bytes: u64) -> Self {
        Self { id: id.to_owned(), bytes, retained_since: 0, written_at: 0, has_ended: true }
    }
}

/// Stage of a response whose file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStage {
    /// Background response that has not ended.
    Unfinished,
    /// Background response that has ended; its file replaces the unfinished one.
    Finished,
    /// Response that is stored only once, when it is complete.
    Complete,
}

/// Files of stored responses by key and id. All calls block.
pub(super) trait ResponseFiles: Send + Sync {
    /// Writes a file, or replaces it completely. The file survives a power loss.
    fn write(
        &self,
        name: ResponseName<'_>,
        sealed: &[u8],
        retained_since: u64,
        stage: ResponseStage,
    ) -> Result<()>;

    /// Reads a file; `None` if there is no file with this name.
    fn read(&self, name: ResponseName<'_>) -> Result<Option<Vec<u8>>>;

    /// Fills the buffer with the first bytes of a file; `None` if there is no file with this name.
    fn read_start(&self, name: ResponseName<'_>, buffer: &mut [u8]) -> Result<Option<()>>;

    /// Returns the length of a file in bytes; `None` if there is no file with this name.
    fn size(&self, name: ResponseName<'_>) -> Result<Option<u64>>;

    /// Removes files of a key; returns the files that existed.
    fn remove(&self, key: &str, files: Vec<ResponseFile>) -> Result<Vec<ResponseFile>>;

    /// Returns the files of the stored responses of an API key.
    fn files_of_key(&self, key: &str) -> Result<Vec<ResponseFile>>;

    /// Calls `each` for every key that has files, with these files.
    fn for_each_key(&self, each: &mut dyn FnMut(&str, Vec<ResponseFile>) -> Result<()>) -> Result<()>;

    /// Returns the maximum number of files that one write may evict. The next sweep evicts the rest.
    fn max_evictions_per_write(&self) -> usize;

    /// Returns true if `keep_free` bytes of the disk stay free after a file of this length was written.
    fn has_space(&self, bytes: u64, keep_free: u64) -> bool;
}
