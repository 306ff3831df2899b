//! Directories and files with owner-only permissions, regardless of the umask of the process.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permission mode of directories.
const DIR_MODE: u32 = 0o700;
/// Permission mode of files.
const FILE_MODE: u32 = 0o600;

/// Creates a directory and its missing parents with owner-only permissions. Syncs the parent of each created
/// directory, so that its entry survives a power cut.
///
/// # Errors
/// Returns any I/O error.
pub fn create_private_dir_all(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    create_private_dir_all(parent)?;
    match DirBuilder::new().mode(DIR_MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    match File::open(parent).and_then(|parent| parent.sync_all()) {
        // A directory that this process may not read cannot be synced.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Returns open options that create a file for its owner only.
pub(crate) fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Restricts a file, or a directory and everything inside at any depth, to its owner. Symbolic links are not followed.
/// An entry that cannot be changed is skipped. A path that does not exist is no error, because another process may
/// delete files meanwhile.
///
/// # Errors
/// Returns the error of the first skipped entry.
pub fn restrict_permissions_recursively(path: &Path) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mode = match metadata.file_type() {
        kind if kind.is_dir() => DIR_MODE,
        kind if kind.is_file() => FILE_MODE,
        _ => return Ok(()),
    };
    let mut done = Ok(());
    if metadata.permissions().mode() & 0o7777 != mode {
        done = fs::set_permissions(path, Permissions::from_mode(mode));
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            let restricted = entry.and_then(|entry| restrict_permissions_recursively(&entry.path()));
            done = done.and(restricted);
        }
    }
    done
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn permissions_are_tightened_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, beside) = (folder.path().join("store"), folder.path().join("beside"));
        fs::create_dir_all(store.join("a/b")).unwrap();
        fs::write(&beside, "x").unwrap();
        fs::write(store.join("a/b/file"), "x").unwrap();
        for (path, open) in [("", 0o755), ("a", 0o777), ("a/b", 0o2775), ("a/b/file", 0o644)] {
            fs::set_permissions(store.join(path), Permissions::from_mode(open)).unwrap();
        }
        fs::set_permissions(&beside, Permissions::from_mode(0o644)).unwrap();
        symlink(&beside, store.join("link")).unwrap();
        restrict_permissions_recursively(&store).unwrap();
        for (path, closed) in [("", DIR_MODE), ("a", DIR_MODE), ("a/b", DIR_MODE), ("a/b/file", FILE_MODE)] {
            assert_eq!(mode(&store.join(path)), closed, "{path}");
        }
        assert_eq!(mode(&beside), 0o644);
        restrict_permissions_recursively(&store.join("nothing")).unwrap();
    }

    #[test]
    fn created_files_are_readable_by_their_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        create_private_dir_all(&path).unwrap();
        open_options().create(true).write(true).open(path.join("file")).unwrap();
        assert_eq!(
            [mode(&path), mode(&root.path().join("a")), mode(&path.join("file"))],
            [DIR_MODE, DIR_MODE, FILE_MODE]
        );
    }
}
