//! Check of sled's files before sled opens them.
//!
//! sled takes the first message that does not match its checksum for the end of its log, drops everything behind it and
//! overwrites that with zeros. After a crash this is right: the last write was incomplete. After damage to the file, it
//! deletes committed rows. This check tells the two apart without a write: the writer syncs each group of transactions
//! before it writes the next, so the bytes behind the end of the log can only belong to the last group and to pages that
//! sled moved. If a commit marker shows that a group behind that place was acknowledged, the file is damaged.
//!
//! Messages that no page is read from any more are not checked: sled overwrites them, and a crash may leave them half
//! overwritten.

mod bridge;
mod file;
mod format;
mod marker;
mod pages;
mod replay;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::file::{LogFile, check_settings, is_blob_intact};
use self::format::parse_message;
use self::marker::find_marker;
use self::pages::{PageTable, Snapshot, parse_snapshot, snapshot_path};
use self::replay::Replay;
use super::commit_marker::ContentDigest;
use super::handle::SEGMENT_BYTES;
use crate::StoreError;

pub(crate) use self::bridge::bridge_gaps;

/// Result of reading the files of a database without sled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LogSurvey {
    /// Newest commit marker in the log, including the part that sled would drop; `None` if there is none.
    newest: Option<ContentDigest>,
    /// Description of the first damage; `None` if sled can open the files without a loss.
    damage: Option<String>,
}

/// Checks the files in `folder`, if sled reads them without a loss of the commits up to the group `acknowledged`.
/// Changes nothing.
///
/// # Errors
/// Returns `Corrupt` with the file and the offset of the damage, `Io` if the files cannot be read.
pub(crate) fn check(folder: &Path, acknowledged: u64) -> Result<(), StoreError> {
    match survey(folder, acknowledged)?.damage {
        Some(damage) => Err(StoreError::corrupt(damage)),
        None => Ok(()),
    }
}

/// Reads the files in `folder` like [`check`], and returns the newest commit marker with the first damage.
///
/// # Errors
/// Returns `Corrupt` if the snapshot or the settings are damaged, `Io` if the files cannot be read.
fn survey(folder: &Path, acknowledged: u64) -> Result<LogSurvey, StoreError> {
    check_settings(folder)?;
    let read = |error| StoreError::io("read its snapshot", &error);
    let snapshot = match snapshot_path(folder).map_err(read)? {
        Some(path) => parse_snapshot(&path, &fs::read(&path).map_err(read)?)?,
        None => Snapshot::default(),
    };
    survey_log(folder, snapshot, acknowledged)
}

/// Returns the newest commit marker in the log of the database in `folder`, including damaged parts.
///
/// # Errors
/// Returns `Corrupt` if the order of the segments is unknown, `Io` if the log cannot be read.
pub(crate) fn find_newest_marker(folder: &Path) -> Result<Option<ContentDigest>, StoreError> {
    Ok(survey_log(folder, Snapshot::default(), 0)?.newest)
}

/// Reads the log of the database in `folder`, starting from a snapshot, or from an empty one to read all of the log.
fn survey_log(folder: &Path, snapshot: Snapshot, acknowledged: u64) -> Result<LogSurvey, StoreError> {
    let log = LogFile::open(folder)?;
    let (unreadable, base) = read_pages(&log, &snapshot.pages)?;
    let replay = Replay::run(&log, snapshot, base)?;
    let newest = base.max(replay.newest);
    // A group is written only after the one before it is on the disk.
    let acknowledged = acknowledged.max(newest.map_or(0, |newest| newest.groups.saturating_sub(1)));
    let damage = replay
        .find_damage(&log, acknowledged)
        .or_else(|| find_unreadable_page(&log, folder, &replay.pages, &unreadable));
    Ok(LogSurvey { newest, damage })
}

/// Reads the messages of every page of a snapshot, in the order of the file. Returns the offsets of those that do not
/// match their checksum, and the newest commit marker.
fn read_pages(
    log: &LogFile,
    pages: &PageTable,
) -> Result<(BTreeSet<u64>, Option<ContentDigest>), StoreError> {
    let mut pointers: Vec<_> = pages.pointers().map(|pointer| (pointer.offset, pointer.lsn)).collect();
    pointers.sort_unstable();
    let (mut unreadable, mut newest) = (BTreeSet::new(), None);
    let (mut buffer, mut segment) = (Vec::new(), None);
    for (offset, lsn) in pointers {
        let start = offset - offset % SEGMENT_BYTES as u64;
        if segment != Some(start) {
            log.read_segment(start, &mut buffer)?;
            segment = Some(start);
        }
        let number = lsn / SEGMENT_BYTES as u64;
        let at = usize::try_from(offset - start).unwrap_or(usize::MAX);
        match parse_message(&buffer, at, &(number..=number)) {
            Some(message) => newest = newest.max(find_marker(&message)),
            None => drop(unreadable.insert(offset)),
        }
    }
    Ok((unreadable, newest))
}

/// Returns a description of the first message of a page that cannot be read, if there is one.
fn find_unreadable_page(
    log: &LogFile,
    folder: &Path,
    pages: &PageTable,
    unreadable: &BTreeSet<u64>,
) -> Option<String> {
    let damaged = pages.pointers().filter(|pointer| unreadable.contains(&pointer.offset));
    if let Some(offset) = damaged.map(|pointer| pointer.offset).min() {
        return Some(log.describe(offset, "a page of rows does not match its checksum"));
    }
    let blob =
        pages.pointers().filter_map(|pointer| pointer.blob).find(|name| !is_blob_intact(folder, *name));
    blob.map(|name| {
        format!("{} is damaged or missing", folder.join("blobs").join(name.to_string()).display())
    })
}

#[cfg(test)]
mod tests;
