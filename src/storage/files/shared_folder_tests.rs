//! Tests of gateways that share a folder of files: leftovers, used bytes and copies of results.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use penstock_storage::{Store, open_in_memory};
use std::fs::{self, OpenOptions};
use std::time::SystemTime;

const NOW: Duration = Duration::from_secs(1_700_000_000);
const OWNER: FileOwner<'_> = FileOwner { key: "k1", account: "acme" };
const HOUR: Duration = Duration::from_secs(3_600);

struct SharedDirectory {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl SharedDirectory {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store: open_in_memory() }
    }

    fn open(&self) -> FileManager {
        let settings = settings::FileSettings {
            path: self.folder.path().to_owned(),
            upload: 1 << 20,
            disk: 1 << 30,
            per_key: 1 << 30,
            keep_free: 0,
            retention: None,
            leftovers: Duration::from_secs(3_600),
            store: None,
        };
        FileManager::open_shared_folder(&settings, FileStore::new(self.store.clone())).unwrap()
    }
}

fn limits(key: u64) -> UploadLimits {
    UploadLimits { max_total_bytes: 1 << 20, max_key_bytes: key, min_free_bytes: 0, max_line_bytes: 1 << 20 }
}

fn upload(files: &FileManager, key: u64) -> Result<FileUpload, FileError> {
    let mut upload = files.start_upload(OWNER, limits(key))?;
    let line = r#"{"custom_id":"1","method":"POST","url":"/v1/rerank","body":{"query":"0123456789"}}"#;
    upload.push(format!("{line}\n").as_bytes())?;
    Ok(upload)
}

fn stored(files: &FileManager, upload: FileUpload) -> Result<FileRecord, FileError> {
    files.store_upload(upload, OWNER, UploadFields { filename: "in".to_owned(), expires_after: None }, NOW)
}

fn age_by(path: &Path, age: Duration) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn uploads_at_the_same_time_exceed_no_limit_together() {
    let directory = SharedDirectory::new();
    let (one, other) = (directory.open(), directory.open());
    let (first, second) = (upload(&one, 100).unwrap(), upload(&other, 100).unwrap());
    let record = stored(&one, first).unwrap();
    let refused = stored(&other, second).err().unwrap().to_api_error();
    assert_eq!(refused.details["limit_bytes"], 100);
    assert!(upload(&other, 100).is_err(), "known from the start of the next one");
    assert_eq!((one.used_bytes(), other.used_bytes()), (record.bytes, record.bytes));
    let contents = || fs::read_dir(directory.folder.path()).unwrap().count();
    let before = contents();
    assert!(other.delete_with_contents(&record).unwrap() && !one.delete_with_contents(&record).unwrap());
    assert_eq!((one.used_bytes(), contents()), (0, before - 1));
    stored(&one, upload(&one, 100).unwrap()).unwrap();
}

#[test]
fn a_start_beside_others_deletes_nothing_and_a_sweep_only_what_is_old_and_seen_twice() {
    let directory = SharedDirectory::new();
    let one = directory.open();
    let in_progress = upload(&one, 1_000).unwrap();
    let record = stored(&one, upload(&one, 1_000).unwrap()).unwrap();
    let orphan = |age| {
        let file = one.create_output(OWNER, "out".to_owned(), "/v1/rerank", NOW).unwrap();
        age_by(&one.contents_path(&file.id), age);
        one.contents_path(&file.id)
    };
    let (old, young) = (orphan(HOUR * 2), orphan(HOUR / 2));
    let abandoned = directory.folder.path().join(UPLOAD_FOLDER).join("upload");
    fs::write(&abandoned, b"x").unwrap();
    age_by(&abandoned, HOUR * 2);
    age_by(&one.contents_path(&record.id), HOUR * 2);
    let other = directory.open();
    assert!(old.exists() && abandoned.exists(), "another gateway may still use them");
    assert_eq!(other.delete_old_leftovers(HOUR).unwrap(), 0, "its record may be on its way");
    assert_eq!(other.delete_old_leftovers(HOUR).unwrap(), 2);
    assert!(!old.exists() && !abandoned.exists() && young.exists() && one.contents_path(&record.id).exists());
    stored(&one, in_progress).unwrap();
    let late = orphan(HOUR * 2);
    other.delete_old_leftovers(HOUR).unwrap();
    let id = late.file_name().unwrap().to_str().unwrap().to_owned();
    one.file_record_store().add(&FileRecord { id, ..record }).unwrap();
    assert_eq!(other.delete_old_leftovers(HOUR).unwrap(), 0);
    assert!(late.exists(), "it was recorded after all");
}

#[test]
fn gateways_that_start_together_agree_on_the_folder() {
    let directory = SharedDirectory::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| directory.open())).collect();
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    });
    directory.open();
}

#[test]
fn a_folder_that_is_not_the_one_of_the_fleet_is_refused() {
    let (directory, other) = (SharedDirectory::new(), tempfile::tempdir().unwrap());
    let files = directory.open();
    let elsewhere = FileManager { folder: other.path().to_owned(), ..directory.open() };
    let refused = elsewhere.check_folder(Duration::ZERO).unwrap_err();
    assert!(refused.contains("set files.path to a folder that all of them share"), "{refused}");
    stored(&files, upload(&files, 1_000).unwrap()).unwrap();
    let refused = elsewhere.check_folder(Duration::ZERO).unwrap_err();
    assert!(refused.contains("is it mounted?"), "{refused}");
    files.check_folder(Duration::ZERO).unwrap();
}

#[test]
fn a_copy_of_results_is_not_changed_by_who_writes_to_the_original() {
    let directory = SharedDirectory::new();
    let files = directory.open();
    let record = files.create_output(OWNER, "out".to_owned(), "/v1/rerank", NOW).unwrap();
    let mut former = files.open_output(&record).unwrap();
    let committed: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
    former.append(&committed).unwrap();
    former.sync().unwrap();
    let record = former.updated_record(&record);
    former.append(b"not committed").unwrap();
    let copy = files.copy_output_to_new_file(&record, NOW).unwrap();
    assert_ne!(copy.id, record.id);
    let mut output = files.open_output(&copy).unwrap();
    output.append(b"mine").unwrap();
    former.append(b"late").unwrap();
    let copy = output.finalize(&copy, NOW).unwrap();
    let read = files.open_contents(&copy).unwrap().read(0, 4_000_000).unwrap();
    assert_eq!(read, [&committed[..], b"mine"].concat());
    fs::write(files.contents_path(&record.id), b"damaged").unwrap();
    let names = || fs::read_dir(directory.folder.path()).unwrap().count();
    let before = names();
    assert!(files.copy_output_to_new_file(&record, NOW).is_err());
    assert_eq!(names(), before, "nothing remains of it");
}
