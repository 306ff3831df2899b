//! Storage of whole objects: in a folder of this machine, or in a bucket of an S3-compatible store. An object is
//! created or replaced at once, and read in ranges. All calls block, and return [`std::io::Error`]; the cause of an
//! error of a bucket is a [`BucketError`].

mod bucket;
mod folder;
mod name;

pub use bucket::error::BucketError;
pub use bucket::incomplete_uploads::IncompleteUpload;
pub use bucket::options::{BucketCredentials, BucketOptions, BucketStyle, BucketTimeouts, WebIdentity};
pub use bucket::probe::ProbeError;
pub use bucket::request_counts::RequestCount;
pub use bucket::{Bucket, PART_SIZE};
pub use folder::Folder;

use bytes::Bytes;
use std::fmt::Debug;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tempfile::TempPath;

/// Storage of whole objects by name. A name is a path of parts of letters, digits, `.`, `_` and `-`, with `/` between
/// them.
pub trait ContentStore: Debug + Send + Sync {
    /// Creates an object from a complete temporary file, which no longer exists afterwards, also after an error.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if there is an object of this name, and any other I/O error. After an error other than
    /// that the object may exist nevertheless.
    fn create(&self, name: &str, source: TempPath) -> Result<()>;

    /// Creates an object from bytes.
    ///
    /// # Errors
    /// The same as those of [`ContentStore::create`].
    fn create_from_bytes(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// Creates an object from a complete temporary file, or replaces it as a whole. The file no longer exists afterwards,
    /// also after an error.
    ///
    /// # Errors
    /// Returns any I/O error. The object may be replaced nevertheless.
    fn replace(&self, name: &str, source: TempPath) -> Result<()>;

    /// Opens an object.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no object of this name, and any other I/O error.
    fn open(&self, name: &str) -> Result<Box<dyn ObjectReader>>;

    /// Deletes an object; a missing one is no error.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Lists objects below a folder, in the order of their names, after the object `after`.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn list(&self, folder: &str, after: Option<&str>) -> Result<ObjectPage>;

    /// Calls `each` with every object below a folder. The objects of a subfolder follow each other. Objects that are
    /// created or deleted meanwhile may be missing.
    ///
    /// # Errors
    /// Returns any I/O error, and the first one of `each`.
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

/// Contents of one open object.
pub trait ObjectReader: Debug + Send + Sync {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Returns any I/O error.
    fn length(&self) -> Result<u64>;

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the object ends before, and any other I/O error.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
}

impl ObjectReader for File {
    fn length(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

/// Object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name, with its folder.
    pub name: String,
    /// Length in bytes.
    pub length: u64,
    /// Time since the object was created, by the clock of this machine.
    pub age: Duration,
}

/// Page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// Objects in the order of their names.
    pub objects: Vec<ObjectInfo>,
    /// True if more objects follow.
    pub more: bool,
}

/// Most objects of a page.
pub const PAGE_SIZE: usize = 1000;
