//! In-memory copies of PEM files for connectors. Pingora opens a path without checking the kind and the size of the
//! file, so it gets the path of a copy.

use penstock_regular_file::{MAX_PEM_BYTES, read_regular_file};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Copy of a PEM file, which can be opened by [`PemCopy::path`] while this value exists.
pub struct PemCopy {
    bytes: Vec<u8>,
    /// Path of the original file.
    original: PathBuf,
    /// In-memory file with the copy; `None` if the system cannot create one.
    copy: Option<File>,
}

impl PemCopy {
    /// Copies a regular file of at most [`MAX_PEM_BYTES`]. For any other file, the copy is empty, so no certificate
    /// is trusted. The files were already validated when the configuration was loaded.
    pub fn new(path: &Path) -> Self {
        let bytes = read_regular_file(path, MAX_PEM_BYTES).unwrap_or_default();
        let copy = memfd_create("pem", MemfdFlags::CLOEXEC).map(File::from).ok();
        let copy = copy.filter(|mut file| file.write_all(&bytes).is_ok() && link(file).exists());
        Self { bytes, original: path.to_owned(), copy }
    }

    /// Returns the copied bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the path of the copy, or the path of the original file if there is no copy.
    pub fn path(&self) -> String {
        let path = self.copy.as_ref().map_or_else(|| self.original.clone(), link);
        path.to_string_lossy().into_owned()
    }
}

fn link(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_copy_has_the_bytes_that_were_read_and_none_of_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "one").unwrap();
        let copy = PemCopy::new(&path);
        std::fs::write(&path, "another").unwrap();
        for _ in 0..2 {
            assert_eq!((std::fs::read(copy.path()).unwrap(), copy.bytes()), (b"one".to_vec(), &b"one"[..]));
        }
        for path in [Path::new("/dev/zero"), &folder.path().join("none")] {
            assert_eq!(std::fs::read(PemCopy::new(path).path()).unwrap(), b"");
        }
    }
}
