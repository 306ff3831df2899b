//! Contents that all gateways of a fleet reach: in the bucket of file contents, or in the shared folder of files.

use crate::storage::files::FileBucket;
use crate::storage::files::quota::has_free_space;
use penstock_object_storage::{ContentStore, FolderStore, RandomAccessObject};
use std::io::{ErrorKind, Result, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::NamedTempFile;

/// Store of contents that all gateways of a fleet can access. All calls block.
#[derive(Clone)]
pub struct SharedContents {
    store: SharedStore,
    /// Folder of temporary files, which is swept.
    upload_folder: PathBuf,
}

#[derive(Clone)]
enum SharedStore {
    Folder(Arc<dyn ContentStore>),
    Bucket(Arc<FileBucket>),
}

impl SharedContents {
    /// Returns the contents of a folder that all gateways share.
    #[must_use]
    pub fn in_folder(folder: PathBuf, upload_folder: PathBuf) -> Self {
        Self { store: SharedStore::Folder(Arc::new(FolderStore::new(folder))), upload_folder }
    }

    /// Returns the contents of a bucket that all gateways share.
    #[must_use]
    pub const fn in_bucket(bucket: Arc<FileBucket>, upload_folder: PathBuf) -> Self {
        Self { store: SharedStore::Bucket(bucket), upload_folder }
    }

    /// Returns the store that holds the contents.
    ///
    /// # Errors
    /// Returns the error of a bucket that cannot be used.
    pub fn content_store(&self) -> Result<Arc<dyn ContentStore>> {
        match &self.store {
            SharedStore::Folder(folder) => Ok(folder.clone()),
            SharedStore::Bucket(bucket) => bucket.usable_content_store().cloned(),
        }
    }

    /// Writes an object that consists of these parts, or replaces it completely.
    ///
    /// # Errors
    /// Returns any I/O error. The object may be written nevertheless.
    pub fn write(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let store = self.content_store()?;
        let mut file = NamedTempFile::new_in(&self.upload_folder)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.as_file().sync_all()?;
        store.replace_from_file(name, file.into_temp_path())
    }

    /// Returns the length of an object in bytes; `None` if there is no object with this name.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        self.open(name)?.map(|object| object.length()).transpose()
    }

    /// Reads an object; `None` if there is no object with this name.
    ///
    /// # Errors
    /// Returns any I/O error, for instance if the object is replaced during the read.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(object) = self.open(name)? else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(object.length()?).map_err(|_| ErrorKind::FileTooLarge)?];
        object.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }

    /// Fills the buffer with the first bytes of an object; `None` if there is no object with this name.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the object is shorter, and any other I/O error.
    pub fn read_start(&self, name: &str, buffer: &mut [u8]) -> Result<Option<()>> {
        self.open(name)?.map(|object| object.read_exact_at(buffer, 0)).transpose()
    }

    fn open(&self, name: &str) -> Result<Option<Box<dyn RandomAccessObject>>> {
        match self.content_store()?.open(name) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if `keep_free` bytes of the disk stay free after a write of `bytes`. The disk is that of the
    /// temporary files; a shared folder is on the same disk.
    #[must_use]
    pub fn has_space(&self, bytes: u64, keep_free: u64) -> bool {
        has_free_space(&self.upload_folder, bytes, keep_free)
    }
}
