//! Tests of deletions that were interrupted, with contents in a bucket.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::bucket::object_name;
use super::bucket_tests::{SharedBucket, lines, upload};
use super::*;
use penstock_object_storage::{ObjectPage, RandomAccessObject};
use penstock_storage::{StoreTable, Transaction};
use std::io::ErrorKind;
use tempfile::TempPath;

/// Folder with an object that cannot be deleted.
#[derive(Debug)]
struct UndeletableObject {
    folder: FolderStore,
    name: String,
}

impl ContentStore for UndeletableObject {
    fn create_from_file(&self, name: &str, source: TempPath) -> std::io::Result<()> {
        self.folder.create_from_file(name, source)
    }

    fn create_from_bytes(&self, name: &str, bytes: bytes::Bytes) -> std::io::Result<()> {
        self.folder.create_from_bytes(name, bytes)
    }

    fn replace_from_file(&self, name: &str, source: TempPath) -> std::io::Result<()> {
        self.folder.replace_from_file(name, source)
    }

    fn open(&self, name: &str) -> std::io::Result<Box<dyn RandomAccessObject>> {
        self.folder.open(name)
    }

    fn delete(&self, name: &str) -> std::io::Result<()> {
        if name == self.name { Err(ErrorKind::PermissionDenied.into()) } else { self.folder.delete(name) }
    }

    fn list(&self, folder: &str, after: Option<&str>) -> std::io::Result<ObjectPage> {
        self.folder.list(folder, after)
    }
}

#[test]
fn deletions_are_finished_although_one_fails_and_a_row_cannot_be_read() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let mut records: Vec<FileRecord> = (1..=3).map(|count| upload(&files, &lines(count)).unwrap()).collect();
    records.sort_by(|one, other| one.id.cmp(&other.id));
    // The process ends before it deletes the contents.
    records.iter().for_each(|record| assert!(files.file_record_store().delete(record).unwrap()));
    // Rows are read in the order of their keys, so both failures come first.
    let newer = Transaction::new().put(StoreTable::Files, b"d/file-".to_vec(), b"{\"v\":2}".to_vec());
    shared.store.apply(newer).unwrap();
    let folder = FolderStore::new(shared.bucket_path());
    let contents = UndeletableObject { folder, name: object_name(&records[0]).unwrap() };
    let passed = shared.gateway_with("two", Arc::new(contents)).finish_interrupted_deletions().unwrap();
    assert_eq!((passed.finished, passed.failed, passed.unreadable), (2, 1, 1));
    assert!(matches!(passed.first_error, Some(FileError::Io(_))), "{:?}", passed.first_error);
    assert_eq!(shared.names("files"), [object_name(&records[0]).unwrap()]);
    let passed = files.finish_interrupted_deletions().unwrap();
    assert_eq!((passed.finished, passed.failed, passed.unreadable), (1, 0, 1));
    assert!(shared.names("files").is_empty());
}

#[test]
fn a_sweep_goes_on_after_an_object_that_cannot_be_deleted_and_a_damaged_record() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let mut lost: Vec<FileRecord> = (1..=4).map(|count| upload(&files, &lines(count)).unwrap()).collect();
    lost.sort_by(|one, other| one.id.cmp(&other.id));
    lost.iter().for_each(|record| assert!(files.file_record_store().delete(record).unwrap()));
    let folder = FolderStore::new(shared.bucket_path());
    let contents = UndeletableObject { folder, name: object_name(&lost[0]).unwrap() };
    let sweeper = shared.gateway_with("two", Arc::new(contents));
    let (table, key, _) = FileStore::encoded_row(&lost[1]).unwrap();
    shared.store.apply(Transaction::new().put(table, key, b"no record".to_vec())).unwrap();
    shared.age();
    let outcome = sweeper.bucket().unwrap().sweep(sweeper.file_record_store(), Duration::from_secs(3_600));
    assert!(outcome.first_error.is_some());
    let mut remaining = shared.names("files");
    remaining.sort();
    assert_eq!(remaining, [object_name(&lost[0]).unwrap(), object_name(&lost[1]).unwrap()]);
}
