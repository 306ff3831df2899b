//! Access to the files of a database without sled.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::handle::SEGMENT_BYTES;
use super::format::{
    SEGMENT_HEADER_BYTES, SegmentHeader, SegmentItem, SegmentItems, find_message, parse_message,
    parse_segment_header,
};
use crate::StoreError;

/// Log file, opened for reading.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    /// Open file; `None` if it does not exist.
    file: Option<File>,
    pub(crate) len: u64,
}

/// Segment of the log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Offset in the file.
    pub(crate) offset: u64,
    pub(crate) number: u64,
    pub(crate) header: HeaderState,
}

/// State of the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// Intact header, with the lsn up to which the log was complete when the segment was started.
    Intact(u64),
    /// Header that does not match its checksum, before messages that do. sled ignores such a segment and clears it.
    Lost,
}

impl Segment {
    /// Returns true if the header is intact.
    pub(crate) const fn has_header(&self) -> bool {
        matches!(self.header, HeaderState::Intact(_))
    }
}

/// Maximum number of a segment, whose last lsn still has 63 bits.
const MAX_NUMBER: u64 = (u64::MAX >> 1) / SEGMENT_BYTES as u64 - 1;

fn read_error(error: &io::Error) -> StoreError {
    StoreError::io("read its log", error)
}

impl LogFile {
    /// Opens the log of the database in `folder`. A missing log is treated as an empty one.
    pub(crate) fn open(folder: &Path) -> Result<LogFile, StoreError> {
        let path = folder.join("db");
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| read_error(&error))?),
        };
        let len = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()));
        Ok(LogFile { path, len: len.map_err(|error| read_error(&error))?, file })
    }

    /// Reads the segment at an offset into `buffer`; the last segment of the file may be shorter than the others.
    pub(crate) fn read_segment(&self, offset: u64, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        self.read(offset, SEGMENT_BYTES, buffer)
    }

    fn read(&self, offset: u64, len: usize, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        let rest = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        buffer.resize(len.min(rest), 0);
        match &self.file {
            Some(file) => file.read_exact_at(buffer, offset).map_err(|error| read_error(&error)),
            None => Ok(()),
        }
    }

    /// Returns the segments that sled reads on opening, which are those with the number `first` or a greater one, and
    /// segments of such a number whose header is lost.
    pub(crate) fn segments(&self, first: u64) -> Result<Vec<Segment>, StoreError> {
        let mut buffer = Vec::new();
        let mut segments = Vec::new();
        let mut offset = 0;
        while offset < self.len {
            self.read(offset, SEGMENT_HEADER_BYTES, &mut buffer)?;
            match parse_segment_header(&buffer) {
                Some(SegmentHeader { number, stable_lsn }) if number >= first => {
                    segments.push(Segment { offset, number, header: HeaderState::Intact(stable_lsn) });
                }
                Some(_) => {}
                None => {
                    self.read_segment(offset, &mut buffer)?;
                    if let Some(number) = find_number(&buffer, first) {
                        segments.push(Segment { offset, number, header: HeaderState::Lost });
                    }
                }
            }
            offset += SEGMENT_BYTES as u64;
        }
        Ok(segments)
    }

    /// Returns the description of damage at an offset of the file.
    pub(crate) fn describe(&self, offset: u64, damage: &str) -> String {
        format!("{} at byte {offset}: {damage}", self.path.display())
    }
}

/// Returns the number of the first message in a segment without a header, if the number is at least `first`.
fn find_number(segment: &[u8], first: u64) -> Option<u64> {
    let numbers = first..=MAX_NUMBER;
    let at = find_message(segment, SEGMENT_HEADER_BYTES, &numbers)?;
    parse_message(segment, at, &numbers).map(|message| message.number)
}

/// Passes each item of a segment to `each`, with its lsn and its offset in the file.
pub(crate) fn for_each_item(
    segment: &Segment,
    bytes: &[u8],
    mut each: impl FnMut(SegmentItem<'_>, u64, u64),
) {
    let first_lsn = segment.number * SEGMENT_BYTES as u64;
    for item in SegmentItems::new(bytes, segment.number) {
        let (SegmentItem::Message(at, _) | SegmentItem::Tear { at, .. }) = item;
        each(item, first_lsn + at as u64, segment.offset + at as u64);
    }
}

/// Returns true if the file with the contents of a message exists and matches its checksum.
pub(crate) fn is_blob_intact(folder: &Path, name: u64) -> bool {
    fs::read(folder.join("blobs").join(name.to_string())).is_ok_and(|blob| {
        blob.split_first_chunk::<4>()
            .is_some_and(|(sum, rest)| crc32fast::hash(rest) == u32::from_le_bytes(*sum))
    })
}

/// Checks the file with the settings of the database. A missing or empty one is created by sled again.
///
/// # Errors
/// Returns `Corrupt` if it does not match its checksum.
pub(crate) fn check_settings(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join("conf");
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|error| StoreError::io("read its settings", &error))?,
    };
    let intact = bytes
        .split_last_chunk::<4>()
        .is_some_and(|(text, sum)| crc32fast::hash(text) == u32::from_le_bytes(*sum));
    if bytes.len() <= 8 || intact {
        return Ok(());
    }
    Err(StoreError::corrupt(format!("{} does not match its checksum", path.display())))
}
