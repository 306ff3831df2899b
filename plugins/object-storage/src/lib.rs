//! Storage of whole objects: in a folder of this machine, or in a bucket of an S3-compatible store. An object is
//! created or replaced as a whole, and read in ranges. All calls block and return [`std::io::Error`]; for a bucket, the
//! cause inside that error is a [`BucketError`].

mod bucket;
mod folder;
mod name;

pub use bucket::error::BucketError;
pub use bucket::incomplete_uploads::IncompleteUpload;
pub use bucket::options::{AddressingStyle, BucketCredentials, BucketOptions, BucketTimeouts, WebIdentity};
pub use bucket::probe::ProbeError;
pub use bucket::request_counts::RequestCount;
pub use bucket::{Bucket, UPLOAD_PART_BYTES};
pub use folder::FolderStore;

use bytes::Bytes;
use std::fmt::Debug;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tempfile::TempPath;

/// Storage of whole objects by name. A name consists of parts of letters, digits, `.`, `_` and `-`, separated by `/`.
pub trait ContentStore: Debug + Send + Sync {
    /// Creates an object from a complete temporary file. The temporary file is removed in any case, also after an
    /// error.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if there is an object of this name, and any other I/O error. After any other error the
    /// object may exist nevertheless.
    fn create_from_file(&self, name: &str, source: TempPath) -> Result<()>;

    /// Creates an object from bytes.
    ///
    /// # Errors
    /// Same as [`ContentStore::create_from_file`].
    fn create_from_bytes(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// Creates an object from a complete temporary file, or replaces it as a whole. The temporary file is removed in
    /// any case, also after an error.
    ///
    /// # Errors
    /// Returns any I/O error. The object may be replaced nevertheless.
    fn replace_from_file(&self, name: &str, source: TempPath) -> Result<()>;

    /// Opens an object.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no object of this name, and any other I/O error.
    fn open(&self, name: &str) -> Result<Box<dyn RandomAccessObject>>;

    /// Deletes an object; a missing object is no error.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Deletes objects; a missing object is no error. After an error the remaining objects are still deleted. If a
    /// request for several objects was not answered, the objects of that request may remain.
    ///
    /// # Errors
    /// Returns the first I/O error.
    fn delete_objects(&self, names: &[String]) -> Result<()> {
        delete_each(self, names)
    }

    /// Lists objects below a folder, in the order of their names, after the object `after`.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn list(&self, folder: &str, after: Option<&str>) -> Result<ObjectPage>;

    /// Calls `each` with every object below a folder. All objects of one subfolder are visited consecutively. Objects
    /// that are created or deleted during the call may be missing.
    ///
    /// # Errors
    /// Returns any I/O error, and the first error of `each`.
    fn for_each(&self, folder: &str, each: &mut dyn FnMut(ObjectInfo) -> Result<()>) -> Result<()> {
        let mut after: Option<String> = None;
        loop {
            let page = self.list(folder, after.as_deref())?;
            after = page.objects.last().map(|object| object.name.clone());
            page.objects.into_iter().try_for_each(&mut *each)?;
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }
}

/// Deletes objects one by one, and continues after an error; returns the first error.
fn delete_each(store: &(impl ContentStore + ?Sized), names: &[String]) -> Result<()> {
    names.iter().map(|name| store.delete(name)).fold(Ok(()), Result::and)
}

/// Reader of the contents of one object.
pub trait RandomAccessObject: Debug + Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn length(&self) -> Result<u64>;

    /// Fills the buffer with the bytes of the object from an offset on.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the object ends before the buffer is full, and any other I/O error.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
}

impl RandomAccessObject for File {
    fn length(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

/// Object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name of the object, with its folder.
    pub name: String,
    /// Length in bytes.
    pub length: u64,
    /// Time since the object was created or last replaced, by the clock of this machine for a folder, and by the clock
    /// of the store for a bucket. Zero if it is unknown.
    pub age: Duration,
}

/// Page of a list of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// Objects in the order of their names.
    pub objects: Vec<ObjectInfo>,
    /// True if the list continues after this page.
    pub more: bool,
}

/// Maximum number of objects of a page.
pub const MAX_PAGE_OBJECTS: usize = 1000;
