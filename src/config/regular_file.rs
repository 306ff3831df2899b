//! Reader of the files that a configuration names.

pub use penstock_core::regular_file::{
    MAX_PEM_BYTES, describe_io_error, open_regular_file, read_limited, read_regular_file, read_text_file,
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::path::Path;

    #[test]
    fn devices_pipes_and_folders_are_refused_without_being_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [Path::new("/dev/zero"), &link, &pipe] {
            let why = read_regular_file(path, 10).unwrap_err();
            assert!(why.contains("must be a regular file"), "{}: {why}", path.display());
        }
        assert_eq!(read_regular_file(folder.path(), 10).unwrap_err(), "it is a folder");
        assert_eq!(read_regular_file(&folder.path().join("none"), 10).unwrap_err(), "it does not exist");
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_never_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "1234").unwrap();
        assert_eq!(read_text_file(&path, 4).unwrap(), "1234");
        assert!(read_text_file(&path, 3).unwrap_err().contains("at most 3 bytes"));
        // Files of procfs report a size of 0.
        assert!(read_regular_file(Path::new("/proc/self/status"), 10).unwrap_err().contains("too large"));
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text_file(&path, 4).unwrap_err(), "it is not UTF-8 text");
    }
}
