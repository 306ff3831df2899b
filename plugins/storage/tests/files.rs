//! File metadata in the fast engines: lookup, pages that deletions do not shift, and expiry.
#![allow(clippy::unwrap_used)]

use penstock_storage::files::{FilePage, FileQuery, FileRecord, FileStatus, FileStore, Purpose};
use penstock_storage::{Options, Space, StoreError, memory, open};

fn file(key: &str, id: &str, purpose: Purpose) -> FileRecord {
    FileRecord {
        id: format!("file-{id}"),
        key: key.to_owned(),
        account: "acme".to_owned(),
        filename: "ask.jsonl".to_owned(),
        purpose,
        bytes: 12,
        sha256: None,
        sums: None,
        created_at: 7,
        finished_at: None,
        expires_at: None,
        status: FileStatus::Processed,
        status_details: None,
        lines: 1,
        url: None,
    }
}

fn query(key: &str) -> FileQuery<'_> {
    FileQuery { key, purpose: None, after: None, rising: false, limit: 100 }
}

fn ids(page: &FilePage) -> String {
    let ids: Vec<_> = page.files.iter().map(|file| file.id.trim_start_matches("file-")).collect();
    ids.join(" ")
}

fn each_engine(test: impl Fn(FileStore)) {
    test(FileStore::new(memory()));
    let folder = tempfile::tempdir().unwrap();
    let options = Options { ballast_bytes: 0, ..Options::default() };
    test(FileStore::new(open(&folder.path().join("store"), options).unwrap()));
}

#[test]
fn a_file_is_there_from_its_insertion_to_its_deletion() {
    each_engine(|files| {
        let one = file("k1", "a", Purpose::Batch);
        files.put(&one).unwrap();
        assert!(matches!(files.put(&one), Err(StoreError::Guard { .. })));
        assert_eq!(files.get("file-a").unwrap(), Some(one.clone()));
        let grown = FileRecord { bytes: 99, ..one.clone() };
        assert!(files.replace(&one, &grown).unwrap());
        assert!(!files.replace(&one, &one).unwrap(), "it is another meanwhile");
        assert_eq!(files.get("file-a").unwrap().unwrap().bytes, 99);
        assert!(files.delete(&grown).unwrap() && !files.delete(&grown).unwrap());
        assert_eq!(files.get("file-a").unwrap(), None);
        assert!(!files.replace(&grown, &one).unwrap(), "one that is gone does not come back");
        assert!(files.list(&query("k1")).unwrap().files.is_empty());
    });
}

#[test]
fn lists_are_a_keys_own_and_go_both_ways() {
    each_engine(|files| {
        for (id, purpose) in [
            ("a", Purpose::Batch),
            ("b", Purpose::BatchOutput),
            ("c", Purpose::Batch),
            ("d", Purpose::BatchOutput),
            ("e", Purpose::Batch),
        ] {
            files.put(&file("k1", id, purpose)).unwrap();
        }
        files.put(&file("k", "x", Purpose::Batch)).unwrap();
        files.put(&file("k11", "y", Purpose::Batch)).unwrap();
        let list = |query: FileQuery<'_>| {
            let page = files.list(&query).unwrap();
            (ids(&page), page.more)
        };
        let k1 = query("k1");
        assert_eq!(list(k1), ("e d c b a".to_owned(), false));
        assert_eq!(list(FileQuery { limit: 2, ..k1 }), ("e d".to_owned(), true));
        assert_eq!(list(FileQuery { after: Some("file-d"), ..k1 }), ("c b a".to_owned(), false));
        assert_eq!(list(FileQuery { after: Some("file-d"), rising: true, ..k1 }), ("e".to_owned(), false));
        assert_eq!(list(FileQuery { rising: true, limit: 5, ..k1 }), ("a b c d e".to_owned(), false));
        let only = FileQuery { purpose: Some(Purpose::Batch), ..k1 };
        assert_eq!(list(FileQuery { limit: 2, ..only }), ("e c".to_owned(), true));
        files.delete(&file("k1", "c", Purpose::Batch)).unwrap();
        assert_eq!(list(FileQuery { after: Some("file-c"), ..k1 }), ("b a".to_owned(), false));
        assert_eq!(ids(&files.all(None, 100).unwrap()), "a b d e x y");
    });
}

#[test]
fn long_lists_come_in_full_pages() {
    let files = FileStore::new(memory());
    for number in 0..2_300 {
        let purpose = if number % 2 == 0 { Purpose::Batch } else { Purpose::BatchOutput };
        files.put(&file("k", &format!("{number:05}"), purpose)).unwrap();
    }
    let all = files.list(&FileQuery { limit: 2_300, ..query("k") }).unwrap();
    assert_eq!((all.files.len(), all.more), (2_300, false));
    let most = files.list(&FileQuery { limit: 2_299, rising: true, ..query("k") }).unwrap();
    assert_eq!((most.files.len(), most.more), (2_299, true));
    assert!(most.files.iter().enumerate().all(|(number, file)| file.id == format!("file-{number:05}")));
}

#[test]
fn what_is_over_is_found_without_a_look_at_the_rest() {
    each_engine(|files| {
        for (id, expires_at) in [("a", Some(300)), ("b", None), ("c", Some(100)), ("d", Some(200))] {
            files.put(&FileRecord { expires_at, ..file("k", id, Purpose::Batch) }).unwrap();
        }
        assert_eq!(files.ended(99, 10).unwrap(), [""; 0]);
        assert_eq!(files.ended(200, 10).unwrap(), ["file-c", "file-d"]);
        files.delete(&files.get("file-c").unwrap().unwrap()).unwrap();
        assert_eq!(files.ended(400, 1).unwrap(), ["file-d"]);
    });
}

#[test]
fn ids_that_are_none_are_not_kept_and_rows_are_versioned() {
    let files = FileStore::new(memory());
    for id in ["../x", "a/b", "\0", &"a".repeat(60)] {
        assert!(matches!(files.put(&file("k", id, Purpose::Batch)), Err(StoreError::Format { .. })), "{id}");
    }
    assert!(files.put(&file("k\0", "a", Purpose::Batch)).is_err());
    let (space, place, row) = FileStore::row(&file("k", "a", Purpose::Batch)).unwrap();
    assert_eq!((space, place.as_slice()), (Space::Files, &b"f/file-a"[..]));
    assert!(row.starts_with(br#"{"v":1,"#));
}
