//! Input lines of a batch that have no result yet, read in small groups. The body of a large line does not stay in
//! memory: its offset in the file is stored, and it is read again when the line is sent. All calls block.

use crate::storage::files::{FileLine, LineReader, NextLine};
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::jsonl;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Maximum number of lines per read.
const MAX_LINES: usize = 256;

/// Size in bytes above which a line is large.
pub const LARGE_LINE_BYTES: usize = 1 << 20;

/// Maximum length of a model name in bytes; no model of the catalogue has a longer name.
const MAX_MODEL_NAME: usize = 256;

/// Input line without a result.
pub struct PendingLine {
    /// Index of the line, from 0.
    pub index: u32,
    /// The client's ID of the line.
    pub custom_id: Box<str>,
    /// Body of the line's request, in memory or in the input file.
    pub body: LineBody,
    /// Number of attempts so far.
    pub attempts: u32,
}

/// Body of a line.
#[derive(Clone)]
pub enum LineBody {
    /// Body in memory.
    InMemory(Bytes),
    /// Body in the input file.
    InFile {
        /// Offset of the first byte.
        offset: u64,
        /// Length of the body, in bytes.
        length: usize,
    },
}

impl LineBody {
    /// Returns the length of the body in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::InMemory(body) => body.len(),
            Self::InFile { length, .. } => *length,
        }
    }
}

/// Lock that is held while a large line is read: all batches together read one at a time.
pub type LargeLineLock = Arc<Mutex<()>>;

/// Reader of the lines of a batch's input file.
pub struct BatchInputReader {
    reader: LineReader,
    large_lock: LargeLineLock,
    next_index: u32,
    /// Index after the last line to read.
    end_index: u32,
    /// Model named by the first line; `None` before the line was read, if the line is finished, or if it names none or
    /// a name that is too long.
    pub model: Option<String>,
    /// Read error that the next call returns, because the lines before the error are returned first.
    deferred_error: Option<Error>,
    /// True once no line is left to read: at the end of the file, or after the maximum number of lines.
    pub at_end: bool,
}

impl BatchInputReader {
    /// Creates a reader of the input that begins at the position of `reader`.
    pub const fn new(reader: LineReader, large_lock: LargeLineLock) -> Self {
        Self {
            reader,
            large_lock,
            next_index: 0,
            end_index: u32::MAX,
            model: None,
            deferred_error: None,
            at_end: false,
        }
    }

    /// Limits the input to this many lines.
    pub const fn limit_lines(&mut self, lines: u32) {
        self.end_index = lines;
    }

    /// Returns the next unfinished lines, about `target_bytes` of them; no line at the end of the file. If a read
    /// fails, the lines before the error are returned first; the next call returns the error, and the call after that
    /// tries to read again.
    ///
    /// # Errors
    /// Returns `InvalidData` if a line is damaged, and any I/O error.
    pub fn read_pending_lines(
        &mut self,
        done: &CompletionBitmap,
        target_bytes: usize,
    ) -> Result<Vec<PendingLine>> {
        if let Some(error) = self.deferred_error.take() {
            return Err(error);
        }
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < MAX_LINES && bytes < target_bytes {
            match self.next_pending(done) {
                Ok(Some((line, length))) => {
                    bytes += length;
                    lines.push(line);
                }
                Ok(None) => {
                    self.at_end = true;
                    break;
                }
                Err(error) if lines.is_empty() => return Err(error),
                Err(error) => {
                    self.deferred_error = Some(error);
                    break;
                }
            }
        }
        Ok(lines)
    }

    /// Returns the next unfinished line and its length in the file.
    fn next_pending(&mut self, done: &CompletionBitmap) -> Result<Option<(PendingLine, usize)>> {
        while self.next_index < self.end_index {
            let found = match self.reader.next_line_within(LARGE_LINE_BYTES)? {
                NextLine::Line(line) => self.parse_line(&line, done)?,
                NextLine::TooLong => {
                    let gate = self.large_lock.clone();
                    let _alone = gate.lock();
                    let Some(line) = self.reader.next_line()? else { return Ok(None) };
                    self.parse_line(&line, done)?
                }
                NextLine::End => return Ok(None),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Parses a line; `None` if it is finished.
    fn parse_line(
        &mut self,
        line: &FileLine,
        done: &CompletionBitmap,
    ) -> Result<Option<(PendingLine, usize)>> {
        let index = self.next_index;
        self.next_index += 1;
        if done.is_line_finished(index) {
            return Ok(None);
        }
        let damaged = || Error::from(ErrorKind::InvalidData);
        let read =
            jsonl::parse_line(&line.bytes, penstock_batch::jsonl::BATCH_PATHS).map_err(|_| damaged())?;
        if index == 0 {
            self.model = model_of_body(read.body);
        }
        let (custom_id, length) = (read.custom_id.into(), line.bytes.len());
        let body = if length > LARGE_LINE_BYTES {
            let before = read.body.as_ptr().addr().checked_sub(line.bytes.as_ptr().addr());
            let offset = line.offset + before.ok_or_else(damaged)? as u64;
            LineBody::InFile { offset, length: read.body.len() }
        } else {
            // The body is copied, because a slice would retain the complete read buffer.
            LineBody::InMemory(Bytes::copy_from_slice(read.body))
        };
        Ok(Some((PendingLine { index, custom_id, body, attempts: 0 }, length)))
    }
}

/// Returns the model that a body names; `None` if it names none, or if the name is too long to be stored with the
/// batch.
fn model_of_body(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct NamedModel {
        model: Option<String>,
    }
    serde_json::from_slice::<NamedModel>(body).ok()?.model.filter(|model| model.len() <= MAX_MODEL_NAME)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::settings;
    use crate::storage::files::{FileManager, FileOwner, quota::UploadLimits};
    use penstock_batch::upload_form::UploadFields;
    use penstock_storage::{files::FileStore, open_in_memory};
    use std::fs;
    use std::time::Duration;

    #[test]
    fn a_temporary_read_error_fails_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings::FileSettings {
            path: folder.path().to_owned(),
            upload: 8 << 20,
            disk: 1 << 30,
            per_key: 1 << 30,
            keep_free: 0,
            retention: None,
            leftovers: Duration::from_secs(3_600),
            store: None,
        };
        let files = FileManager::open(&settings, FileStore::new(open_in_memory()), false).unwrap();
        let bounds = UploadLimits {
            max_total_bytes: 1 << 30,
            max_key_bytes: 1 << 30,
            min_free_bytes: 0,
            max_line_bytes: 1 << 20,
        };
        let mut incoming = files.start_upload(FileOwner { key: "k", account: "a" }, bounds).unwrap();
        for number in 0..400 {
            let line = format!(
                r#"{{"custom_id":"{number}","method":"POST","url":"/v1/rerank","body":{{"query":"{number:04000}"}}}}"#
            );
            incoming.push(format!("{line}\n").as_bytes()).unwrap();
        }
        let fields = UploadFields { filename: "in.jsonl".to_owned(), expires_after: None };
        let owner = FileOwner { key: "k", account: "a" };
        let record = files.store_upload(incoming, owner, fields, Duration::from_secs(1)).unwrap();
        let mut input = BatchInputReader::new(files.read_lines(&record).unwrap(), LargeLineLock::default());
        let path = files.contents_path(&record.id);
        let (whole, done) = (fs::read(&path).unwrap(), CompletionBitmap::with_line_count(400));
        // Truncates the file for a while, so that the second read fails.
        fs::write(&path, whole.get(..256 << 10).unwrap()).unwrap();
        let mut all = input.read_pending_lines(&done, usize::MAX).unwrap();
        assert!(!all.is_empty() && all.len() < 100, "{}", all.len());
        assert!(
            input.read_pending_lines(&done, usize::MAX).is_err()
                && input.read_pending_lines(&done, usize::MAX).is_err()
        );
        fs::write(&path, whole).unwrap();
        while !input.at_end {
            all.extend(input.read_pending_lines(&done, usize::MAX).unwrap());
        }
        assert!(all.iter().map(|line| line.index).eq(0..400));
    }
}
