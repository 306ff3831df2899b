//! Contents of a file as they were written, or an error: every block is held against its checksum before a byte
//! of it is given. Calls block.

use super::block_checksums::{BLOCK, Sums, damaged, table};
use bytes::{Bytes, BytesMut};
use penstock_batch::jsonl;
use penstock_storage::files::{FileRecord, FileStatus};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that a line reader takes at once.
const STRIDE: usize = 4 * BLOCK;
/// What some editors put before a text in UTF-8.
const MARK: &str = "\u{feff}";

/// The contents of one file, open.
#[derive(Debug)]
pub struct Contents {
    file: File,
    bytes: u64,
    sums: Vec<u32>,
}

impl Contents {
    /// Opens the contents that a record tells of. Those of a file that grows are all read for it.
    ///
    /// # Errors
    /// `InvalidData` if they are not those; what the disk says.
    pub fn open(path: &Path, record: &FileRecord) -> Result<Self> {
        let file = File::open(path)?;
        let sums = match (record.status, record.sums) {
            (FileStatus::Uploaded, sum) => Sums::of(&file, record.bytes, sum, |_| {})?.table(),
            (_, Some(sum)) => table(&file, record.bytes, sum)?,
            (_, None) => return Err(damaged()),
        };
        Ok(Self { file, bytes: record.bytes, sums })
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// There are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes from a place on: `most` of them, fewer at the end.
    ///
    /// # Errors
    /// `InvalidData` if a block of them is damaged; what the disk says.
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

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// Its number in the file, from 1 on.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes, without its end.
    pub bytes: Bytes,
}

/// What a line reader found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A line.
    Line(FileLine),
    /// The beginning of one that is longer than was asked for; the next call goes on with it.
    Long,
    /// The end of the file.
    End,
}

/// Reads a file line by line, holding one stride and one line of it.
#[derive(Debug)]
pub struct LineReader {
    contents: Contents,
    /// Up to where it has read.
    at: u64,
    held: BytesMut,
    /// Bytes of `held` without a line's end in them.
    looked: usize,
    number: u64,
}

/// A line with its end.
enum Raw {
    Line(Bytes),
    Long,
    End,
}

impl LineReader {
    /// A reader from the beginning.
    #[must_use]
    pub fn new(contents: Contents) -> Self {
        Self { contents, at: 0, held: BytesMut::new(), looked: 0, number: 0 }
    }

    /// The next line that is not blank; `None` at the end.
    ///
    /// # Errors
    /// As [`Contents::read`]; a line longer than any that is taken.
    pub fn next_line(&mut self) -> Result<Option<FileLine>> {
        match self.next_within(jsonl::MAX_LINE_LIMIT)? {
            Next::Line(line) => Ok(Some(line)),
            Next::Long => Err(damaged()),
            Next::End => Ok(None),
        }
    }

    /// The next line that is not blank, as long as about `most` bytes of it are enough to find its end.
    ///
    /// # Errors
    /// As [`Contents::read`].
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

    /// The next line with its end.
    fn raw_line(&mut self, most: usize) -> Result<Raw> {
        loop {
            let fresh = self.held.get(self.looked..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', fresh) {
                let line = self.held.split_to(self.looked + end + 1);
                self.looked = 0;
                if line.len() > STRIDE {
                    // What follows must not hold on to the room of a long line.
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
