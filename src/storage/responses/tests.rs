//! Tests of stored responses: encryption, scope, expiry, limits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::local_files::PARTIAL_WRITE_EXTENSION;
use super::*;
use crate::config::settings::BackgroundSettings;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

pub(super) const KEY: &str = "0123456789abcdef";
pub(super) const OTHER_KEY: &str = "fedcba9876543210";
pub(super) const DAY: Duration = Duration::from_secs(86_400);
pub(super) const TEXT: &[u8] = br#"{"input":["a secret of the client"],"response":{}}"#;

pub(super) fn limits(per_key: u64, disk: u64) -> ResponseLimits {
    let background = BackgroundSettings { open: 1, concurrency: 1, window: DAY };
    ResponseLimits { settings: ResponseSettings { disk, per_key, retention: DAY, background }, keep_free: 0 }
}

fn open(folder: &Path) -> ResponseStore {
    ResponseStore::open(folder, &Pepper([7; 32]), false, None).unwrap()
}

/// Returns the paths and contents of all files below a folder.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(
            |path| if path.is_dir() { files(&path) } else { vec![(path.clone(), fs::read(&path).unwrap())] },
        )
        .collect()
}

#[test]
fn a_stored_response_is_read_by_its_key_alone_and_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.insert((KEY, "resp_a"), 100, TEXT, limits(1 << 20, 1 << 20)).unwrap();
    assert_eq!(store.get(KEY, "resp_a", 101, DAY).unwrap().as_deref(), Some(TEXT));
    assert_eq!(store.get(OTHER_KEY, "resp_a", 101, DAY).unwrap(), None);
    assert!(store.size(KEY, "resp_a").unwrap().unwrap() >= TEXT.len() as u64);
    assert_eq!(store.size(OTHER_KEY, "resp_a").unwrap(), None);
    assert!(!store.delete(OTHER_KEY, "resp_a").unwrap());
    let stored = files(folder.path());
    assert_eq!(stored.len(), 1);
    assert!(!stored[0].1.windows(6).any(|window| window == b"secret" || window == b"client"));
    // After a restart the response exists, but only with the same pepper.
    drop(store);
    assert_eq!(open(folder.path()).get(KEY, "resp_a", 101, DAY).unwrap().as_deref(), Some(TEXT));
    let other = ResponseStore::open(folder.path(), &Pepper([8; 32]), false, None).unwrap();
    assert_eq!(other.get(KEY, "resp_a", 101, DAY).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_file_that_was_changed_or_moved_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.insert((KEY, "resp_a"), 100, TEXT, limits(1 << 20, 1 << 20)).unwrap();
    let (path, sealed) = files(folder.path()).remove(0);
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert!(store.get(KEY, "resp_a", 101, DAY).is_err(), "{at}");
        fs::write(&path, &sealed[..at]).unwrap();
        assert!(store.get(KEY, "resp_a", 101, DAY).is_err(), "{at}");
        assert!(!store.has_expired(KEY, "resp_a", 101, DAY).unwrap(), "{at}");
    }
    fs::write(path.with_file_name("resp_b"), &sealed).unwrap();
    assert!(store.get(KEY, "resp_b", 101, DAY).is_err());
}

#[test]
fn an_id_names_no_file_outside_the_folder_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for id in [
        "",
        "resp_",
        "a",
        "resp_../a",
        "../resp_a",
        "resp_a.new",
        "resp_\0",
        &format!("resp_{}", "a".repeat(60)),
    ] {
        let refused = store.insert((KEY, id), 1, TEXT, limits(1 << 20, 1 << 20)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{id}");
        assert_eq!(store.get(KEY, id, 1, DAY).unwrap(), None);
        assert!(!store.delete(KEY, id).unwrap());
    }
    assert!(files(folder.path()).is_empty());
}

#[test]
fn deleted_and_expired_responses_leave_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let limits = limits(1 << 20, 1 << 20);
    for (id, created) in [("resp_a", 100), ("resp_b", 200), ("resp_c", 300)] {
        store.insert((KEY, id), created, TEXT, limits).unwrap();
    }
    assert!(store.delete(KEY, "resp_a").unwrap());
    assert!(!store.delete(KEY, "resp_a").unwrap());
    let now = 200 + DAY.as_secs();
    assert_eq!(store.get(KEY, "resp_b", now - 1, DAY).unwrap().as_deref(), Some(TEXT));
    assert_eq!(store.get(KEY, "resp_b", now, DAY).unwrap(), None);
    for (id, expected) in [("resp_b", true), ("resp_c", false), ("resp_a", false), ("resp_", false)] {
        assert_eq!(store.has_expired(KEY, id, now, DAY).unwrap(), expected, "{id}");
    }
    assert!(!store.has_expired(OTHER_KEY, "resp_b", now, DAY).unwrap());
    assert_eq!(store.sweep(now, limits.settings, SweepRole::Remover).unwrap(), 1);
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!(store.used_bytes(), files(folder.path())[0].1.len() as u64);
    assert_eq!(store.sweep(now + 100, limits.settings, SweepRole::Remover).unwrap(), 1);
    assert_eq!(store.used_bytes(), 0);
    assert_eq!(fs::read_dir(folder.path().join(RESPONSES_FOLDER)).unwrap().count(), 0);
}

#[test]
fn the_oldest_of_the_largest_key_are_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let document = vec![b'x'; 1_000];
    let limits = limits(10_000, 15_000);
    let insert = |key: &str, number: u64| {
        store.insert((key, &format!("resp_{number}")), number, &document, limits).unwrap();
    };
    for number in 1..=20 {
        insert(KEY, number);
        assert!(store.used_bytes() <= 10_000);
    }
    assert_eq!(store.get(KEY, "resp_1", 30, DAY).unwrap(), None);
    assert!(store.get(KEY, "resp_20", 30, DAY).unwrap().is_some());
    // Another key stores responses: those of the key with the most bytes are evicted, and not those of the other key.
    for number in 1..=7 {
        insert(OTHER_KEY, number);
        assert!(store.used_bytes() <= 15_000);
    }
    assert_eq!(store.get(KEY, "resp_13", 30, DAY).unwrap(), None);
    assert!(store.get(OTHER_KEY, "resp_1", 30, DAY).unwrap().is_some());
    let used: u64 = files(folder.path()).iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!(store.used_bytes(), used);
    // A response that is larger than the limit is refused, and no other response is removed.
    let refused = store.insert((KEY, "resp_99"), 99, &vec![0; 10_001], limits).unwrap_err();
    assert_eq!((refused.kind(), store.used_bytes()), (ErrorKind::StorageFull, used));
    let full = ResponseLimits { keep_free: u64::MAX, ..limits };
    assert_eq!(store.insert((KEY, "resp_99"), 99, b"", full).unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn responses_of_one_second_are_evicted_in_the_order_in_which_they_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let document = vec![b'x'; 1_000];
    let exists = |id: &str| store.get(KEY, id, 100, DAY).unwrap().is_some();
    // The ids are not in the order of their creation.
    let ids: Vec<String> = (0..40u64).map(|number| format!("resp_{}", number * 7_919 % 1_000)).collect();
    for (number, id) in ids.iter().enumerate() {
        store.insert((KEY, id), 100, &document, limits(10_000, 15_000)).unwrap();
        assert!(exists(id), "{number}: the response that was stored last");
        let first = ids.iter().position(|id| exists(id)).unwrap();
        assert!(ids[first..=number].iter().all(|id| exists(id)), "{number}: the oldest are evicted");
    }
}

#[test]
fn a_response_that_has_not_ended_is_not_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let document = vec![b'x'; 6_000];
    let limits = limits(10_000, 15_000);
    let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 3_600;
    for id in ["resp_a", "resp_b"] {
        store.insert((KEY, id), end, &document, limits).unwrap();
    }
    store.insert((KEY, "resp_c"), end - 7_200, &document, limits).unwrap();
    for id in ["resp_a", "resp_b", "resp_c"] {
        assert!(store.get(KEY, id, end, DAY).unwrap().is_some(), "{id}");
    }
    store.sweep(end - 3_600, limits.settings, SweepRole::Remover).unwrap();
    let left = ["resp_a", "resp_b", "resp_c"].map(|id| store.get(KEY, id, end, DAY).unwrap().is_some());
    assert_eq!(left, [true, true, false], "the finished one is removed");
}

#[test]
fn a_replaced_response_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let limits = limits(1 << 20, 1 << 20);
    store.insert((KEY, "resp_a"), 100, TEXT, limits).unwrap();
    for length in [6_000, 0, 2_000] {
        store.finish((KEY, "resp_a"), 100, &vec![b'x'; length], limits).unwrap();
        assert_eq!(store.used_bytes(), files(folder.path())[0].1.len() as u64);
    }
    store.finish((KEY, "resp_b"), 100, TEXT, limits).unwrap();
    assert!(store.delete(KEY, "resp_a").unwrap() && store.delete(KEY, "resp_b").unwrap());
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn unfinished_files_are_removed_at_the_start_and_others_counted() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).insert((KEY, "resp_a"), 100, TEXT, limits(1 << 20, 1 << 20)).unwrap();
    let path = files(folder.path()).remove(0).0;
    fs::write(path.with_extension(PARTIAL_WRITE_EXTENSION), b"half").unwrap();
    let draining = ResponseStore::open(folder.path(), &Pepper([7; 32]), true, None).unwrap();
    assert_eq!(files(folder.path()).len(), 2);
    drop(draining);
    let store = open(folder.path());
    assert_eq!((files(folder.path()).len(), store.used_bytes()), (1, fs::metadata(path).unwrap().len()));
}
