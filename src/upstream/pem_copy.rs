//! Copies of PEM files in memory, for connectors: Pingora reads a path by itself, whatever its kind and size are.

use crate::config::regular_file::{MAX_PEM_BYTES, read_regular_file};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Copy of a PEM file, which can be opened by its path while this value exists.
pub struct PemCopy {
    bytes: Vec<u8>,
    /// Path of the original file.
    original: PathBuf,
    /// Copy in memory; `None` if the system makes none.
    copy: Option<File>,
}

impl PemCopy {
    /// Copies a regular file of at most [`MAX_PEM_BYTES`]. The copy of any other file is empty: no certificate is
    /// trusted then. Files are validated before.
    pub fn new(path: &Path) -> Self {
        let bytes = read_regular_file(path, MAX_PEM_BYTES).unwrap_or_default();
        let copy = memfd_create("pem", MemfdFlags::CLOEXEC).map(File::from).ok();
        let copy = copy.filter(|mut file| file.write_all(&bytes).is_ok() && link(file).exists());
        Self { bytes, original: path.to_owned(), copy }
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the path of the copy; that of the original if there is no copy.
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
