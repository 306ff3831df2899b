//! Verified contents of a file: every block is compared with its checksum before its bytes are
//! returned. All calls block.

use super::block_checksums::{BLOCK, Sums, damaged, table};
use bytes::{Bytes, BytesMut};
use penstock_batch::jsonl;
use penstock_storage::files::{FileRecord, FileStatus};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes per read of a line reader.
const STRIDE: usize = 4 * BLOCK;
/// Byte order mark, which some editors write at the start of UTF-8 text.
const MARK: &str = "\u{feff}";

/// Open contents of one file.
#[derive(Debug)]
pub struct Contents {
    file: File,
    bytes: u64,
    sums: Vec<u32>,
}

impl Contents {
    /// Opens the contents of a record. A growing file is read completely for it.
    ///
    /// # Errors
    /// Returns `InvalidData` if they do not match the record, and any I/O error.
    pub fn open(path: &Path, record: &FileRecord) -> Result<Self> {
        let file = File::open(path)?;
        let sums = match (record.status, record.sums) {
            (FileStatus::Uploaded, sum) => Sums::of(&file, record.bytes, sum, |_| {})?.table(),
            (_, Some(sum)) => table(&file, record.bytes, sum)?,
            (_, None) => return Err(damaged()),
        };
        Ok(Self { file, bytes: record.bytes, sums })
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the contents are empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads up to `most` bytes from an offset; fewer at the end.
    ///
    /// # Errors
    /// Returns `InvalidData` if a block is damaged, and any I/O error.
    pub fn read(&self, at: u64, most: usize) -> Result<Bytes> {
        let end = at.saturating_add(most as u64).min(self.bytes);
        if at >= end {
            return Ok(Bytes::new());
        }
        let block = BLOCK as u64;
        let (from, upto) = (at - at % block, end.div_ceil(block).saturating_mul(block).min(self.bytes));
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Error::from(ErrorKind::FileTooLarge));
        let mut read = BytesMut::zeroed(size(upto - from)?);
        self.file.read_exact_at(&mut read, from).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged(),
            _ => error,
        })?;
        let first = size(from / block)?;
        for (piece, sum) in read.chunks(BLOCK).zip(self.sums.get(first..).ok_or_else(damaged)?) {
            if crc32c::crc32c(piece) != *sum {
                return Err(damaged());
            }
        }
        Ok(read.freeze().slice(size(at - from)?..size(end - from)?))
    }
}

/// Line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// Line number, from 1.
    pub number: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes without the line break.
    pub bytes: Bytes,
}

/// Result of a line reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Complete line.
    Line(FileLine),
    /// Start of a line that is longer than the limit; the next call continues with it.
    Long,
    /// End of the file.
    End,
}

/// Line reader that keeps one read and one line in memory.
#[derive(Debug)]
pub struct LineReader {
    contents: Contents,
    /// Offset of the next read.
    at: u64,
    held: BytesMut,
    /// Number of bytes of `held` that contain no line break.
    looked: usize,
    number: u64,
}

/// Line with its line break.
enum Raw {
    Line(Bytes),
    Long,
    End,
}

impl LineReader {
    /// Returns a reader from the beginning.
    #[must_use]
    pub fn new(contents: Contents) -> Self {
        Self { contents, at: 0, held: BytesMut::new(), looked: 0, number: 0 }
    }

    /// Returns the next non-blank line; `None` at the end.
    ///
    /// # Errors
    /// Returns the errors of [`Contents::read`], and `InvalidData` if a line exceeds the limit.
    pub fn next_line(&mut self) -> Result<Option<FileLine>> {
        match self.next_within(jsonl::MAX_LINE_LIMIT)? {
            Next::Line(line) => Ok(Some(line)),
            Next::Long => Err(damaged()),
            Next::End => Ok(None),
        }
    }

    /// Returns the next non-blank line, if its end is found within about `most` bytes.
    ///
    /// # Errors
    /// Returns the errors of [`Contents::read`].
    pub fn next_within(&mut self, most: usize) -> Result<Next> {
        loop {
            let line = match self.raw_line(most)? {
                Raw::Line(line) => line,
                Raw::Long => return Ok(Next::Long),
                Raw::End => return Ok(Next::End),
            };
            self.number += 1;
            let first = self.number == 1;
            let start = self.at - self.held.len() as u64 - line.len() as u64;
            let mark = if first && line.starts_with(MARK.as_bytes()) { MARK.len() as u64 } else { 0 };
            let bare = jsonl::strip_line_ending(&line, first);
            if !bare.trim_ascii().is_empty() {
                let (number, offset) = (self.number, start + mark);
                return Ok(Next::Line(FileLine { number, offset, bytes: line.slice_ref(bare) }));
            }
        }
    }

    /// Returns the next line with its line break.
    fn raw_line(&mut self, most: usize) -> Result<Raw> {
        loop {
            let fresh = self.held.get(self.looked..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', fresh) {
                let line = self.held.split_to(self.looked + end + 1);
                self.looked = 0;
                if line.len() > STRIDE {
                    // The remaining bytes must not retain the buffer of a long line.
                    self.held = BytesMut::from(&*self.held);
                }
                return Ok(Raw::Line(line.freeze()));
            }
            self.looked = self.held.len();
            if self.held.len() > most.saturating_add(STRIDE) {
                return Ok(Raw::Long);
            }
            let more = self.contents.read(self.at, STRIDE)?;
            if more.is_empty() {
                self.looked = 0;
                let rest = std::mem::take(&mut self.held);
                return Ok(if rest.is_empty() { Raw::End } else { Raw::Line(rest.freeze()) });
            }
            self.at += more.len() as u64;
            self.held.extend_from_slice(&more);
        }
    }
}
