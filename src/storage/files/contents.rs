//! Verified contents of a file: every block is compared with its checksum before its bytes are
//! returned. All calls block.

use super::block_checksums::{BLOCK_BYTES, BlockChecksums, damaged_error, read_table};
use bytes::{Bytes, BytesMut};
use penstock_batch::jsonl;
use penstock_object_storage::RandomAccessObject;
use penstock_storage::files::{FileRecord, FileStatus};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Bytes per read of a line reader.
const READ_SIZE: usize = 4 * BLOCK_BYTES;
/// Byte order mark, which some editors write at the start of UTF-8 text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Open contents of one file.
#[derive(Debug)]
pub struct FileContents {
    reader: Box<dyn RandomAccessObject>,
    bytes: u64,
    block_checksums: Vec<u32>,
}

impl FileContents {
    /// Opens the contents of a record. A growing file has to be read completely for this.
    ///
    /// # Errors
    /// Returns `InvalidData` if they do not match the record, and any I/O error.
    pub fn open(path: &Path, record: &FileRecord) -> Result<Self> {
        Self::from_reader(Box::new(File::open(path)?), record)
    }

    /// Creates open contents from their reader, and verifies their table of checksums.
    ///
    /// # Errors
    /// The same as those of [`FileContents::open`].
    pub(super) fn from_reader(reader: Box<dyn RandomAccessObject>, record: &FileRecord) -> Result<Self> {
        let block_checksums = match (record.status, record.table_checksum) {
            (FileStatus::Uploaded, table_checksum) => {
                BlockChecksums::compute(&*reader, record.bytes, table_checksum, |_| {})?.into_table()
            }
            (_, Some(table_checksum)) => read_table(&*reader, record.bytes, table_checksum)?,
            (_, None) => return Err(damaged_error()),
        };
        Ok(Self { reader, bytes: record.bytes, block_checksums })
    }

    /// Returns the length of the file, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the contents are empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads up to `max_bytes` from an offset; fewer at the end.
    ///
    /// # Errors
    /// Returns `InvalidData` if a block is damaged, and any I/O error.
    pub fn read(&self, offset: u64, max_bytes: usize) -> Result<Bytes> {
        let end = offset.saturating_add(max_bytes as u64).min(self.bytes);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let block = BLOCK_BYTES as u64;
        let (from, upto) =
            (offset - offset % block, end.div_ceil(block).saturating_mul(block).min(self.bytes));
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Error::from(ErrorKind::FileTooLarge));
        let mut read = BytesMut::zeroed(size(upto - from)?);
        self.reader.read_exact_at(&mut read, from).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged_error(),
            _ => error,
        })?;
        let first = size(from / block)?;
        let checksums = self.block_checksums.get(first..).ok_or_else(damaged_error)?;
        for (piece, checksum) in read.chunks(BLOCK_BYTES).zip(checksums) {
            if crc32c::crc32c(piece) != *checksum {
                return Err(damaged_error());
            }
        }
        Ok(read.freeze().slice(size(offset - from)?..size(end - from)?))
    }
}

/// Line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// Number of the line, from 1. It is correct only if the reader started at the beginning of the file.
    pub number: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes without the line break.
    pub bytes: Bytes,
}

/// Result of reading the next line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextLine {
    /// Complete line of the file.
    Line(FileLine),
    /// Start of a line that is longer than the limit; the next call continues with it.
    TooLong,
    /// End of the file.
    End,
}

/// Line reader. At most the bytes of one read and one line are in memory.
#[derive(Debug)]
pub struct LineReader {
    contents: FileContents,
    /// Offset of the next read.
    at: u64,
    held: BytesMut,
    /// Number of bytes of `held` that contain no line break.
    scanned: usize,
    number: u64,
}

/// Line as it was read, with its line break.
enum RawLine {
    Line(Bytes),
    TooLong,
    End,
}

impl LineReader {
    /// Creates a reader that starts at the beginning.
    #[must_use]
    pub fn new(contents: FileContents) -> Self {
        Self { contents, at: 0, held: BytesMut::new(), scanned: 0, number: 0 }
    }

    /// Creates a reader that starts at the offset of a line.
    #[must_use]
    pub fn starting_at(contents: FileContents, offset: u64) -> Self {
        // Only the first line of a file can have a byte order mark. The reader removes it from line 1, so a later
        // start counts as line 1 already.
        Self { at: offset, number: u64::from(offset > 0), ..Self::new(contents) }
    }

    /// Returns the next line that is not blank; `None` at the end of the file.
    ///
    /// # Errors
    /// Returns the errors of [`FileContents::read`], and `InvalidData` if a line exceeds the limit.
    pub fn next_line(&mut self) -> Result<Option<FileLine>> {
        match self.next_line_within(jsonl::MAX_LINE_LIMIT_BYTES)? {
            NextLine::Line(line) => Ok(Some(line)),
            NextLine::TooLong => Err(damaged_error()),
            NextLine::End => Ok(None),
        }
    }

    /// Returns the next line that is not blank, if its end is found within about `max_bytes`.
    ///
    /// # Errors
    /// Returns the errors of [`FileContents::read`].
    pub fn next_line_within(&mut self, max_bytes: usize) -> Result<NextLine> {
        loop {
            let line = match self.raw_line(max_bytes)? {
                RawLine::Line(line) => line,
                RawLine::TooLong => return Ok(NextLine::TooLong),
                RawLine::End => return Ok(NextLine::End),
            };
            self.number += 1;
            let first = self.number == 1;
            let start = self.at - self.held.len() as u64 - line.len() as u64;
            let mark = if first && line.starts_with(BYTE_ORDER_MARK.as_bytes()) {
                BYTE_ORDER_MARK.len() as u64
            } else {
                0
            };
            let bare = jsonl::strip_line_ending(&line, first);
            if !bare.trim_ascii().is_empty() {
                let (number, offset) = (self.number, start + mark);
                return Ok(NextLine::Line(FileLine { number, offset, bytes: line.slice_ref(bare) }));
            }
        }
    }

    /// Returns the next line with its line break.
    fn raw_line(&mut self, max_bytes: usize) -> Result<RawLine> {
        loop {
            let fresh = self.held.get(self.scanned..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', fresh) {
                let line = self.held.split_to(self.scanned + end + 1);
                self.scanned = 0;
                if line.len() > READ_SIZE {
                    // The remaining bytes are copied, so that they do not retain the buffer of a long line.
                    self.held = BytesMut::from(&*self.held);
                }
                return Ok(RawLine::Line(line.freeze()));
            }
            self.scanned = self.held.len();
            if self.held.len() > max_bytes.saturating_add(READ_SIZE) {
                return Ok(RawLine::TooLong);
            }
            let more = self.contents.read(self.at, READ_SIZE)?;
            if more.is_empty() {
                self.scanned = 0;
                let rest = std::mem::take(&mut self.held);
                return Ok(if rest.is_empty() { RawLine::End } else { RawLine::Line(rest.freeze()) });
            }
            self.at += more.len() as u64;
            self.held.extend_from_slice(&more);
        }
    }
}
