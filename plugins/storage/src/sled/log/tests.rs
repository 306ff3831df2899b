//! Tests of the check of sled's files: torn ends are accepted, damage is not, and the marker of each commit is found.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::{StoreOptions, open};
use super::format::{SegmentItem, SegmentItems, parse_segment_header};
use super::*;
use crate::{StoreTable, Transaction};

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }
}

fn database(path: &Path) -> PathBuf {
    path.join("sled")
}

/// Writes `count` groups of one row each.
fn write_groups(path: &Path, count: u32) {
    let store = open(path, options()).unwrap();
    for n in 0..count {
        let value = vec![u8::try_from(n % 250).unwrap() + 1; 300];
        store.apply(Transaction::new().put(StoreTable::Files, (n % 90).to_be_bytes(), value)).unwrap();
    }
}

#[test]
fn the_marker_of_the_last_group_is_found_alone_and_in_a_page() {
    let dir = tempfile::tempdir().unwrap();
    for round in 1..=30 {
        write_groups(dir.path(), 1);
        let survey = survey(&database(dir.path()), 0).unwrap();
        assert_eq!(survey.damage, None);
        assert_eq!(survey.newest.map(|newest| (newest.groups, newest.rows)), Some((round, 1)));
    }
}

#[test]
fn the_log_is_accepted_only_at_the_end_of_a_group() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 40);
    let log = database(dir.path()).join("db");
    let whole = fs::read(&log).unwrap();
    let number = parse_segment_header(&whole).unwrap().number;
    let mut offsets = Vec::new();
    for item in SegmentItems::new(&whole, number) {
        if let SegmentItem::Message(at, message) = item {
            offsets.extend([(at, at + message.len, find_marker(&message))]);
        }
    }
    assert!(offsets.len() > 100);
    // The first messages are older than the snapshot that was written when the store was created.
    let snapshot = snapshot_path(&database(dir.path())).unwrap().unwrap();
    let snapshot = parse_snapshot(&snapshot, &fs::read(&snapshot).unwrap()).unwrap();
    offsets.retain(|(at, ..)| *at as u64 > snapshot.lsn);
    // A log that ends anywhere is an incomplete last group, if that group was not acknowledged.
    for (at, end, _) in &offsets {
        let groups = offsets.iter().filter(|(_, end, _)| end <= at).filter_map(|(.., marker)| *marker);
        let complete = groups.map(|marker| marker.groups).max().unwrap_or(0);
        for len in [*at, at + 3, end - 1] {
            fs::write(&log, &whole[..len]).unwrap();
            check(&database(dir.path()), complete.saturating_sub(1)).unwrap();
            assert!(check(&database(dir.path()), complete + 1).is_err(), "{len} bytes");
        }
    }
}

type Rows = Vec<(Vec<u8>, u32)>;

/// Returns the keys and the checksums of the rows of the store in `path`.
fn rows(path: &Path) -> Result<Rows, StoreError> {
    let store = open(path, options())?;
    let verified = store.verify()?;
    assert_eq!((verified.damaged, verified.missing), (0, false), "{verified:?}");
    let mut rows = Vec::new();
    store.copy_rows(&mut |row| {
        rows.push((row.key.to_vec(), crc32c::crc32c(row.value.unwrap())));
        Ok(())
    })?;
    Ok(rows)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Returns the files of the database with their contents.
fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(database(path)).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    ZeroPage,
    Truncate,
}

impl Damage {
    fn apply(self, bytes: &mut Vec<u8>, at: usize) {
        match self {
            Damage::Flip => bytes[at] ^= 1 << (at % 8),
            Damage::ZeroPage => {
                let (start, end) = (at / 4096 * 4096, bytes.len().min(at / 4096 * 4096 + 4096));
                bytes[start..end].fill(0);
            }
            Damage::Truncate => bytes.truncate(at),
        }
    }
}

/// Store whose files are damaged in a copy of its folder.
struct Damaged {
    dir: tempfile::TempDir,
    rows: Rows,
}

impl Damaged {
    fn new(original: &Path) -> Damaged {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        copy(original, &dir.path().join("sound"));
        copy(original, &dir.path().join("work"));
        let rows = rows(&dir.path().join("work")).unwrap();
        Damaged { dir, rows }
    }

    /// Damages a file and opens the store: a refusal must name the file and leave all files as they were, otherwise
    /// every row must be there. Returns true if the store was refused.
    fn is_refused(&self, name: &str, damage: Damage, at: usize) -> bool {
        let work = self.dir.path().join("work");
        fs::remove_dir_all(&work).unwrap();
        copy(&self.dir.path().join("sound"), &work);
        let path = database(&work).join(name);
        let mut bytes = fs::read(&path).unwrap();
        damage.apply(&mut bytes, at);
        fs::write(&path, bytes).unwrap();
        let before = files(&work);
        match rows(&work) {
            Ok(rows) => {
                assert!(rows == self.rows, "{name}, {damage:?} at {at}: rows were lost");
                false
            }
            Err(StoreError::Corrupt { what }) => {
                let file = path.canonicalize().unwrap();
                assert!(what.starts_with(file.to_str().unwrap()), "{name}, {damage:?} at {at}: {what}");
                assert!(files(&work) == before, "{name}, {damage:?} at {at}: files were changed");
                true
            }
            Err(error) => panic!("{name}, {damage:?} at {at}: {error}"),
        }
    }
}

/// Writes a store with several segments, of which some are overwritten, in two sessions. The folder `killed` is a copy
/// of the files before the second session ended.
fn write_segments(dir: &Path) {
    let path = dir.join("closed");
    for round in 0..2_u8 {
        let store = open(&path, StoreOptions { compact_over_bytes: 1 << 40, ..options() }).unwrap();
        for n in 0..450_u32 {
            let value = vec![u8::try_from(n % 200).unwrap() ^ round; 500 + (n as usize * 7919) % 20_000];
            store.apply(Transaction::new().put(StoreTable::Files, (n % 170).to_be_bytes(), value)).unwrap();
        }
        if round == 1 {
            copy(&path, &dir.join("killed"));
        }
    }
}

#[test]
fn damage_to_the_log_is_refused_unless_no_row_depends_on_it() {
    let rounds = std::env::var("PENSTOCK_DAMAGE_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    write_segments(dir.path());
    let mut random = StdRng::seed_from_u64(1);
    for name in ["closed", "killed"] {
        let path = dir.path().join(name);
        let log = fs::read(database(&path).join("db")).unwrap();
        let damaged = Damaged::new(&path);
        let used = log.iter().rposition(|byte| *byte != 0).unwrap();
        let mut refused = 0;
        for damage in [Damage::Flip, Damage::ZeroPage, Damage::Truncate] {
            let segments = (0..used).step_by(SEGMENT_BYTES).map(|start| start + 5);
            let offsets = segments.chain((0..rounds).map(|_| random.random_range(0..used)));
            refused += offsets.filter(|at| damaged.is_refused("db", damage, *at)).count();
        }
        assert!(refused > 5, "{name}: {refused} refusals");
    }
}

#[test]
fn a_lost_segment_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    write_segments(dir.path());
    let damaged = Damaged::new(&dir.path().join("killed"));
    let work = damaged.dir.path().join("work");
    let mut noticed = 0;
    for start in (0..fs::metadata(database(&work).join("db")).unwrap().len() as usize).step_by(SEGMENT_BYTES)
    {
        fs::remove_dir_all(&work).unwrap();
        copy(&damaged.dir.path().join("sound"), &work);
        let mut bytes = fs::read(database(&work).join("db")).unwrap();
        let end = bytes.len().min(start + SEGMENT_BYTES);
        bytes[start..end].fill(0);
        fs::write(database(&work).join("db"), bytes).unwrap();
        match rows(&work) {
            Ok(rows) => assert!(rows == damaged.rows, "the segment at {start}"),
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
                noticed += 1;
            }
        }
    }
    assert!(noticed > 1, "{noticed} segments");
}

#[test]
fn damage_to_the_snapshot_or_the_settings_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 100);
    write_groups(dir.path(), 1);
    let damaged = Damaged::new(dir.path());
    let snapshot = snapshot_path(&database(dir.path())).unwrap().unwrap();
    let snapshot = snapshot.file_name().unwrap().to_str().unwrap();
    for (name, least) in [(snapshot, 0), ("conf", 9)] {
        let len = fs::metadata(database(dir.path()).join(name)).unwrap().len() as usize;
        for at in (0..len).step_by(7) {
            let refused = damaged.is_refused(name, Damage::Flip, at);
            // sled does not use the length in front of the checksum of a snapshot.
            assert!(refused || (len - 12..len - 4).contains(&at), "{name} at {at}");
            assert!(at < least || damaged.is_refused(name, Damage::Truncate, at), "{name} at {at}");
        }
    }
}

#[test]
fn a_store_without_its_database_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 3);
    fs::remove_dir_all(database(dir.path())).unwrap();
    assert!(matches!(open(dir.path(), options()).err(), Some(StoreError::Corrupt { .. })));
    assert!(!database(dir.path()).exists());
}

#[test]
fn a_lost_log_or_snapshot_loses_no_row_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    write_segments(dir.path());
    let path = dir.path().join("closed");
    let expected = Damaged::new(&path).rows;
    let snapshot = snapshot_path(&database(&path)).unwrap().unwrap();
    fs::remove_file(snapshot).unwrap();
    assert!(rows(&path).is_ok_and(|rows| rows == expected));
    fs::remove_file(database(&path).join("db")).unwrap();
    assert!(matches!(rows(&path), Err(StoreError::Corrupt { .. })));
    assert!(!database(&path).join("db").exists());
}
