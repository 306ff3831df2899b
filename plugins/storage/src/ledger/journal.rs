//! Journal of a fleet member: the operations that its ledger has not committed yet, in two files of its folder.
//!
//! ```text
//! <folder>/0, <folder>/1   header, then records with ascending numbers
//! frame                    length (4 bytes LE) | CRC32C (4 bytes LE) | bytes
//! header                   {"v":1,"generation":…,"strand":…,"chain":…}
//! record                   number (8 bytes LE) | bytes that this module does not parse
//! ```
//! Records are appended to one file. Once this file is full and every record of the other file is committed, the
//! other file is emptied and becomes the file for new records. So the size is bounded while the database commits. An
//! incomplete record at the end of a file is cut off.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{StoreError, permissions};

/// Size of a file in bytes from which new records go to the other file.
pub const JOURNAL_ROTATION_BYTES: u64 = 8 * 1024 * 1024;
/// Maximum bytes of one record; a greater length in a frame means that the file is damaged.
const MAX_RECORD_BYTES: usize = 1024 * 1024;
/// Maximum bytes of both files that are read: more than any `limit` that callers pass to [`LedgerJournal::append`].
const MAX_READ_BYTES: u64 = 4 * 1024 * 1024 * 1024;
const FILE_NAMES: [&str; 2] = ["0", "1"];
const VERSION: u32 = 1;
const FRAME_HEAD: usize = 8;

/// Identity of a journal: its random number, and the process and chain that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalId {
    /// Random number of the journal, which the store knows too.
    pub generation: u64,
    /// Number of the incarnation (one run of a process of the fleet) that wrote the journal.
    pub incarnation: u32,
    /// Number of the ledger chain for which the journal was written.
    pub chain: u32,
}

/// Record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// Number of the record, ascending.
    pub number: u64,
    /// Content of the journal record, which this module does not parse.
    pub bytes: Vec<u8>,
}

/// Content of the journal that an earlier process left, read for the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredJournal {
    /// Identity of the journal.
    pub id: JournalId,
    /// Complete records of both files, in ascending order of their numbers.
    pub records: Vec<JournalRecord>,
    /// Number of bytes at the end of the files that are not part of a complete record.
    pub torn_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    v: u32,
    generation: u64,
    #[serde(rename = "strand")]
    incarnation: u32,
    chain: u32,
}

/// One of the two files of a journal, open for appending.
#[derive(Debug)]
struct JournalFile {
    file: File,
    /// Length of the header and the records, in bytes.
    bytes: u64,
    /// True if bytes of a failed write may follow the records.
    is_torn: bool,
    /// Number of the last record; 0 for none.
    last: u64,
}

/// Journal of this process, open for appending.
#[derive(Debug)]
pub struct LedgerJournal {
    id: JournalId,
    /// File to which records are appended.
    active: JournalFile,
    /// File with older records, to which no records are appended at the moment.
    other: JournalFile,
}

impl LedgerJournal {
    /// Reads the journal of a folder; `None` if there is none.
    ///
    /// # Errors
    /// Returns `Io` if a file cannot be read, `Format` for one of a newer version, `Corrupt` if a header is damaged or
    /// the two files belong to different journals.
    pub fn read(folder: &Path) -> Result<Option<RecoveredJournal>, StoreError> {
        let mut found: Option<RecoveredJournal> = None;
        for name in FILE_NAMES {
            let Some(read) = read_file(&folder.join(name))? else { continue };
            match &mut found {
                None => found = Some(read),
                Some(first) if first.id == read.id => {
                    first.records.extend(read.records);
                    first.torn_bytes += read.torn_bytes;
                }
                Some(_) => {
                    let what = "the two files of the journal belong to different ones".to_owned();
                    return Err(StoreError::Corrupt { what });
                }
            }
        }
        if let Some(found) = &mut found {
            found.records.sort_by_key(|record| record.number);
        }
        Ok(found)
    }

    /// Opens the journal of a folder for appending: continues a journal with the same identity, and replaces any
    /// other.
    ///
    /// # Errors
    /// Returns `Io` or `Full` if the files cannot be written.
    pub fn open(folder: &Path, id: JournalId) -> Result<LedgerJournal, StoreError> {
        permissions::create_private_dir_all(folder).map_err(|error| failed(&error))?;
        let sync = || File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error));
        if LedgerJournal::read(folder)?.is_none_or(|stored| stored.id != id) {
            FILE_NAMES.iter().try_for_each(|name| remove_file(&folder.join(name)))?;
            // The removal of the old files is synced before new files are created, so the folder never has files of
            // two journals.
            sync()?;
        }
        let [first, second] = FILE_NAMES.map(|name| JournalFile::open(&folder.join(name), id));
        let (first, second) = (first?, second?);
        let (active, other) = if second.last > first.last { (second, first) } else { (first, second) };
        sync()?;
        Ok(LedgerJournal { id, active, other })
    }

    /// Renames the folder of a journal, so that an operator can examine its files; returns the new path.
    ///
    /// # Errors
    /// Returns `Io` if the folder cannot be renamed.
    pub fn quarantine(folder: &Path, generation: u64) -> Result<PathBuf, StoreError> {
        let apart = folder.with_extension(format!("{generation:016x}.unwritten"));
        fs::rename(folder, &apart)
            .map_err(|error| StoreError::io("move the journal of the ledger", &error))?;
        Ok(apart)
    }

    /// Returns the identity of the journal.
    #[must_use]
    pub const fn id(&self) -> JournalId {
        self.id
    }

    /// Returns the number of the last record of both files; 0 for none.
    #[must_use]
    pub fn last_record_number(&self) -> u64 {
        self.active.last.max(self.other.last)
    }

    /// Returns the size of both journal files together, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.active.bytes + self.other.bytes
    }

    /// Returns true if the next [`LedgerJournal::append`] writes the first record of a file. The caller must write
    /// records there that can be understood without the records of the other file. `committed` is the number of the
    /// last record that the store has.
    #[must_use]
    pub fn starts_new_file(&self, committed: u64) -> bool {
        self.active.last == 0 || (self.active.bytes >= JOURNAL_ROTATION_BYTES && self.other.last <= committed)
    }

    /// Appends records and syncs them; `last` is the number of the last of these records. `frames` was built with
    /// [`push_frame`]; `committed` is the number of the last record that the store has, and `limit` the maximum size of
    /// both files together, in bytes.
    ///
    /// # Errors
    /// Returns `Full` or `Io`; then nothing was appended. After a partial write, calls fail until its bytes can be
    /// removed.
    pub fn append(&mut self, frames: &[u8], last: u64, committed: u64, limit: u64) -> Result<(), StoreError> {
        if self.active.last > 0 && self.starts_new_file(committed) {
            self.other.clear(self.id)?;
            std::mem::swap(&mut self.active, &mut self.other);
        }
        if self.byte_len() + frames.len() as u64 > limit {
            return Err(StoreError::Full);
        }
        self.active.append(frames, last)
    }
}

impl JournalFile {
    fn open(path: &Path, id: JournalId) -> Result<JournalFile, StoreError> {
        let stored = read_file(path)?;
        let file = permissions::open_options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file =
            JournalFile { file: file.map_err(|error| failed(&error))?, bytes: 0, is_torn: false, last: 0 };
        let Some(stored) = stored else {
            file.clear(id)?;
            return Ok(file);
        };
        let length = file.file.metadata().map_err(|error| read_error(&error))?.len();
        file.last = stored.records.last().map_or(0, |record| record.number);
        file.truncate(length.saturating_sub(stored.torn_bytes))?;
        Ok(file)
    }

    /// Removes all records from this file and writes the header of the journal `id`.
    fn clear(&mut self, id: JournalId) -> Result<(), StoreError> {
        let JournalId { generation, incarnation, chain } = id;
        let header = serde_json::to_vec(&Header { v: VERSION, generation, incarnation, chain });
        let mut frame = Vec::new();
        push_bytes(&header.map_err(|_| StoreError::corrupt("the header of a journal"))?, &mut frame);
        self.truncate(0)?;
        self.last = 0;
        self.append(&frame, 0)
    }

    fn truncate(&mut self, length: u64) -> Result<(), StoreError> {
        self.file.set_len(length).map_err(|error| failed(&error))?;
        (self.bytes, self.is_torn) = (length, false);
        Ok(())
    }

    fn append(&mut self, frames: &[u8], last: u64) -> Result<(), StoreError> {
        // A reader stops at the bytes of a failed write and would miss the frames after them.
        if self.is_torn {
            self.truncate(self.bytes)?;
        }
        let written = self.file.write_all_at(frames, self.bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.is_torn = true;
            self.truncate(self.bytes).ok();
            return Err(failed(&error));
        }
        self.bytes += frames.len() as u64;
        self.last = self.last.max(last);
        Ok(())
    }
}

fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&error)),
        _ => Ok(()),
    }
}

/// Appends the frame of a record to `out`.
pub fn push_frame(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    push_bytes(&[&number.to_le_bytes(), bytes].concat(), out);
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads one file; `None` if it is missing, or has no header because the process ended before it had written the
/// header.
fn read_file(path: &Path) -> Result<Option<RecoveredJournal>, StoreError> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_READ_BYTES).read_to_end(&mut text).map_err(|error| read_error(&error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read_error(&error)),
    };
    let Some((header, mut rest)) = next_frame(&text) else { return Ok(None) };
    let Ok(Header { v, generation, incarnation, chain }) = serde_json::from_slice(header) else {
        return Err(StoreError::corrupt("the header of a journal"));
    };
    if v != VERSION {
        return Err(StoreError::Format { what: format!("journal version {v}") });
    }
    let mut records = Vec::new();
    while let Some((record, after)) = next_frame(rest) {
        let Some((number, bytes)) = record.split_first_chunk() else { break };
        records.push(JournalRecord { number: u64::from_le_bytes(*number), bytes: bytes.to_vec() });
        rest = after;
    }
    Ok(Some(RecoveredJournal {
        id: JournalId { generation, incarnation, chain },
        records,
        torn_bytes: rest.len() as u64,
    }))
}

/// Splits off the first frame of a journal file; `None` if it is incomplete or damaged.
fn next_frame(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = text.split_at_checked(FRAME_HEAD)?;
    let (length, sum) = head.split_at_checked(4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(sum.try_into().ok()?);
    let (bytes, rest) = rest.split_at_checked(length).filter(|_| length <= MAX_RECORD_BYTES)?;
    (crc32c::crc32c(bytes) == sum).then_some((bytes, rest))
}

fn failed(error: &std::io::Error) -> StoreError {
    StoreError::io("write the journal of the ledger", error)
}

fn read_error(error: &std::io::Error) -> StoreError {
    StoreError::io("read the journal of the ledger", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const ID: JournalId = JournalId { generation: 7, incarnation: 3, chain: 1 };

    fn append(
        journal: &mut LedgerJournal,
        numbers: std::ops::RangeInclusive<u64>,
        size: usize,
        committed: u64,
    ) {
        let mut frames = Vec::new();
        let last = *numbers.end();
        numbers.for_each(|number| push_frame(number, &vec![b'x'; size], &mut frames));
        journal.append(&frames, last, committed, u64::MAX).unwrap();
    }

    fn numbers(folder: &Path) -> Vec<u64> {
        LedgerJournal::read(folder).unwrap().unwrap().records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn records_are_read_back_whatever_the_length_of_the_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("journal");
        assert_eq!(LedgerJournal::read(&folder).unwrap(), None);
        let mut journal = LedgerJournal::open(&folder, ID).unwrap();
        append(&mut journal, 1..=3, 40, 0);
        let whole = fs::read(folder.join("0")).unwrap();
        let header = whole.len() - 3 * (FRAME_HEAD + 8 + 40);
        for length in 0..=whole.len() {
            fs::write(folder.join("0"), &whole[..length]).unwrap();
            let records = length.saturating_sub(header) / (FRAME_HEAD + 8 + 40);
            let expected: Vec<u64> = (1..=records as u64).collect();
            assert_eq!(numbers(&folder), expected, "{length}");
            let mut again = LedgerJournal::open(&folder, ID).unwrap();
            assert_eq!(again.last_record_number(), records as u64);
            append(&mut again, 9..=9, 10, 0);
            assert_eq!(numbers(&folder), [expected, vec![9]].concat(), "{length}");
        }
    }

    #[test]
    fn a_changed_byte_ends_the_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = LedgerJournal::open(dir.path(), ID).unwrap();
        append(&mut journal, 1..=2, 20, 0);
        let whole = fs::read(dir.path().join("0")).unwrap();
        for at in whole.len() - (FRAME_HEAD + 28)..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(dir.path().join("0"), &damaged).unwrap();
            assert_eq!(numbers(dir.path()), [1], "{at}");
        }
    }

    #[test]
    fn the_files_alternate_once_the_other_one_is_committed() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = LedgerJournal::open(dir.path(), ID).unwrap();
        let size = 1024 * 1024 - 8;
        append(&mut journal, 1..=8, size, 0);
        append(&mut journal, 9..=10, size, 0);
        assert_eq!(numbers(dir.path()), (1..=10).collect::<Vec<_>>(), "the second file has had none");
        append(&mut journal, 11..=18, size, 0);
        append(&mut journal, 19..=19, size, 7);
        assert_eq!(numbers(dir.path()), (1..=19).collect::<Vec<_>>(), "8 is not committed");
        append(&mut journal, 20..=20, size, 8);
        assert_eq!(numbers(dir.path()), (9..=20).collect::<Vec<_>>());
        assert!(LedgerJournal::open(dir.path(), ID).unwrap().last_record_number() == 20);
        let frames = vec![0; 100];
        let bytes = journal.byte_len();
        assert_eq!(journal.append(&frames, 21, 8, bytes + 99), Err(StoreError::Full));
        assert_eq!(journal.byte_len(), bytes);
    }

    #[test]
    fn a_journal_of_another_writer_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("journal");
        let mut journal = LedgerJournal::open(&folder, ID).unwrap();
        append(&mut journal, 1..=2, 20, 0);
        let apart = LedgerJournal::quarantine(&folder, ID.generation).unwrap();
        assert_eq!(numbers(&apart), [1, 2]);
        assert_eq!(LedgerJournal::read(&folder).unwrap(), None);
        drop(LedgerJournal::open(&folder, JournalId { generation: 8, ..ID }).unwrap());
        assert_eq!(LedgerJournal::open(&folder, ID).unwrap().last_record_number(), 0);
        assert_eq!(LedgerJournal::read(&folder).unwrap().unwrap().id, ID);
    }

    #[test]
    fn no_record_is_acknowledged_behind_the_bytes_of_a_failed_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0");
        let mut journal = LedgerJournal::open(dir.path(), ID).unwrap();
        append(&mut journal, 1..=2, 40, 0);
        let whole = fs::read(&path).unwrap();
        // This read-only file makes both the write and the truncation fail.
        journal.active.file = File::open(&path).unwrap();
        let mut frames = Vec::new();
        push_frame(3, &[b'x'; 40], &mut frames);
        for _ in 0..3 {
            assert!(matches!(journal.append(&frames, 3, 0, u64::MAX), Err(StoreError::Io { .. })));
        }
        for written in 0..=frames.len() {
            fs::write(&path, [&whole[..], &frames[..written]].concat()).unwrap();
            journal.active.file = File::open(&path).unwrap();
            assert!(journal.append(&frames, 3, 0, u64::MAX).is_err());
            assert_eq!(journal.last_record_number(), 2);
            let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            // Simulates the end of the file after a partial write.
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
            journal.active.file = file;
            append(&mut journal, 4..=4, 10, 0);
            assert_eq!(numbers(dir.path()), [1, 2, 4], "{written}");
            (journal.active.bytes, journal.active.last) = (whole.len() as u64, 2);
        }
    }
}
