//! Input lines of a batch that have no result yet, read in small groups. The body of a large line is not kept in
//! memory: its file offset is stored, and it is read again when it is sent. All calls block.

use crate::storage::files::{FileLine, LineReader, Next};
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::jsonl;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Maximum number of lines per read.
const MOST: usize = 256;

/// Size in bytes above which a line is large.
pub const LARGE: usize = 1 << 20;

/// Longest model name in bytes; no catalogue has a longer one.
const MOST_MODEL: usize = 256;

/// Input line without a result.
pub struct Asked {
    /// Index of the line, from 0.
    pub index: u32,
    /// The client's ID of the line.
    pub custom_id: Box<str>,
    /// Request body.
    pub body: Body,
    /// Number of attempts so far.
    pub times: u32,
}

/// Body of a line.
#[derive(Clone)]
pub enum Body {
    /// Body in memory.
    Held(Bytes),
    /// Body in the input file.
    Stored {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: usize,
    },
}

impl Body {
    /// Length of the body in bytes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Held(body) => body.len(),
            Self::Stored { length, .. } => *length,
        }
    }
}

/// Lock for reading a large line: one batch reads one at a time.
pub type LargeGate = Arc<Mutex<()>>;

/// Input file that is being read.
pub struct Input {
    reader: LineReader,
    gate: LargeGate,
    next: u32,
    /// Model named by the first line.
    pub model: Option<String>,
    /// Read error after lines that are returned first.
    failed: Option<Error>,
    /// True if the end of the file was reached.
    pub over: bool,
}

impl Input {
    /// Returns the input from its beginning.
    pub const fn new(reader: LineReader, gate: LargeGate) -> Self {
        Self { reader, gate, next: 0, model: None, failed: None, over: false }
    }

    /// Returns the next unfinished lines, about `most` bytes of them; empty at the end. A read error is returned
    /// after the lines before it, and the following call tries again.
    ///
    /// # Errors
    /// Returns `InvalidData` if a line is damaged, and any I/O error.
    pub fn read(&mut self, done: &CompletionBitmap, most: usize) -> Result<Vec<Asked>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < MOST && bytes < most {
            match self.line(done) {
                Ok(Some((line, length))) => {
                    bytes += length;
                    lines.push(line);
                }
                Ok(None) => {
                    self.over = true;
                    break;
                }
                Err(error) if lines.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(lines)
    }

    /// Returns the next unfinished line and its length in the file.
    fn line(&mut self, done: &CompletionBitmap) -> Result<Option<(Asked, usize)>> {
        loop {
            let found = match self.reader.next_within(LARGE)? {
                Next::Line(line) => self.asked(&line, done)?,
                Next::Long => {
                    let gate = self.gate.clone();
                    let _alone = gate.lock();
                    let Some(line) = self.reader.next_line()? else { return Ok(None) };
                    self.asked(&line, done)?
                }
                Next::End => return Ok(None),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Parses a line; `None` if it is finished.
    fn asked(&mut self, line: &FileLine, done: &CompletionBitmap) -> Result<Option<(Asked, usize)>> {
        let index = self.next;
        self.next += 1;
        if done.has_result(index) {
            return Ok(None);
        }
        let damaged = || Error::from(ErrorKind::InvalidData);
        let read = jsonl::line(&line.bytes, penstock_batch::jsonl::BATCH_PATHS).map_err(|_| damaged())?;
        if index == 0 {
            self.model = model(read.body);
        }
        let (custom_id, length) = (read.custom_id.into(), line.bytes.len());
        let body = if length > LARGE {
            let before = read.body.as_ptr().addr().checked_sub(line.bytes.as_ptr().addr());
            let offset = line.offset + before.ok_or_else(damaged)? as u64;
            Body::Stored { offset, length: read.body.len() }
        } else {
            // A copy, because a slice would retain the complete read buffer.
            Body::Held(Bytes::copy_from_slice(read.body))
        };
        Ok(Some((Asked { index, custom_id, body, times: 0 }, length)))
    }
}

/// Model named by a body; `None` if it is too long, since the name is stored with the batch.
fn model(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        model: Option<String>,
    }
    serde_json::from_slice::<Named>(body).ok()?.model.filter(|model| model.len() <= MOST_MODEL)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::settings;
    use crate::storage::files::{Files, Owner, quota::Bounds};
    use penstock_batch::upload_form::Uploaded;
    use penstock_storage::{files::FileStore, open_in_memory};
    use std::fs;
    use std::time::Duration;

    #[test]
    fn what_cannot_be_read_for_a_moment_costs_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings::FileSettings {
            path: folder.path().to_owned(),
            upload: 8 << 20,
            disk: 1 << 30,
            per_key: 1 << 30,
            keep_free: 0,
            retention: None,
        };
        let files = Files::open(&settings, FileStore::new(open_in_memory()), false).unwrap();
        let bounds = Bounds { all: 1 << 30, key: 1 << 30, free: 0, line: 1 << 20 };
        let mut incoming = files.incoming("k", bounds).unwrap();
        for number in 0..400 {
            let line = format!(
                r#"{{"custom_id":"{number}","method":"POST","url":"/v1/rerank","body":{{"query":"{number:04000}"}}}}"#
            );
            incoming.push(format!("{line}\n").as_bytes()).unwrap();
        }
        let said = Uploaded { filename: "in.jsonl".to_owned(), expires_after: None };
        let owner = Owner { key: "k", account: "a" };
        let record = files.keep(incoming, owner, said, Duration::from_secs(1)).unwrap();
        let mut input = Input::new(files.read_lines(&record).unwrap(), LargeGate::default());
        let path = files.path(&record.id);
        let (whole, done) = (fs::read(&path).unwrap(), CompletionBitmap::with_lines(400));
        // The second read of the file fails for a while.
        fs::write(&path, whole.get(..256 << 10).unwrap()).unwrap();
        let mut all = input.read(&done, usize::MAX).unwrap();
        assert!(!all.is_empty() && all.len() < 100, "{}", all.len());
        assert!(input.read(&done, usize::MAX).is_err() && input.read(&done, usize::MAX).is_err());
        fs::write(&path, whole).unwrap();
        while !input.over {
            all.extend(input.read(&done, usize::MAX).unwrap());
        }
        assert!(all.iter().map(|line| line.index).eq(0..400));
    }
}
