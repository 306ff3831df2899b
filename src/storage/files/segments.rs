//! Segments of growing output files in a bucket, named `parts/<file id>/<start>-<end>-<checksum>-<checksum>`. The
//! checksums are those of the table of block checksums at the start and at the end. A record states the committed
//! length and this checksum. From there, the segments of the committed bytes are found backwards: each segment ends
//! where the next one starts, with the same checksum. Segments of a writer that did not commit are not part of this
//! chain. All calls block.

use super::FILE_ID_PREFIX;
use super::block_checksums::damaged_error;
use super::bucket::object_name;
use crate::storage::object_id;
use penstock_object_storage::{ContentStore, RandomAccessObject, UPLOAD_PART_BYTES};
use penstock_storage::files::{FileRecord, FileStatus};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};

/// Folder in the bucket that contains the segments.
pub const SEGMENT_FOLDER: &str = "parts";
/// Number of segments that are merged into one. A gateway that takes over the batch then has to read only few
/// segments.
const MERGED_SEGMENTS: usize = 256;
/// Bytes per read of a segment.
const READ_SIZE: u64 = 1 << 20;

/// Length of an output file, and the checksum of its table at that length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutputCheckpoint {
    /// Length of the output file in bytes.
    pub bytes: u64,
    /// Checksum of the table of block checksums.
    pub table_checksum: u32,
}

/// Segment of an output file: the bytes that were appended between two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: OutputCheckpoint,
    end: OutputCheckpoint,
}

impl Segment {
    fn name(&self, id: &str) -> String {
        let Self { start, end } = self;
        format!(
            "{SEGMENT_FOLDER}/{id}/{:016x}-{:016x}-{:08x}-{:08x}",
            start.bytes, end.bytes, start.table_checksum, end.table_checksum
        )
    }

    /// Parses the name of a segment of the file `id`; `None` if the object is no segment of this file.
    fn parse(id: &str, name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(SEGMENT_FOLDER)?.strip_prefix('/')?.strip_prefix(id)?;
        numbers = numbers.strip_prefix('/')?;
        let mut numbers = numbers.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let mut next = || numbers.next().flatten();
        let (start, end) = (next()?, next()?);
        let (before, after) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
        let segment = Self {
            start: OutputCheckpoint { bytes: start, table_checksum: before },
            end: OutputCheckpoint { bytes: end, table_checksum: after },
        };
        (start < end && segment.name(id) == name).then_some(segment)
    }
}

/// Writer of the segments of one output file.
#[derive(Debug)]
pub struct SegmentWriter {
    contents: Arc<dyn ContentStore>,
    /// Folder for temporary files.
    folder: PathBuf,
    id: String,
    /// Temporary file that contains all bytes so far.
    local: TempPath,
    stored: OutputCheckpoint,
    /// Start of the segments that will be merged next.
    merge_start: OutputCheckpoint,
    segments: usize,
}

impl SegmentWriter {
    /// Creates the writer of a file with these committed bytes.
    pub fn new(
        contents: Arc<dyn ContentStore>,
        folder: PathBuf,
        record: &FileRecord,
        local: TempPath,
    ) -> Self {
        let stored = committed_position(record);
        Self { contents, folder, id: record.id.clone(), local, stored, merge_start: stored, segments: 0 }
    }

    /// Stores the bytes between the last segment and `end` as a segment, or merges them with the last segments into
    /// one. Does nothing if there are no new bytes. A segment that exists already is a success.
    ///
    /// # Errors
    /// Returns any other I/O error. The segment may be stored nevertheless.
    pub fn store_up_to(&mut self, file: &File, end: OutputCheckpoint) -> Result<()> {
        if end.bytes == self.stored.bytes {
            return Ok(());
        }
        let is_merged = self.segments + 1 >= MERGED_SEGMENTS;
        let start = if is_merged { self.merge_start } else { self.stored };
        self.store_segment(file, Segment { start, end })?;
        self.stored = end;
        self.segments += 1;
        if is_merged {
            (self.merge_start, self.segments) = (end, 0);
        }
        Ok(())
    }

    fn store_segment(&self, file: &File, segment: Segment) -> Result<()> {
        let (name, length) = (segment.name(&self.id), segment.end.bytes - segment.start.bytes);
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(segment.start.bytes))?;
        let mut bytes = file.take(length);
        let created = if length <= UPLOAD_PART_BYTES {
            let mut buffer = Vec::new();
            bytes.read_to_end(&mut buffer)?;
            self.contents.create_from_bytes(&name, buffer.into())
        } else {
            let mut copy = NamedTempFile::new_in(&self.folder)?;
            std::io::copy(&mut bytes, &mut copy)?;
            copy.flush()?;
            self.contents.create_from_file(&name, copy.into_temp_path())
        };
        ignore_existing(created)
    }

    /// Stores the complete file, with its table of checksums, as the object that belongs to the record; does nothing
    /// if the object exists already.
    ///
    /// # Errors
    /// Returns `InvalidData` if the record is not that of a complete file, and any other I/O error.
    pub fn store_complete_file(self, record: &FileRecord) -> Result<()> {
        let name = object_name(record).ok_or_else(damaged_error)?;
        ignore_existing(self.contents.create_from_file(&name, self.local))
    }
}

/// Ignores the error that the object already exists. Its name contains checksums of its bytes, so the existing object
/// has the same bytes.
fn ignore_existing(created: Result<()>) -> Result<()> {
    match created {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Returns true if an object is a segment of a file, by its name.
pub fn is_segment_object(name: &str) -> bool {
    let id = name.split('/').nth(1).unwrap_or_default();
    object_id::is_valid(FILE_ID_PREFIX, id) && Segment::parse(id, name).is_some()
}

/// Returns the folder of the segments of a file.
pub fn segment_folder(id: &str) -> String {
    format!("{SEGMENT_FOLDER}/{id}")
}

fn committed_position(record: &FileRecord) -> OutputCheckpoint {
    match record.bytes {
        0 => OutputCheckpoint::default(),
        bytes => OutputCheckpoint { bytes, table_checksum: record.table_checksum.unwrap_or_default() },
    }
}

/// Writes the committed bytes of a growing file to a local file; [`super::OutputFile`] and [`super::FileContents`]
/// verify them.
///
/// # Errors
/// Returns `InvalidData` if a segment is missing, and any I/O error.
pub fn fetch_committed_bytes(contents: &dyn ContentStore, record: &FileRecord, file: &File) -> Result<()> {
    for segment in committed_segments(contents, record)? {
        let object = contents.open(&segment.name(&record.id)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged_error(),
            _ => error,
        })?;
        if object.length()? != segment.end.bytes - segment.start.bytes {
            return Err(damaged_error());
        }
        copy_object_to_file(&*object, segment.start.bytes, file)?;
    }
    Ok(())
}

/// Copies an object to a position of a file.
///
/// # Errors
/// Returns any I/O error.
pub fn copy_object_to_file(object: &dyn RandomAccessObject, position: u64, file: &File) -> Result<()> {
    let (mut at, length) = (0, object.length()?);
    while at < length {
        let size = usize::try_from((length - at).min(READ_SIZE)).unwrap_or_default();
        let mut buffer = vec![0; size];
        object.read_exact_at(&mut buffer, at)?;
        file.write_all_at(&buffer, position + at)?;
        at += size as u64;
    }
    Ok(())
}

/// Stores the committed bytes of a growing file as one segment. Bytes that are not committed are left out. Does nothing
/// if no bytes are committed, or if the file no longer grows.
///
/// # Errors
/// Returns `AlreadyExists` if the segment is stored already, and any other I/O error.
pub fn store_committed_bytes(
    contents: &dyn ContentStore,
    record: &FileRecord,
    source: TempPath,
) -> Result<()> {
    let end = committed_position(record);
    if end.bytes == 0 || record.status != FileStatus::Uploaded {
        return Ok(());
    }
    OpenOptions::new().write(true).open(&source)?.set_len(end.bytes)?;
    contents.create_from_file(&Segment { start: OutputCheckpoint::default(), end }.name(&record.id), source)
}

/// Returns the segments of the committed bytes in their order.
fn committed_segments(contents: &dyn ContentStore, record: &FileRecord) -> Result<Vec<Segment>> {
    let mut position = committed_position(record);
    let mut chain = Vec::new();
    if position.bytes == 0 {
        return Ok(chain);
    }
    let by_end = list_segments(contents, &record.id)?;
    while position.bytes > 0 {
        let segment = by_end.get(&position).ok_or_else(damaged_error)?;
        position = segment.start;
        chain.push(*segment);
    }
    chain.reverse();
    if chain.first().is_some_and(|first| first.start != OutputCheckpoint::default()) {
        return Err(damaged_error());
    }
    Ok(chain)
}

/// Returns the segments of a file, with their ends as the keys of the map. Of several segments with the same end, the
/// longest is in the map.
fn list_segments(contents: &dyn ContentStore, id: &str) -> Result<HashMap<OutputCheckpoint, Segment>> {
    let folder = segment_folder(id);
    let mut by_end: HashMap<OutputCheckpoint, Segment> = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = contents.list(&folder, after.as_deref())?;
        for segment in page.objects.iter().filter_map(|object| Segment::parse(id, &object.name)) {
            let known = by_end.entry(segment.end).or_insert(segment);
            if segment.start.bytes < known.start.bytes {
                *known = segment;
            }
        }
        after = page.objects.last().map(|object| object.name.clone());
        if !page.more || after.is_none() {
            return Ok(by_end);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_names_of_its_own_segments_are_parsed() {
        let segment = Segment {
            start: OutputCheckpoint { bytes: 5, table_checksum: 0xab },
            end: OutputCheckpoint { bytes: u64::MAX, table_checksum: u32::MAX },
        };
        let name = segment.name("file-1");
        assert_eq!(Segment::parse("file-1", &name), Some(segment));
        assert_eq!(Segment::parse("file-2", &name), None);
        for other in
            [format!("{name}-00"), name.to_uppercase(), name.replace('-', "_"), "parts/file-1/".to_owned()]
        {
            assert_eq!(Segment::parse("file-1", &other), None, "{other}");
        }
        let empty = Segment { start: segment.end, end: segment.end }.name("file-1");
        assert_eq!(Segment::parse("file-1", &empty), None);
    }
}
