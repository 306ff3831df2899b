//! Contents of files in a bucket. Complete files are objects named `files/<id>-<start of the SHA-256>`, so that
//! different contents never have the same name. The results of running batches are stored as segments. All calls block.

use super::FILE_ID_PREFIX;
use super::bucket_sweep::SweepSchedule;
use super::contents::FileContents;
use super::incomplete_uploads::SeenUploads;
use super::output::OutputFile;
use super::segments::{
    SegmentWriter, copy_object_to_file, fetch_committed_bytes, segment_folder, store_committed_bytes,
};
use crate::config::settings::{BucketCredentialSettings, BucketSettings};
use crate::storage::object_id;
use parking_lot::Mutex;
use penstock_core::hex;
use penstock_object_storage::{
    AddressingStyle, Bucket, BucketCredentials, BucketError, BucketOptions, BucketTimeouts, ContentStore,
    ProbeError, RequestCount, WebIdentity,
};
use penstock_storage::files::{FilePurpose, FileRecord, FileStatus, FileStore};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};

/// Folder in the bucket that contains complete files.
pub const COMPLETE_FILES_FOLDER: &str = "files";
/// Object with the ID of the store to which the bucket belongs.
const STORE_ID_OBJECT: &str = "store-id";
/// Number of characters of the SHA-256 in the name of an object.
const DIGEST_CHARS: usize = 16;

/// Bucket with the contents of files.
pub struct FileBucket {
    contents: Arc<dyn ContentStore>,
    /// Client of the bucket, for probes, uploads and request counts; `None` if a folder serves as the bucket, as in
    /// tests.
    pub(super) bucket: Option<Bucket>,
    store: FileStore,
    /// Local folder of temporary files.
    pub(super) upload_folder: PathBuf,
    check: Mutex<BucketCheck>,
    pub(super) schedule: Mutex<SweepSchedule>,
    /// Incomplete uploads that the last sweep of the bucket found.
    pub(super) uploads: Mutex<SeenUploads>,
}

/// State of the check that a bucket can be used and belongs to the store.
#[derive(Clone, Debug)]
enum BucketCheck {
    /// The check has to be made before the next use, because the bucket could not be reached; contains the reason.
    Pending(String),
    Passed,
    /// The check failed; contains the sentence for the operator.
    Failed(String),
}

/// Returns the name of the object of a complete file; `None` for a growing or damaged file.
pub fn object_name(record: &FileRecord) -> Option<String> {
    let digest = record.sha256.as_deref()?.get(..DIGEST_CHARS)?;
    (record.status == FileStatus::Processed)
        .then(|| format!("{COMPLETE_FILES_FOLDER}/{}-{digest}", record.id))
}

/// Returns true if an object is a complete file, by its name.
pub(super) fn is_file_object(name: &str) -> bool {
    let name = name.strip_prefix(COMPLETE_FILES_FOLDER).and_then(|name| name.strip_prefix('/'));
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.and_then(|name| name.rsplit_once('-')).is_some_and(|(id, digest)| {
        object_id::is_valid(FILE_ID_PREFIX, id) && digest.len() == DIGEST_CHARS && digest.bytes().all(is_hex)
    })
}

/// Returns the client options of a configured bucket.
#[must_use]
pub fn bucket_options(settings: &BucketSettings) -> BucketOptions {
    BucketOptions {
        endpoint: settings.endpoint.to_string(),
        bucket: settings.bucket.to_string(),
        region: settings.region.to_string(),
        prefix: settings.prefix.to_string(),
        style: if settings.is_virtual_host { AddressingStyle::VirtualHost } else { AddressingStyle::Path },
        credentials: match &settings.credentials {
            BucketCredentialSettings::AccessKey { id, secret } => BucketCredentials::AccessKey {
                id: id.reveal().to_owned(),
                secret: secret.reveal().to_owned(),
            },
            BucketCredentialSettings::WebIdentity { token_file, role, endpoint } => {
                BucketCredentials::WebIdentity(WebIdentity {
                    token_file: token_file.clone(),
                    role: role.to_string(),
                    endpoint: endpoint.to_string(),
                })
            }
        },
        ca_file: settings.ca_file.clone(),
        timeouts: BucketTimeouts::default(),
    }
}

/// Checks the settings of a bucket, and with `reach` also that the bucket can be used.
///
/// # Errors
/// Returns a sentence for the operator.
pub fn check_bucket(settings: &BucketSettings, reach: bool) -> std::result::Result<(), String> {
    let bucket = create_client(settings)?;
    if reach { bucket.probe().map_err(|failed| failed.to_string()) } else { Ok(()) }
}

fn create_client(settings: &BucketSettings) -> std::result::Result<Bucket, String> {
    Bucket::new(&bucket_options(settings))
        .map_err(|error| format!("The store of files (files.store) cannot be used: {error}."))
}

impl FileBucket {
    /// Opens a configured bucket. If the bucket cannot be reached, it is checked before its first use.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the bucket cannot be used.
    pub fn open(
        settings: &BucketSettings,
        store: FileStore,
        upload_folder: PathBuf,
    ) -> std::result::Result<Self, String> {
        let bucket = create_client(settings)?;
        let opened = Self::new(Arc::new(bucket.clone()), Some(bucket), store, upload_folder);
        match opened.run_check() {
            BucketCheck::Failed(why) => Err(why),
            BucketCheck::Pending(why) => {
                tracing::warn!(name: "bucket_unreachable", why);
                Ok(opened)
            }
            BucketCheck::Passed => Ok(opened),
        }
    }

    pub(super) fn new(
        contents: Arc<dyn ContentStore>,
        bucket: Option<Bucket>,
        store: FileStore,
        upload_folder: PathBuf,
    ) -> Self {
        let check = Mutex::new(BucketCheck::Pending(String::new()));
        Self {
            contents,
            bucket,
            store,
            upload_folder,
            check,
            schedule: Mutex::default(),
            uploads: Mutex::default(),
        }
    }

    /// Returns the store of the contents, once a check has passed: the bucket can be used, and belongs to this store.
    ///
    /// # Errors
    /// Returns the error of the bucket as the cause of an I/O error.
    pub fn usable_content_store(&self) -> Result<&Arc<dyn ContentStore>> {
        let mut check = self.check.lock().clone();
        if matches!(check, BucketCheck::Pending(_)) {
            check = self.run_check();
            if let BucketCheck::Failed(why) = &check {
                tracing::error!(name: "bucket_unusable", why);
            }
        }
        match check {
            BucketCheck::Passed => Ok(&self.contents),
            BucketCheck::Pending(_) => {
                Err(BucketError::Unreachable("it has not answered yet".to_owned()).into())
            }
            BucketCheck::Failed(why) => Err(BucketError::Refused(why).into()),
        }
    }

    fn run_check(&self) -> BucketCheck {
        let probed = self.bucket.as_ref().map_or(Ok(()), Bucket::probe);
        let checked = match probed.and_then(|()| self.check_store_id()) {
            Ok(()) => BucketCheck::Passed,
            Err(ProbeError::Unreachable(why)) => BucketCheck::Pending(why),
            Err(ProbeError::Unsuitable(why)) => BucketCheck::Failed(why),
        };
        *self.check.lock() = checked.clone();
        checked
    }

    /// Checks that the bucket belongs to the store, and writes the ID of the store to a new bucket.
    fn check_store_id(&self) -> std::result::Result<(), ProbeError> {
        let database = |error: penstock_storage::StoreError| {
            ProbeError::Unreachable(format!("The records of files cannot be read: {error}."))
        };
        let known = self.store.directory_id().map_err(database)?;
        let proposed = known.clone().unwrap_or_else(|| hex::encode(&rand::random::<[u8; 16]>()));
        let noted = self.note_store_id(proposed.clone()).map_err(|error| id_error(&error))?;
        if known.as_ref() == Some(&noted) {
            return Ok(());
        }
        let other_store = || {
            ProbeError::Unsuitable(
                "The bucket or folder of files.store belongs to another store. Set files.store.bucket or \
                 files.store.prefix to those of this store."
                    .to_owned(),
            )
        };
        if known.is_some() {
            return Err(other_store());
        }
        let records = !self.store.list_all(None, 1).map_err(database)?.files.is_empty();
        let listed = self.contents.list(COMPLETE_FILES_FOLDER, None).map_err(|error| id_error(&error))?;
        if !records && !listed.objects.is_empty() {
            return Err(ProbeError::Unsuitable(
                "The bucket of files.store has contents that the store does not know, and would lose them: has the store \
                 been lost, or is another one meant? Restore the store (penstock store import), or set storage.path, \
                 storage.url or files.store right."
                    .to_owned(),
            ));
        }
        // The store has no ID yet, but another gateway of the fleet may insert one at the same time. For the same
        // bucket, it is the same ID.
        let chosen = self.store.get_or_insert_directory_id(&noted).map_err(database)?;
        if chosen == noted { Ok(()) } else { Err(other_store()) }
    }

    /// Writes an ID to the bucket unless the bucket has one; returns the ID that the bucket has.
    fn note_store_id(&self, id: String) -> Result<String> {
        match self.contents.create_from_bytes(STORE_ID_OBJECT, id.clone().into_bytes().into()) {
            Ok(()) => Ok(id),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let object = self.contents.open(STORE_ID_OBJECT)?;
                let length = usize::try_from(object.length()?.min(64)).unwrap_or_default();
                let mut bytes = vec![0; length];
                object.read_exact_at(&mut bytes, 0)?;
                Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
            }
            Err(error) => Err(error),
        }
    }

    /// Stores a complete file under the name of its record.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the record is not that of a complete file, `AlreadyExists` if the object exists
    /// already, and any other I/O error, after which the object may exist nevertheless.
    pub(super) fn store_complete_file(&self, record: &FileRecord, source: TempPath) -> Result<()> {
        let name = object_name(record).ok_or(ErrorKind::InvalidInput)?;
        self.usable_content_store()?.create_from_file(&name, source)
    }

    /// Opens the contents of a record. The contents of a growing file are copied to a temporary file.
    ///
    /// # Errors
    /// Returns `InvalidData` if they do not match the record, `NotFound` if they are missing, and any I/O error.
    pub(super) fn open_contents(&self, record: &FileRecord) -> Result<FileContents> {
        let contents = self.usable_content_store()?;
        if let Some(name) = object_name(record) {
            return FileContents::from_reader(contents.open(&name)?, record);
        }
        let file = tempfile::tempfile_in(&self.upload_folder)?;
        if record.status == FileStatus::Uploaded {
            fetch_committed_bytes(&**contents, record, &file)?;
        }
        FileContents::from_reader(Box::new(file), record)
    }

    /// Returns true if the contents of a record exist, even if they are damaged. The contents of a growing file exist
    /// if all their segments do.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub(super) fn has_contents(&self, record: &FileRecord) -> Result<bool> {
        let contents = self.usable_content_store()?;
        let found = match object_name(record) {
            Some(name) => contents.open(&name).map(drop),
            None if record.status != FileStatus::Uploaded => return Ok(false),
            None => fetch_committed_bytes(&**contents, record, &tempfile::tempfile_in(&self.upload_folder)?),
        };
        match found {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound || is_missing_segment(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a growing file of results at its committed size.
    ///
    /// # Errors
    /// Returns `InvalidData` if committed bytes are missing or damaged, and any I/O error.
    pub(super) fn open_output(&self, record: &FileRecord) -> Result<OutputFile> {
        let contents = self.usable_content_store()?;
        let (file, local) = NamedTempFile::new_in(&self.upload_folder)?.into_parts();
        // A batch may wait for hours. The shared lock on its temporary file shows the cleanup of leftovers that the
        // file is in use.
        file.lock_shared()?;
        fetch_committed_bytes(&**contents, record, &file)?;
        let segments = SegmentWriter::new(contents.clone(), self.upload_folder.clone(), record, local);
        OutputFile::from_file(file, record, Some(segments))
    }

    /// Checks that the bucket can be used.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub(super) fn check_usable(&self) -> Result<()> {
        self.usable_content_store().map(|_| ())
    }

    /// Copies the contents of a record to a file, in the file format that is used in the folder if no bucket is
    /// configured.
    ///
    /// # Errors
    /// Returns `NotFound` if the object of a complete file is missing, or the file is neither complete nor growing.
    /// Returns `InvalidData` if a segment of a growing file is missing or damaged, and any I/O error.
    pub(super) fn copy_to_file(&self, record: &FileRecord, file: &File) -> Result<()> {
        let contents = self.usable_content_store()?;
        match object_name(record) {
            Some(name) => copy_object_to_file(&*contents.open(&name)?, 0, file),
            None if record.status == FileStatus::Uploaded => fetch_committed_bytes(&**contents, record, file),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Stores the contents of a record in the bucket; so far they were only in the folder.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if they are stored already, and any I/O error.
    pub(super) fn store_folder_contents(&self, record: &FileRecord, source: TempPath) -> Result<()> {
        match object_name(record) {
            Some(name) => self.usable_content_store()?.create_from_file(&name, source),
            None => store_committed_bytes(&**self.usable_content_store()?, record, source),
        }
    }

    /// Deletes the object of a file, and the segments of which it was made.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub(super) fn delete(&self, record: &FileRecord) -> Result<()> {
        let contents = self.usable_content_store()?;
        if let Some(name) = object_name(record) {
            contents.delete(&name)?;
        }
        if record.purpose == FilePurpose::BatchOutput {
            let mut segments = Vec::new();
            contents.for_each(&segment_folder(&record.id), &mut |segment| {
                segments.push(segment.name);
                Ok(())
            })?;
            contents.delete_objects(&segments)?;
        }
        Ok(())
    }

    /// Returns the number of requests by method and outcome.
    pub fn request_counts(&self) -> Vec<RequestCount> {
        self.bucket.as_ref().map(Bucket::request_counts).unwrap_or_default()
    }

    /// Probes a bucket that did not answer the last call; returns true if the bucket can be used now. Blocks.
    pub fn probe_if_unavailable(&self) -> bool {
        self.usable_content_store().is_ok() && self.bucket.as_ref().is_none_or(Bucket::recheck_availability)
    }

    /// Returns true if the bucket can be used.
    pub fn is_available(&self) -> bool {
        matches!(*self.check.lock(), BucketCheck::Passed)
            && self.bucket.as_ref().is_none_or(Bucket::is_available)
    }
}

/// Returns true if the error means that a segment is missing, and false for an error of the bucket itself.
fn is_missing_segment(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidData && BucketError::from_io_error(error).is_none()
}

fn id_error(error: &std::io::Error) -> ProbeError {
    let sentence = format!("The store of files cannot be used: {error}.");
    match BucketError::from_io_error(error) {
        Some(BucketError::Unreachable(_)) => ProbeError::Unreachable(sentence),
        _ => ProbeError::Unsuitable(sentence),
    }
}
