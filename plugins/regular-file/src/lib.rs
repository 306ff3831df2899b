//! Reader of the files that a configuration or a database URL names: regular files of a limited size only. A device may
//! be endless, and a pipe may block.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum size of a PEM file, in bytes.
pub const MAX_PEM_BYTES: u64 = 4 << 20;

/// Opens a regular file.
///
/// # Errors
/// Returns the error of the system, or [`ErrorKind::InvalidInput`] for a pipe, a device or a socket.
pub fn open_regular_file(path: &Path) -> Result<File, Error> {
    // The path is checked before the file is opened, because opening a device can have an effect. The opened file is
    // checked again, because the path may name another file by then.
    check_kind(&std::fs::metadata(path)?)?;
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// Returns the reason as a text for the operator, which the caller puts at the end of a sentence.
pub fn read_regular_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let file = open_regular_file(path).map_err(|error| describe_io_error(&error))?;
    read_limited(&file, max_bytes)
}

/// Reads a regular file of UTF-8 text of at most `max_bytes`.
///
/// # Errors
/// Same as [`read_regular_file`].
pub fn read_text_file(path: &Path, max_bytes: u64) -> Result<String, String> {
    String::from_utf8(read_regular_file(path, max_bytes)?).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// Reads an opened file to its end; fails if it has more than `max_bytes`. The size in the metadata is ignored, because
/// it is 0 for a file in `/proc`.
///
/// # Errors
/// Same as [`read_regular_file`].
pub fn read_limited(file: &File, max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| describe_io_error(&error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("it is too large; at most {max_bytes} bytes are read"));
    }
    Ok(bytes)
}

/// Describes an I/O error: the usual ones in words, all others as the operating system does.
#[must_use]
pub fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => error.to_string(),
    }
}

fn check_kind(found: &std::fs::Metadata) -> Result<(), Error> {
    match found.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(ErrorKind::IsADirectory.into()),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            "it is a pipe, a device or a socket, and must be a regular file",
        )),
    }
}

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
