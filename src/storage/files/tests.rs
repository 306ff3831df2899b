//! Tests of files: the state after each possible end of an upload or a batch, and reads, which must never return
//! damaged bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::block_checksums::BLOCK_BYTES;
use super::*;
use penstock_storage::{Store, StoreTable, Transaction, open_in_memory};
use std::fs;
use std::io::ErrorKind;

mod retention;

const NOW: Duration = Duration::from_secs(1_700_000_000);
const BOUNDS: UploadLimits = UploadLimits {
    max_total_bytes: 1 << 30,
    max_key_bytes: 1 << 30,
    min_free_bytes: 0,
    max_line_bytes: 1 << 20,
};
const OWNER: FileOwner<'_> = FileOwner { key: "k1", account: "acme" };

struct TestDirectory {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl TestDirectory {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: open_in_memory() }
    }

    /// Opens the files again, as a new process does.
    fn open(&self) -> Arc<FileManager> {
        Arc::new(self.try_open().unwrap())
    }

    fn try_open(&self) -> Result<FileManager, String> {
        let settings = settings::FileSettings {
            path: self.folder.path().join("files"),
            upload: 1 << 20,
            disk: 1 << 30,
            per_key: 1 << 30,
            keep_free: 0,
            retention: None,
            leftovers: Duration::from_secs(3_600),
            store: None,
        };
        FileManager::open(&settings, FileStore::new(self.store.clone()), false)
    }

    fn names(&self) -> Vec<String> {
        let names = |folder: PathBuf| -> Vec<String> {
            let entries =
                fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file());
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        let mut all = names(self.folder.path().join("files"));
        all.extend(names(self.folder.path().join("files").join(UPLOAD_FOLDER)));
        all.retain(|name| name != store_id::STORE_ID_FILE);
        all
    }
}

fn lines(count: usize) -> Vec<u8> {
    let line = |i| {
        format!(
            "{{\"custom_id\":\"{i}\",\"method\":\"POST\",\"url\":\"/v1/rerank\",\"body\":{{\"query\":\"{i:0100}\"}}}}\r\n"
        )
    };
    let text: String = (0..count).map(line).collect();
    format!("\u{feff}{text}\n").into_bytes()
}

fn upload_fields() -> UploadFields {
    UploadFields { filename: "a.jsonl".to_owned(), expires_after: None }
}

fn upload(files: &FileManager, contents: &[u8]) -> FileRecord {
    let mut incoming = files.start_upload(OWNER, BOUNDS).unwrap();
    contents.chunks(1_000).for_each(|piece| incoming.push(piece).unwrap());
    files.store_upload(incoming, OWNER, upload_fields(), NOW).unwrap()
}

/// Replaces the stored record of a file, which must still equal `was`.
pub(super) fn replace_record(store: &dyn Store, was: &FileRecord, now: &FileRecord) {
    let (table, key, row) = FileStore::encoded_row(now).unwrap();
    let (_, _, old_row) = FileStore::encoded_row(was).unwrap();
    store.apply(Transaction::new().require_value(table, key.clone(), old_row).put(table, key, row)).unwrap();
}

const fn at(now: u64) -> FileExpiryContext {
    FileExpiryContext { now, retention: None }
}

#[tokio::test]
async fn a_file_is_its_bytes_until_it_is_deleted() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let contents = lines(2_000);
    let record = upload(&files, &contents);
    assert_eq!(
        (record.bytes, record.lines, record.url.as_deref()),
        (contents.len() as u64, 2_000, Some("/v1/rerank"))
    );
    assert_eq!(files.used_bytes(), record.bytes);
    assert_eq!(files.get("k1", &record.id, at(0)).await.unwrap(), record);
    assert_eq!(files.get("k2", &record.id, at(0)).await.unwrap_err().code, ErrorCode::NotFound);
    let files = directory.open();
    assert_eq!(files.used_bytes(), record.bytes, "counted again by a new start");
    let open = files.open_contents(&record).unwrap();
    assert_eq!(open.read(0, usize::MAX).unwrap(), contents);
    for (from, most) in [
        (0, 1),
        (BLOCK_BYTES - 1, 2),
        (BLOCK_BYTES, BLOCK_BYTES),
        (contents.len() - 3, 100),
        (contents.len(), 1),
    ] {
        let end = contents.len().min(from + most);
        assert_eq!(open.read(from as u64, most).unwrap(), contents[from..end], "{from}+{most}");
    }
    let open = Arc::new((record.clone(), open));
    assert!(files.read(&open, 0, 10).await.is_ok());
    files.delete("k1", &record.id, at(0)).await.unwrap();
    assert!(files.read(&open, 0, 10).await.is_err(), "not even to whom it is open");
    assert_eq!(files.delete("k1", &record.id, at(0)).await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!((directory.names().len(), files.used_bytes()), (0, 0));
}

#[test]
fn lines_come_with_their_number_and_position() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let contents = lines(5_000);
    let record = upload(&files, &contents);
    let open = files.open_contents(&record).unwrap();
    let mut reader = files.read_lines(&record).unwrap();
    let mut count = 0;
    while let Some(line) = reader.next_line().unwrap() {
        count += 1;
        assert_eq!(line.number, count);
        let input =
            penstock_batch::jsonl::parse_line(&line.bytes, penstock_batch::jsonl::BATCH_PATHS).unwrap();
        assert_eq!(input.custom_id, (count - 1).to_string());
        if count % 997 == 1 {
            assert_eq!(open.read(line.offset, line.bytes.len()).unwrap(), line.bytes);
        }
    }
    assert_eq!(count, 5_000, "the blank line at the end is none");
}

#[test]
fn damaged_bytes_are_an_error_and_the_others_are_given() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let contents = lines(2_000);
    let record = upload(&files, &contents);
    let path = files.contents_path(&record.id);
    let mut bytes = fs::read(&path).unwrap();
    bytes[BLOCK_BYTES + 5] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let open = files.open_contents(&record).unwrap();
    assert_eq!(open.read(0, BLOCK_BYTES).unwrap(), contents[..BLOCK_BYTES]);
    for (from, most) in [(0, BLOCK_BYTES + 1), (BLOCK_BYTES as u64, 1), (2 * BLOCK_BYTES as u64 - 1, 1)] {
        assert_eq!(open.read(from, most).unwrap_err().kind(), ErrorKind::InvalidData);
    }
    let mut reader = files.read_lines(&record).unwrap();
    let broken = std::iter::from_fn(|| reader.next_line().transpose()).find_map(Result::err);
    assert_eq!(broken.unwrap().kind(), ErrorKind::InvalidData);
    for bytes in [&bytes[..bytes.len() - 1], &bytes[..BLOCK_BYTES], b""] {
        fs::write(&path, bytes).unwrap();
        assert!(files.open_contents(&record).is_err(), "a file of another length");
    }
    let other = upload(&files, &lines(2_001)[..]);
    fs::copy(files.contents_path(&other.id), &path).unwrap();
    assert!(files.open_contents(&record).is_err(), "another file under its name");
}

#[test]
fn an_incomplete_upload_leaves_no_file() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let mut left = files.start_upload(OWNER, BOUNDS).unwrap();
    left.push(&lines(10)).unwrap();
    assert_eq!(directory.names().len(), 1);
    drop(left);
    let mut invalid = files.start_upload(OWNER, BOUNDS).unwrap();
    invalid.push(b"{}\n").unwrap();
    assert!(directory.names().is_empty(), "given up with the first wrong line");
    invalid.push(&[b'x'; 100_000]).unwrap();
    assert!(matches!(
        files.store_upload(invalid, OWNER, upload_fields(), NOW),
        Err(FileError::InvalidLines(_))
    ));
    for bounds in
        [UploadLimits { max_key_bytes: 300, ..BOUNDS }, UploadLimits { max_total_bytes: 300, ..BOUNDS }]
    {
        let mut full = files.start_upload(OWNER, bounds).unwrap();
        let failed = full.push(&lines(10)).unwrap_err();
        assert_eq!(failed.to_api_error().code, ErrorCode::StorageFull);
    }
    let full_disk =
        files.start_upload(OWNER, UploadLimits { min_free_bytes: u64::MAX, ..BOUNDS }).err().unwrap();
    assert_eq!(full_disk.to_api_error().code, ErrorCode::StorageFull);
    assert_eq!((files.used_bytes(), directory.names().len()), (0, 0));
    assert!(files.file_record_store().list_all(None, 10).unwrap().files.is_empty());
}

#[test]
fn a_start_removes_only_files_without_a_record() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let record = upload(&files, &lines(3));
    let folder = directory.folder.path().join("files");
    fs::write(folder.join(UPLOAD_FOLDER).join("half"), "x").unwrap();
    fs::write(folder.join(object_id::new(FILE_ID_PREFIX, NOW)), "no record").unwrap();
    fs::write(folder.join("README"), "an operator's own").unwrap();
    drop(files);
    let files = directory.open();
    let mut names = directory.names();
    names.sort();
    assert_eq!(names, ["README".to_owned(), record.id.clone()]);
    assert!(files.open_contents(&record).is_ok());
}

#[test]
fn a_folder_of_another_store_is_neither_used_nor_swept() {
    let directory = TestDirectory::new();
    let record = upload(&directory.open(), &lines(3));
    let folder = directory.folder.path().join("files");
    let id = fs::read_to_string(folder.join(store_id::STORE_ID_FILE)).unwrap();
    // The store is lost and replaced by an empty store. The folder has its ID file in the first case, and none in the
    // second, as from a version that did not write it.
    let lost = TestDirectory { folder: directory.folder, store: open_in_memory() };
    for stamp in [Some(&id), None] {
        match stamp {
            Some(id) => fs::write(folder.join(store_id::STORE_ID_FILE), id).unwrap(),
            None => fs::remove_file(folder.join(store_id::STORE_ID_FILE)).unwrap(),
        }
        let why = lost.try_open().err().unwrap();
        assert!(why.contains(&folder.display().to_string()) && why.contains("store import"), "{why}");
        assert!(folder.join(&record.id).exists(), "nothing was removed");
    }
    fs::write(folder.join(store_id::STORE_ID_FILE), &id).unwrap();
    let directory = TestDirectory { store: directory.store, ..lost };
    assert!(directory.open().open_contents(&record).is_ok());
    // Another store's folder.
    fs::write(folder.join(store_id::STORE_ID_FILE), "0123").unwrap();
    let why = directory.try_open().err().unwrap();
    assert!(why.contains("another store") && why.contains(&id), "{why}");
}

#[test]
fn an_empty_folder_instead_of_the_files_is_noticed() {
    for noted in [true, false] {
        let directory = TestDirectory::new();
        let record = upload(&directory.open(), &lines(3));
        let folder = directory.folder.path().join("files");
        fs::remove_dir_all(&folder).unwrap();
        if !noted {
            directory
                .store
                .apply(penstock_storage::Transaction::new().delete(StoreTable::Meta, b"files".to_vec()))
                .unwrap();
        }
        for _ in 0..2 {
            let why = directory.try_open().err().unwrap();
            assert!(why.contains("is empty") && why.contains("mounted"), "{why}");
        }
        let id = directory.store.get(StoreTable::Meta, b"files").unwrap().unwrap();
        fs::write(folder.join(store_id::STORE_ID_FILE), id).unwrap();
        let files = directory.open();
        assert!(files.open_contents(&record).is_err(), "its contents are gone, as the operator said");
    }
}

#[test]
fn results_grow_and_are_truncated_to_committed_lines() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let mut record = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
    directory.store.apply(FileStore::insert_operations(&record).unwrap()).unwrap();
    let mut output = files.open_output(&record).unwrap();
    output.append(b"one\n").unwrap();
    output.sync().unwrap();
    let was = record.clone();
    record = output.updated_record(&was);
    replace_record(&*directory.store, &was, &record);
    output.append(b"two, never counted\n").unwrap();
    assert_eq!(
        files.open_contents(&record).unwrap().read(0, 100).unwrap(),
        b"one\n"[..],
        "what counts, no more"
    );
    drop(output);
    let files = directory.open();
    let mut output = files.open_output(&record).unwrap();
    assert_eq!(fs::metadata(files.contents_path(&record.id)).unwrap().len(), 4, "cut");
    output.append(b"2\n").unwrap();
    let whole = output.finalize(&record, NOW).unwrap();
    assert_eq!((whole.bytes, whole.status), (6, FileStatus::Processed));
    // After a crash before the commit, the file grows again and ends with the same contents.
    let mut output = files.open_output(&record).unwrap();
    output.append(b"2\n").unwrap();
    assert_eq!(output.finalize(&record, NOW).unwrap(), whole);
    replace_record(&*directory.store, &record, &whole);
    assert_eq!(files.open_contents(&whole).unwrap().read(0, 100).unwrap(), b"one\n2\n"[..]);
    assert_eq!(directory.open().names_of_records(), [whole.id]);
}

#[test]
fn damaged_results_are_neither_given_nor_added_to() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let fresh = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
    let mut output = files.open_output(&fresh).unwrap();
    output.append(&lines(2_000)).unwrap();
    output.sync().unwrap();
    let record = output.updated_record(&fresh);
    drop(output);
    let path = files.contents_path(&record.id);
    let sound = fs::read(&path).unwrap();
    for at in [0, sound.len() / 2, sound.len() - 1] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(files.open_contents(&record).unwrap_err().kind(), ErrorKind::InvalidData, "{at}");
        assert_eq!(files.open_output(&record).unwrap_err().kind(), ErrorKind::InvalidData, "{at}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "left as it was");
    }
    fs::write(&path, &sound[1..]).unwrap();
    assert_eq!(files.open_output(&record).unwrap_err().kind(), ErrorKind::InvalidData, "less than counts");
    fs::write(&path, [&sound[..], b"never counted"].concat()).unwrap();
    assert_eq!(files.open_contents(&record).unwrap().read(5, 100).unwrap(), sound[5..105]);
    let output = files.open_output(&record).unwrap();
    assert_eq!(
        output.finalize(&record, NOW).unwrap().table_checksum,
        record.table_checksum,
        "whole, it has the same checksum"
    );
}

impl FileManager {
    fn names_of_records(&self) -> Vec<String> {
        self.store.list_all(None, 100).unwrap().files.into_iter().map(|file| file.id).collect()
    }
}

/// Consumer of files for tests, which uses the listed files.
struct Running(parking_lot::Mutex<Vec<String>>);

#[async_trait]
impl FileConsumers for Running {
    fn used_files<'i>(&self, ids: &[&'i str]) -> HashSet<&'i str> {
        let used = self.0.lock();
        ids.iter().copied().filter(|id| used.iter().any(|one| one == id)).collect()
    }

    async fn end_file_consumers(&self, id: &str) -> Result<(), ApiError> {
        self.0.lock().retain(|one| one != id);
        Ok(())
    }
}

#[tokio::test]
async fn an_expired_file_is_unreadable_at_once_and_removed_when_unused() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let now = NOW.as_secs();
    let upload = |expires_after, later| {
        let mut incoming = files.start_upload(OWNER, BOUNDS).unwrap();
        incoming.push(&lines(2)).unwrap();
        let fields = UploadFields { expires_after, ..upload_fields() };
        files.store_upload(incoming, OWNER, fields, NOW + Duration::from_secs(later)).unwrap()
    };
    let (expired, long, young) = (upload(Some(3_600), 0), upload(Some(90_000), 0), upload(None, 50_000));
    let running = Arc::new(Running(parking_lot::Mutex::new(vec![expired.id.clone()])));
    files.set_consumers(running.clone());
    let when = FileExpiryContext { now: now + 3_600, retention: Some(80_000) };
    assert_eq!(when.expires_at(&long), Some(now + 80_000));
    assert!(files.get("k1", &expired.id, when).await.is_err());
    let query = FileListQuery { key: "k1".into(), purpose: None, after: None, ascending: true, limit: 1 };
    let page = files.list(query.clone(), when).await.unwrap();
    assert_eq!(
        (page.files[0].id.as_str(), page.next.is_some()),
        (long.id.as_str(), true),
        "the page is full all the same"
    );
    assert_eq!(files.delete_expired(when).unwrap(), 0, "a batch still reads it");
    running.0.lock().clear();
    assert_eq!(files.delete_expired(when).unwrap(), 1);
    assert_eq!(files.delete_expired(FileExpiryContext { now: now + 80_000, ..when }).unwrap(), 1);
    assert_eq!(files.names_of_records().join(" "), young.id);
    assert_eq!(
        files.delete_expired(FileExpiryContext { now: u64::MAX, retention: None }).unwrap(),
        0,
        "kept for ever"
    );
    running.0.lock().push(young.id.clone());
    files.delete("k1", &young.id, at(now)).await.unwrap();
    assert!(running.used_files(&[&young.id]).is_empty(), "what ran on it was told");
    assert!(
        directory.store.scan(StoreTable::Files, b"", None, 10).unwrap().rows.is_empty(),
        "no row is left"
    );
}

#[test]
fn files_in_use_do_not_keep_others_from_expiring() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let add = |number: u64| {
        let record = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
        let expires_at = Some(NOW.as_secs() + number);
        let record = FileRecord { status: FileStatus::Processed, expires_at, ..record };
        files.file_record_store().add(&record).unwrap();
        record.id
    };
    let used: Vec<String> = (0..1_001).map(add).collect();
    (1_001..1_004).for_each(|number| drop(add(number)));
    files.set_consumers(Arc::new(Running(parking_lot::Mutex::new(used))));
    let when = FileExpiryContext { now: NOW.as_secs() + 1_002, retention: None };
    assert_eq!(files.delete_expired(when).unwrap(), 2);
    assert_eq!(files.delete_expired(FileExpiryContext { now: u64::MAX, ..when }).unwrap(), 1);
}

#[tokio::test]
async fn results_that_are_being_written_are_not_deleted() {
    let directory = TestDirectory::new();
    let files = directory.open();
    let record = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
    directory.store.apply(FileStore::insert_operations(&record).unwrap()).unwrap();
    let when = FileExpiryContext { now: u64::MAX, retention: Some(1) };
    assert_eq!(files.delete("k1", &record.id, when).await.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(files.delete_expired(when).unwrap(), 0);
}
