//! File metadata in the fast engines: lookup, pages that deletions do not shift, and expiry.
#![allow(clippy::unwrap_used)]

use penstock_storage::files::{
    FileInsertOutcome, FilePage, FilePurpose, FileQuery, FileRecord, FileStatus, FileStore, UsedBytes,
};
use penstock_storage::{StoreError, StoreOptions, StoreTable, open, open_in_memory};

fn file(key: &str, id: &str, purpose: FilePurpose) -> FileRecord {
    FileRecord {
        id: format!("file-{id}"),
        key: key.to_owned(),
        account: "acme".to_owned(),
        filename: "ask.jsonl".to_owned(),
        purpose,
        bytes: 12,
        sha256: None,
        table_checksum: None,
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
    FileQuery { key, purpose: None, after: None, ascending: false, limit: 100 }
}

fn ids(page: &FilePage) -> String {
    let ids: Vec<_> = page.files.iter().map(|file| file.id.trim_start_matches("file-")).collect();
    ids.join(" ")
}

fn each_engine(test: impl Fn(FileStore)) {
    test(FileStore::new(open_in_memory()));
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { ballast_bytes: 0, ..StoreOptions::default() };
    test(FileStore::new(open(&folder.path().join("store"), options).unwrap()));
}

#[test]
fn a_file_is_there_from_its_insertion_to_its_deletion() {
    each_engine(|files| {
        let one = file("k1", "a", FilePurpose::Batch);
        files.add(&one).unwrap();
        assert!(matches!(files.add(&one), Err(StoreError::Guard { .. })));
        assert_eq!(files.get("file-a").unwrap(), Some(one.clone()));
        assert!(files.delete(&one).unwrap() && !files.delete(&one).unwrap());
        assert_eq!(files.get("file-a").unwrap(), None);
        assert!(files.list(&query("k1"), |_| true).unwrap().files.is_empty());
    });
}

#[test]
fn removed_files_are_listed_in_pages_until_their_contents_are_deleted() {
    each_engine(|files| {
        for id in ["a", "b", "c"] {
            let one = file("k1", id, FilePurpose::Batch);
            files.add(&one).unwrap();
            files.delete(&one).unwrap();
        }
        files.add(&file("k1", "d", FilePurpose::Batch)).unwrap();
        let list = |after: Option<&[u8]>| {
            let page = files.deleted_page(after, 2).unwrap();
            assert_eq!(page.unreadable, 0);
            (ids(&FilePage { files: page.files, next: None }), page.next)
        };
        let (first, next) = list(None);
        assert_eq!((first.as_str(), list(next.as_deref())), ("a b", ("c".to_owned(), None)));
        files.record_contents_deleted("file-b").unwrap();
        assert_eq!(list(None), ("a c".to_owned(), None));
    });
}

#[test]
fn lists_contain_only_the_keys_own_objects_in_both_orders() {
    each_engine(|files| {
        for (id, purpose) in [
            ("a", FilePurpose::Batch),
            ("b", FilePurpose::BatchOutput),
            ("c", FilePurpose::Batch),
            ("d", FilePurpose::BatchOutput),
            ("e", FilePurpose::Batch),
        ] {
            files.add(&file("k1", id, purpose)).unwrap();
        }
        files.add(&file("k", "x", FilePurpose::Batch)).unwrap();
        files.add(&file("k11", "y", FilePurpose::Batch)).unwrap();
        let list = |query: FileQuery<'_>| {
            let page = files.list(&query, |_| true).unwrap();
            (ids(&page), page.next.is_some())
        };
        let k1 = query("k1");
        assert_eq!(list(k1), ("e d c b a".to_owned(), false));
        assert_eq!(list(FileQuery { limit: 2, ..k1 }), ("e d".to_owned(), true));
        assert_eq!(list(FileQuery { after: Some("file-d"), ..k1 }), ("c b a".to_owned(), false));
        assert_eq!(list(FileQuery { after: Some("file-d"), ascending: true, ..k1 }), ("e".to_owned(), false));
        assert_eq!(list(FileQuery { ascending: true, limit: 5, ..k1 }), ("a b c d e".to_owned(), false));
        let only = FileQuery { purpose: Some(FilePurpose::Batch), ..k1 };
        assert_eq!(list(FileQuery { limit: 2, ..only }), ("e c".to_owned(), true));
        files.delete(&file("k1", "c", FilePurpose::Batch)).unwrap();
        assert_eq!(list(FileQuery { after: Some("file-c"), ..k1 }), ("b a".to_owned(), false));
        assert_eq!(ids(&files.list_all(None, 100).unwrap()), "a b d e x y");
    });
}

#[test]
fn a_filter_leaves_no_page_with_a_successor_short() {
    let files = FileStore::new(open_in_memory());
    for number in 0..1_500 {
        let purpose = if number % 100 == 7 { FilePurpose::BatchOutput } else { FilePurpose::Batch };
        files.add(&file("k", &format!("{number:05}"), purpose)).unwrap();
    }
    let is_output = |file: &FileRecord| file.purpose == FilePurpose::BatchOutput;
    let expected: Vec<String> = (0..15).map(|number| format!("file-{:05}", number * 100 + 7)).collect();
    let newest_first: Vec<String> = expected.iter().rev().cloned().collect();
    for limit in [1, 4, 5, 15, 1_000] {
        for (of_key, ascending) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let after_id = after.as_deref();
                let page = if of_key {
                    let query = FileQuery { after: after_id, ascending, limit, ..query("k") };
                    files.list(&query, is_output).unwrap()
                } else {
                    files.list_filtered(after_id, limit, ascending, is_output).unwrap()
                };
                assert!(page.files.len() == limit || page.next.is_none(), "{limit}");
                assert!(!page.files.is_empty(), "{limit}");
                found.extend(page.files.into_iter().map(|file| file.id));
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(&found, if ascending { &expected } else { &newest_first }, "{limit}");
        }
    }
}

#[test]
fn long_lists_come_in_full_pages() {
    let files = FileStore::new(open_in_memory());
    for number in 0..2_300 {
        let purpose = if number % 2 == 0 { FilePurpose::Batch } else { FilePurpose::BatchOutput };
        files.add(&file("k", &format!("{number:05}"), purpose)).unwrap();
    }
    let all = files.list(&FileQuery { limit: 2_300, ..query("k") }, |_| true).unwrap();
    assert_eq!((all.files.len(), all.next), (2_300, None));
    let most = files.list(&FileQuery { limit: 2_299, ascending: true, ..query("k") }, |_| true).unwrap();
    assert_eq!((most.files.len(), most.next.as_deref()), (2_299, Some("file-02298")));
    assert!(most.files.iter().enumerate().all(|(number, file)| file.id == format!("file-{number:05}")));
}

#[test]
fn expired_files_are_found_without_a_full_scan() {
    each_engine(|files| {
        for (id, expires_at) in [("a", Some(300)), ("b", None), ("c", Some(100)), ("d", Some(200))] {
            files.add(&FileRecord { expires_at, ..file("k", id, FilePurpose::Batch) }).unwrap();
        }
        let expired = |now: u64, limit: usize| {
            let (mut ids, mut after) = (Vec::new(), None::<Vec<u8>>);
            loop {
                let page = files.expired_page(now, after.as_deref(), limit).unwrap();
                assert!(page.ids.len() <= limit);
                ids.extend(page.ids);
                after = page.next;
                if after.is_none() {
                    return ids;
                }
            }
        };
        for limit in [1, 2, 10] {
            assert_eq!(expired(99, limit), [""; 0]);
            assert_eq!(expired(200, limit), ["file-c", "file-d"]);
        }
        files.delete(&files.get("file-c").unwrap().unwrap()).unwrap();
        assert_eq!(expired(400, 1), ["file-d", "file-a"]);
    });
}

#[test]
fn invalid_ids_are_not_stored_and_rows_are_versioned() {
    let files = FileStore::new(open_in_memory());
    for id in ["../x", "a/b", "\0", &"a".repeat(60)] {
        assert!(
            matches!(files.add(&file("k", id, FilePurpose::Batch)), Err(StoreError::InvalidArgument { .. })),
            "{id}"
        );
    }
    assert!(files.add(&file("k\0", "a", FilePurpose::Batch)).is_err());
    let (space, key, row) = FileStore::encoded_row(&file("k", "a", FilePurpose::Batch)).unwrap();
    assert_eq!((space, key.as_slice()), (StoreTable::Files, &b"f/file-a"[..]));
    assert!(row.starts_with(br#"{"v":1,"#));
}

#[test]
fn used_bytes_stay_within_their_limits_and_follow_the_records() {
    each_engine(|files| {
        let sized = |key: &str, id: &str, bytes| FileRecord { bytes, ..file(key, id, FilePurpose::Batch) };
        let old = sized("k1", "old", 100);
        files.add(&old).unwrap();
        files.build_usage_counters().unwrap();
        let used = |key: &str| files.used_bytes(key).map(|used| (used.all, used.key)).unwrap();
        assert_eq!((used("k1"), used("k2")), ((100, 100), (100, 0)));
        let limits = UsedBytes { all: 200, key: 150 };
        let add = |file: &FileRecord| files.add_within_limits(file, limits).unwrap();
        assert_eq!(add(&sized("k1", "a", 51)), FileInsertOutcome::KeyLimitExceeded);
        assert_eq!(add(&sized("k1", "a", 50)), FileInsertOutcome::Added);
        assert_eq!(add(&sized("k2", "b", 51)), FileInsertOutcome::TotalLimitExceeded);
        assert_eq!(add(&sized("k2", "b", u64::MAX)), FileInsertOutcome::TotalLimitExceeded);
        assert!(files.get("file-b").unwrap().is_none());
        assert!(matches!(files.add_within_limits(&old, limits), Err(StoreError::Guard { step: 0 })));
        assert!(
            files.delete_and_update_usage(&old).unwrap() && !files.delete_and_update_usage(&old).unwrap()
        );
        assert_eq!(used("k1"), (50, 50));
        // A process without a fleet does not count; the next fleet counts again.
        files.invalidate_usage().unwrap();
        files.add(&sized("k2", "c", 7)).unwrap();
        files.delete(&sized("k1", "a", 50)).unwrap();
        files.build_usage_counters().unwrap();
        assert_eq!((used("k1"), used("k2")), ((7, 0), (7, 7)));
        files.build_usage_counters().unwrap();
        assert_eq!(used("k2"), (7, 7));
        let ids = ["file-c".to_owned(), "file-a".to_owned()];
        assert_eq!(files.are_missing(&ids).unwrap(), [false, true]);
        assert_eq!(files.get_many(&ids).unwrap(), [files.get("file-c").unwrap(), None]);
    });
}
