//! Tests of contents in a bucket, for which a folder is used: two gateways with folders of their own share a store
//! and the bucket.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use penstock_object_storage::{BucketError, ObjectPage, RandomAccessObject};
use penstock_storage::{Store, open_in_memory};
use std::fs;
use std::io::ErrorKind;
use std::time::SystemTime;
use tempfile::TempPath;

const HOUR: Duration = Duration::from_secs(3_600);
const NOW: Duration = Duration::from_secs(1_700_000_000);
const BOUNDS: UploadLimits = UploadLimits {
    max_total_bytes: 1 << 30,
    max_key_bytes: 1 << 30,
    min_free_bytes: 0,
    max_line_bytes: 1 << 20,
};
const OWNER: FileOwner<'_> = FileOwner { key: "k1", account: "acme" };
const AT: FileExpiryContext = FileExpiryContext { now: 0, retention: None };

pub(super) struct SharedBucket {
    folder: tempfile::TempDir,
    pub(super) store: Arc<dyn Store>,
}

impl SharedBucket {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        Self { folder, store: open_in_memory() }
    }

    pub(super) fn bucket_path(&self) -> PathBuf {
        self.folder.path().join("bucket")
    }

    /// Opens the files of a gateway with its own folder.
    pub(super) fn gateway(&self, name: &str) -> Arc<FileManager> {
        self.gateway_with(name, Arc::new(FolderStore::new(self.bucket_path())))
    }

    pub(super) fn gateway_with(&self, name: &str, contents: Arc<dyn ContentStore>) -> Arc<FileManager> {
        let settings = self.settings(name);
        let store = FileStore::new(self.store.clone());
        let bucket = |folder: &Path| {
            Ok(Some(FileBucket::new(contents, None, FileStore::new(self.store.clone()), folder.to_owned())))
        };
        Arc::new(FileManager::open_with(&settings, store, false, bucket).unwrap())
    }

    fn settings(&self, name: &str) -> settings::FileSettings {
        settings::FileSettings {
            path: self.folder.path().join(name),
            upload: 1 << 20,
            disk: 1 << 30,
            per_key: 1 << 30,
            keep_free: 0,
            retention: None,
            leftovers: HOUR,
            store: None,
        }
    }

    /// Names of objects in a folder of the bucket.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let page = FolderStore::new(self.bucket_path()).list(folder, None).unwrap();
        page.objects.into_iter().map(|object| object.name).collect()
    }

    /// Sets the modification time of all objects into the past, so that they are old enough to count as leftovers.
    pub(super) fn age(&self) {
        let old = SystemTime::now() - Duration::from_secs(4_000);
        for name in self.names("files").into_iter().chain(self.names("parts")) {
            let path = self.bucket_path().join(name);
            fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
    }

    fn commit(&self, was: &FileRecord, now: &FileRecord) {
        super::tests::replace_record(&*self.store, was, now);
    }
}

pub(super) fn lines(count: usize) -> Vec<u8> {
    let line = |i| {
        format!(
            "{{\"custom_id\":\"{i}\",\"method\":\"POST\",\"url\":\"/v1/rerank\",\"body\":{{\"query\":\"{i:0100}\"}}}}\n"
        )
    };
    (0..count).map(line).collect::<String>().into_bytes()
}

pub(super) fn upload(files: &FileManager, contents: &[u8]) -> Result<FileRecord, FileError> {
    let mut upload = files.start_upload(OWNER, BOUNDS).unwrap();
    contents.chunks(1_000).for_each(|piece| upload.push(piece).unwrap());
    let form = UploadFields { filename: "a.jsonl".to_owned(), expires_after: None };
    files.store_upload(upload, OWNER, form, NOW)
}

fn new_output(shared: &SharedBucket, files: &FileManager) -> FileRecord {
    let record = files.create_output(OWNER, "out.jsonl".to_owned(), "/v1/rerank", NOW).unwrap();
    shared.store.apply(FileStore::insert_operations(&record).unwrap()).unwrap();
    record
}

fn read(files: &FileManager, record: &FileRecord) -> std::io::Result<Vec<u8>> {
    Ok(files.open_contents(record)?.read(0, usize::MAX)?.to_vec())
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file()).count()
}

#[tokio::test]
async fn a_file_is_read_and_deleted_by_any_gateway() {
    let shared = SharedBucket::new();
    let (one, two) = (shared.gateway("one"), shared.gateway("two"));
    let contents = lines(2_000);
    let record = upload(&one, &contents).unwrap();
    assert_eq!(read(&two, &record).unwrap(), contents);
    for folder in [&one.folder, &one.upload_folder, &two.upload_folder] {
        assert_eq!(files_in(folder), 0, "nothing is in the folders");
    }
    let open = Arc::new((record.clone(), one.open_contents(&record).unwrap()));
    assert!(one.read(&open, 70_000, 10).await.is_ok());
    two.delete("k1", &record.id, AT).await.unwrap();
    assert!(one.read(&open, 0, 10).await.is_err() && one.get("k1", &record.id, AT).await.is_err());
    assert!(shared.names("files").is_empty());
}

#[test]
fn damaged_or_missing_objects_are_errors() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let record = upload(&files, &lines(2_000)).unwrap();
    let path = shared.bucket_path().join(&shared.names("files")[0]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let open = files.open_contents(&record).unwrap();
    assert!(open.read(0, 1_000).is_ok());
    assert_eq!(open.read(99_000, 2_000).unwrap_err().kind(), ErrorKind::InvalidData);
    fs::write(&path, &bytes[1..]).unwrap();
    assert_eq!(files.open_contents(&record).unwrap_err().kind(), ErrorKind::InvalidData);
    fs::remove_file(&path).unwrap();
    assert_eq!(files.open_contents(&record).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn another_gateway_continues_results_from_the_last_commit() {
    let shared = SharedBucket::new();
    let (one, two) = (shared.gateway("one"), shared.gateway("two"));
    let fresh = new_output(&shared, &one);
    assert_eq!(read(&two, &fresh).unwrap(), b"");
    let mut first = one.open_output(&fresh).unwrap();
    let mut record = fresh;
    for group in ["a\n", "bb\n", "ccc\n"] {
        first.append(group.as_bytes()).unwrap();
        first.sync().unwrap();
        let now = first.updated_record(&record);
        shared.commit(&record, &now);
        record = now;
    }
    assert_eq!(read(&two, &record).unwrap(), b"a\nbb\nccc\n");
    // The first gateway is declared dead: it stores a segment that it can no longer commit.
    first.append(b"never committed\n").unwrap();
    first.sync().unwrap();
    let mut second = two.open_output(&record).unwrap();
    assert_eq!(second.len(), 9);
    second.append(b"dddd\n").unwrap();
    second.sync().unwrap();
    let now = second.updated_record(&record);
    shared.commit(&record, &now);
    assert_eq!(read(&one, &now).unwrap(), b"a\nbb\nccc\ndddd\n");
    second.append(b"end\n").unwrap();
    let whole = second.finalize(&now, NOW).unwrap();
    shared.commit(&now, &whole);
    // The first gateway also completes the file, but too late: the completed file of the second gateway is not
    // replaced.
    first.finalize(&record, NOW).unwrap();
    assert_eq!(read(&one, &whole).unwrap(), b"a\nbb\nccc\ndddd\nend\n");
    assert_eq!((shared.names("files").len(), shared.names("parts").len()), (2, 5));
    let bucket = one.bucket().unwrap();
    assert_eq!(bucket.sweep(one.file_record_store(), HOUR).swept, 0, "all are young");
    shared.age();
    assert_eq!(bucket.sweep(one.file_record_store(), HOUR).swept, 6);
    assert_eq!(read(&two, &whole).unwrap(), b"a\nbb\nccc\ndddd\nend\n");
    assert_eq!(files_in(&one.upload_folder) + files_in(&two.upload_folder), 0);
}

#[test]
fn a_repeated_end_is_the_same_object() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let record = new_output(&shared, &files);
    let seal = || {
        let mut output = files.open_output(&record).unwrap();
        output.append(b"all\n").unwrap();
        output.finalize(&record, NOW).unwrap()
    };
    let first = seal();
    assert_eq!(seal(), first, "after a crash before the commit");
    shared.age();
    assert!(files.bucket().unwrap().sweep(files.file_record_store(), HOUR).first_error.is_none());
    shared.commit(&record, &first);
    assert_eq!(
        read(&files, &first).unwrap(),
        b"all\n",
        "the sweep left the object that was about to be committed"
    );
}

#[test]
fn many_segments_are_merged_and_a_missing_one_is_damage() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let mut record = new_output(&shared, &files);
    let mut output = files.open_output(&record).unwrap();
    let mut expected = Vec::new();
    for number in 0..600 {
        let line = format!("{number:0400}\n");
        output.append(line.as_bytes()).unwrap();
        output.sync().unwrap();
        expected.extend_from_slice(line.as_bytes());
        record = output.updated_record(&record);
    }
    assert!(read(&files, &record).unwrap() == expected);
    assert_eq!(files.open_output(&record).unwrap().len(), expected.len() as u64);
    let names = shared.names("parts");
    assert_eq!(names.len(), 600);
    // Segments that were merged into a larger one are not needed any more.
    let length = |name: &String| fs::metadata(shared.bucket_path().join(name)).unwrap().len();
    let merged: Vec<&String> = names.iter().filter(|name| length(name) > 401).collect();
    assert_eq!(merged.len(), 2);
    fs::remove_file(shared.bucket_path().join(&names[10])).unwrap();
    assert!(read(&files, &record).unwrap() == expected);
    fs::remove_file(shared.bucket_path().join(merged[0])).unwrap();
    for kind in
        [files.open_contents(&record).unwrap_err().kind(), files.open_output(&record).unwrap_err().kind()]
    {
        assert_eq!(kind, ErrorKind::InvalidData);
    }
}

#[test]
fn the_sweep_removes_old_objects_without_a_record_and_nothing_else() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let record = upload(&files, &lines(3)).unwrap();
    let growing = new_output(&shared, &files);
    let mut output = files.open_output(&growing).unwrap();
    output.append(b"x\n").unwrap();
    output.sync().unwrap();
    let lost = upload(&files, &lines(4)).unwrap();
    files.file_record_store().delete(&lost).unwrap();
    fs::write(shared.bucket_path().join("files/README"), "an operator's own").unwrap();
    shared.age();
    assert_eq!(files.bucket().unwrap().sweep(files.file_record_store(), HOUR).swept, 1);
    assert!(read(&files, &record).is_ok() && read(&files, &output.updated_record(&growing)).is_ok());
    assert_eq!(shared.names("files").len(), 2);
}

#[test]
fn a_bucket_of_another_store_is_not_used() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let record = upload(&files, &lines(3)).unwrap();
    let other = SharedBucket { store: open_in_memory(), folder: shared.folder };
    let foreign = other.gateway("two");
    let failed = upload(&foreign, &lines(3)).unwrap_err().to_api_error();
    assert_eq!((failed.code, failed.retry_after), (ErrorCode::Unavailable, Some(5)));
    assert!(foreign.bucket().unwrap().sweep(foreign.file_record_store(), HOUR).first_error.is_some());
    FileStore::new(other.store.clone()).get_or_insert_directory_id("0123").unwrap();
    let third = other.gateway("three");
    assert!(upload(&third, &lines(3)).is_err() && !third.bucket().unwrap().is_available());
    assert_eq!(foreign.used_bytes() + third.used_bytes(), 0, "the space is given back");
    assert!(read(&files, &record).is_ok());
}

#[test]
fn contents_in_the_folder_are_read_from_there() {
    let shared = SharedBucket::new();
    let before =
        FileManager::open(&shared.settings("one"), FileStore::new(shared.store.clone()), false).unwrap();
    let record = upload(&before, &lines(3)).unwrap();
    let growing = new_output(&shared, &before);
    drop(before);
    let files = shared.gateway("one");
    assert_eq!(read(&files, &record).unwrap(), lines(3));
    let mut output = files.open_output(&growing).unwrap();
    output.append(b"x\n").unwrap();
    let whole = output.finalize(&growing, NOW).unwrap();
    assert_eq!(read(&files, &whole).unwrap(), b"x\n");
    assert!(shared.names("files").is_empty() && shared.names("parts").is_empty());
    assert!(files.delete_with_contents(&record).unwrap() && !files.contents_path(&record.id).exists());
}

/// Store that cannot be reached.
#[derive(Debug)]
struct Unreachable;

fn unreachable<T>() -> std::io::Result<T> {
    Err(BucketError::Unreachable("a test".to_owned()).into())
}

impl ContentStore for Unreachable {
    fn replace_from_file(&self, _: &str, _: TempPath) -> std::io::Result<()> {
        unreachable()
    }

    fn create_from_file(&self, _: &str, _: TempPath) -> std::io::Result<()> {
        unreachable()
    }

    fn create_from_bytes(&self, _: &str, _: bytes::Bytes) -> std::io::Result<()> {
        unreachable()
    }

    fn open(&self, _: &str) -> std::io::Result<Box<dyn RandomAccessObject>> {
        unreachable()
    }

    fn delete(&self, _: &str) -> std::io::Result<()> {
        unreachable()
    }

    fn list(&self, _: &str, _: Option<&str>) -> std::io::Result<ObjectPage> {
        unreachable()
    }
}

#[test]
fn damaged_contents_exist_and_an_unanswered_read_is_an_error() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let bucket = files.bucket().unwrap();
    let record = upload(&files, &lines(3)).unwrap();
    let growing = new_output(&shared, &files);
    let mut output = files.open_output(&growing).unwrap();
    output.append(b"x\n").unwrap();
    output.sync().unwrap();
    let growing = output.updated_record(&growing);
    for (record, name) in [(&record, &shared.names("files")[0]), (&growing, &shared.names("parts")[0])] {
        assert!(bucket.has_contents(record).unwrap());
        let away = shared.gateway_with("two", Arc::new(Unreachable));
        assert!(away.bucket().unwrap().has_contents(record).is_err());
        let path = shared.bucket_path().join(name);
        let length = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![0; usize::try_from(length).unwrap()]).unwrap();
        assert_eq!(files.open_contents(record).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(bucket.has_contents(record).unwrap());
        fs::remove_file(path).unwrap();
        assert!(!bucket.has_contents(record).unwrap());
    }
}

#[test]
fn a_bucket_that_is_away_is_503_and_damages_nothing() {
    let shared = SharedBucket::new();
    let sound = shared.gateway("one");
    let record = upload(&sound, &lines(3)).unwrap();
    let growing = new_output(&shared, &sound);
    let mut output = sound.open_output(&growing).unwrap();
    output.append(b"x\n").unwrap();
    output.sync().unwrap();
    let growing = output.updated_record(&growing);
    let away = shared.gateway_with("two", Arc::new(Unreachable));
    for error in [
        away.open_contents(&record).unwrap_err(),
        away.open_contents(&growing).unwrap_err(),
        away.open_output(&growing).unwrap_err(),
    ] {
        let temporary = !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData);
        assert!(temporary, "no batch ends for it: {error}");
        let answer = FileError::Io(error).to_api_error();
        assert_eq!((answer.code, answer.retry_after), (ErrorCode::Unavailable, Some(5)));
    }
    assert!(upload(&away, &lines(3)).is_err());
    assert_eq!(files_in(&away.upload_folder), 0);
    assert!(away.delete_with_contents(&record).unwrap());
    assert_eq!((away.finish_interrupted_deletions().unwrap().failed, shared.names("files").len()), (1, 1));
    assert_eq!(sound.finish_interrupted_deletions().unwrap().finished, 1);
    assert!(shared.names("files").is_empty());
}

#[test]
fn an_interrupted_deletion_is_finished_and_leaves_no_segments() {
    let shared = SharedBucket::new();
    let files = shared.gateway("one");
    let growing = new_output(&shared, &files);
    let mut output = files.open_output(&growing).unwrap();
    output.append(b"x\n").unwrap();
    output.sync().unwrap();
    let whole = output.finalize(&growing, NOW).unwrap();
    shared.commit(&growing, &whole);
    assert_eq!((shared.names("files").len(), shared.names("parts").len()), (1, 1));
    // The process ends before it deletes the contents.
    files.file_record_store().delete(&whole).unwrap();
    assert_eq!(shared.gateway("two").finish_interrupted_deletions().unwrap().finished, 1);
    assert!(shared.names("files").is_empty() && shared.names("parts").is_empty());
    assert_eq!(files.finish_interrupted_deletions().unwrap().finished, 0);
}

#[test]
fn a_sweep_of_temporary_files_spares_the_output_of_a_batch_that_waits() {
    let shared = SharedBucket::new();
    let bucket = |folder: &Path| {
        let contents = Arc::new(FolderStore::new(shared.bucket_path()));
        Ok(Some(FileBucket::new(contents, None, FileStore::new(shared.store.clone()), folder.to_owned())))
    };
    let (settings, store) = (shared.settings("one"), FileStore::new(shared.store.clone()));
    let files =
        FileManager::create_folder(&settings, store, Some(SuspectedLeftovers::default()), bucket).unwrap();
    let record = new_output(&shared, &files);
    let mut output = files.open_output(&record).unwrap();
    output.append(b"a\n").unwrap();
    output.sync().unwrap();
    let committed = output.updated_record(&record);
    shared.commit(&record, &committed);
    fs::write(files.upload_folder.join("of a killed process"), b"x").unwrap();
    for entry in fs::read_dir(&files.upload_folder).unwrap().flatten() {
        fs::File::open(entry.path()).unwrap().set_modified(SystemTime::now() - HOUR * 5).unwrap();
    }
    assert_eq!((files.delete_old_leftovers(HOUR).unwrap(), files_in(&files.upload_folder)), (0, 2));
    assert_eq!((files.delete_old_leftovers(HOUR).unwrap(), files_in(&files.upload_folder)), (1, 1));
    let whole = output.finalize(&committed, NOW).unwrap();
    shared.commit(&committed, &whole);
    assert_eq!(read(&files, &whole).unwrap(), b"a\n");
    assert_eq!(files_in(&files.upload_folder), 0);
}
