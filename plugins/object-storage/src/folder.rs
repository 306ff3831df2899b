//! Objects as files in a folder.

use crate::name::check_name;
use crate::{ContentStore, MAX_PAGE_OBJECTS, ObjectInfo, ObjectPage, RandomAccessObject};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BinaryHeap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::{NamedTempFile, TempPath};

/// Store of objects as files in a folder. Temporary files must be on the same file system.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: PathBuf,
    /// Lock that is held while a subfolder is created and synced, so no other call uses a subfolder that is not
    /// synced yet.
    creation: Arc<Mutex<()>>,
}

impl FolderStore {
    /// Creates a store of the objects in a folder, which must exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { root: path.into(), creation: Arc::default() }
    }

    /// Returns the path of an object's file.
    fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.root.join(name))
    }

    /// Returns the length and the age of an object; `None` if the object was deleted in the meantime.
    fn object_info(&self, name: String, now: SystemTime) -> Option<ObjectInfo> {
        let metadata = fs::metadata(self.root.join(&name)).ok()?;
        let age = metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
        Some(ObjectInfo { name, length: metadata.len(), age })
    }

    /// Creates the folder that contains an object's file, and syncs its entry.
    fn create_parent(&self, path: &Path) -> Result<()> {
        let _creating = self.creation.lock();
        match path.parent() {
            Some(folder) => self.create_folder(folder),
            None => Ok(()),
        }
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        let Some(parent) = folder.parent().filter(|_| folder != self.root && !folder.is_dir()) else {
            return Ok(());
        };
        self.create_folder(parent)?;
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        if synced.is_err() {
            // The next call creates and syncs the subfolder again.
            fs::remove_dir(folder).ok();
        }
        synced
    }

    /// Creates an empty file to reserve the name, renames the complete file to it, and syncs the folder. All three
    /// steps call the standard library, because the tests of power loss intercept these calls.
    fn publish(source: &Path, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(path);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let published = fs::rename(source, path).and_then(|()| File::open(folder)?.sync_all());
        if published.is_err() {
            fs::remove_file(path).ok();
        }
        published
    }
}

impl ContentStore for FolderStore {
    fn create_from_file(&self, name: &str, source: TempPath) -> Result<()> {
        let path = self.path(name)?;
        self.create_parent(&path)?;
        Self::publish(&source, &path)
    }

    fn replace_from_file(&self, name: &str, source: TempPath) -> Result<()> {
        let path = self.path(name)?;
        self.create_parent(&path)?;
        fs::rename(&source, &path)?;
        File::open(path.parent().unwrap_or(&path))?.sync_all()
    }

    fn create_from_bytes(&self, name: &str, bytes: Bytes) -> Result<()> {
        let mut file = NamedTempFile::new_in(&self.root)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        self.create_from_file(name, file.into_temp_path())
    }

    fn open(&self, name: &str) -> Result<Box<dyn RandomAccessObject>> {
        Ok(Box::new(File::open(self.path(name)?)?))
    }

    fn delete(&self, name: &str) -> Result<()> {
        fs::remove_file(self.path(name)?)
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn list(&self, folder: &str, after: Option<&str>) -> Result<ObjectPage> {
        let (path, mut after) = (self.path(folder)?, after.map(str::to_owned));
        loop {
            let (names, more) = page_of_names(&path, folder, after.as_deref())?;
            after = names.last().cloned();
            let now = SystemTime::now();
            let objects: Vec<_> = names.into_iter().filter_map(|name| self.object_info(name, now)).collect();
            // A page without objects is never returned while more names follow, because the next page continues after
            // the last name of this page.
            if !more || !objects.is_empty() {
                return Ok(ObjectPage { objects, more });
            }
        }
    }

    fn for_each(&self, folder: &str, each: &mut dyn FnMut(ObjectInfo) -> Result<()>) -> Result<()> {
        let now = SystemTime::now();
        // All objects are visited in one directory traversal; separate pages would need one traversal each.
        collect_names(&self.path(folder)?, folder, &mut |name| match self.object_info(name, now) {
            Some(object) => each(object),
            None => Ok(()),
        })
    }
}

/// Returns the first [`MAX_PAGE_OBJECTS`] valid names of files below a folder after the name `after`, in ascending
/// order, and true if more follow.
fn page_of_names(path: &Path, folder: &str, after: Option<&str>) -> Result<(Vec<String>, bool)> {
    let (mut names, mut more) = (BinaryHeap::new(), false);
    collect_names(path, folder, &mut |name| {
        if after.is_some_and(|after| *name <= *after) {
            return Ok(());
        }
        names.push(name);
        if names.len() > MAX_PAGE_OBJECTS {
            names.pop();
            more = true;
        }
        Ok(())
    })?;
    Ok((names.into_sorted_vec(), more))
}

/// Calls `each` with the name of every file below a folder, except invalid names; a missing folder is empty.
fn collect_names(path: &Path, folder: &str, each: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().map(|name| format!("{folder}/{name}")) else { continue };
        if entry.file_type()?.is_dir() {
            collect_names(&entry.path(), &name, each)?;
        } else if check_name(&name).is_ok() {
            each(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn an_object_is_created_once_and_read_in_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::new(folder.path());
        store.create_from_bytes("a", Bytes::from_static(b"0123456789")).unwrap();
        store.create_from_bytes("b/c", Bytes::from_static(b"x")).unwrap();
        let again = store.create_from_bytes("a", Bytes::from_static(b"other")).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let reader = store.open("a").unwrap();
        let mut buffer = [0; 3];
        reader.read_exact_at(&mut buffer, 4).unwrap();
        assert_eq!((&buffer, reader.length().unwrap()), (b"456", 10));
        assert_eq!(reader.read_exact_at(&mut buffer, 8).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        for (name, text) in [("a", "new"), ("d/e", "newer")] {
            let mut file = NamedTempFile::new_in(folder.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            store.replace_from_file(name, file.into_temp_path()).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), text);
        }
        // An open reader of the replaced object still reads the old content.
        reader.read_exact_at(&mut buffer, 7).unwrap();
        assert_eq!(&buffer, b"789");
        store.delete("a").unwrap();
        store.delete("a").unwrap();
        assert_eq!(store.open("a").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(store.open("../a").unwrap_err().kind(), ErrorKind::InvalidInput);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 2, "no temporary file remains");
    }

    #[test]
    fn a_list_has_pages_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::new(folder.path());
        assert_eq!(store.list("x", None).unwrap(), ObjectPage::default());
        fs::create_dir(folder.path().join("x")).unwrap();
        for number in 0..MAX_PAGE_OBJECTS + 5 {
            fs::write(folder.path().join(format!("x/{number:06}")), "12").unwrap();
        }
        let first = store.list("x", None).unwrap();
        assert!(first.more && first.objects.len() == MAX_PAGE_OBJECTS);
        let last = &first.objects[MAX_PAGE_OBJECTS - 1];
        assert_eq!((last.name.as_str(), last.length), ("x/000999", 2));
        let rest = store.list("x", Some(&last.name)).unwrap();
        assert_eq!((rest.objects.len(), rest.more), (5, false));
    }
}
