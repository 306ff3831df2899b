//! Copies of plain files: complete, synced, hashed with SHA-256, and readable by the owner only (mode 0600).

use super::throttle::Throttle;
use penstock_core::hex;
use sha2::{Digest, Sha256};
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Folder of file contents within an archive.
pub const FILES_FOLDER: &str = "files";

/// Size of a file in bytes, and its SHA-256 in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    pub bytes: u64,
    pub sha256: String,
}

/// Writer that computes the size and the SHA-256 of its bytes.
pub struct DigestWriter<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W: Write> DigestWriter<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, digest: Sha256::new(), bytes: 0 }
    }

    /// Returns the inner writer, with the size and the SHA-256 of the written bytes.
    pub fn finish(self) -> (W, FileDigest) {
        let sum = FileDigest { bytes: self.bytes, sha256: hex::encode(&self.digest.finalize()) };
        (self.inner, sum)
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
}

/// Computes the digest of a file at the rate of a throttle.
pub fn digest_file(path: &Path, brake: &mut Throttle<'_>) -> Result<FileDigest> {
    let mut summing = DigestWriter::new(std::io::sink());
    copy_bytes(&mut File::open(path)?, &mut summing, brake)?;
    Ok(summing.finish().1)
}

/// Copies a file to a path that does not exist, at the rate of a throttle. The target appears complete or not at all.
pub fn copy(from: &Path, to: &Path, brake: &mut Throttle<'_>) -> Result<FileDigest> {
    copy_prefix(from, to, u64::MAX, brake)
}

/// Copies at most the first `max_bytes` of a file, like [`copy`].
pub fn copy_prefix(from: &Path, to: &Path, max_bytes: u64, brake: &mut Throttle<'_>) -> Result<FileDigest> {
    let temporary = PathBuf::from(format!("{}.part", to.display()));
    let from = File::open(from)?;
    let mut summing = DigestWriter::new(create_private(&temporary, true)?);
    copy_bytes(&mut from.take(max_bytes), &mut summing, brake)?;
    let (file, sum) = summing.finish();
    file.sync_all()?;
    fs::rename(&temporary, to)?;
    Ok(sum)
}

/// Creates a file that only its owner can read. If the file exists, truncates it if `replace` is true, and fails
/// otherwise.
pub fn create_private(path: &Path, replace: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if replace {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path)
}

fn copy_bytes(from: &mut impl Read, to: &mut impl Write, brake: &mut Throttle<'_>) -> Result<()> {
    let mut piece = vec![0; 256 << 10];
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(piece.get(..read).unwrap_or_default())?;
        brake.throttle_bytes(read as u64)?;
    }
}

/// Creates a folder that only its owner can read, with its parents.
pub fn create_private_dir(path: &Path) -> Result<()> {
    penstock_storage::create_private_dir_all(path)
}

/// Syncs a folder, so that new entries survive a power loss.
pub fn sync_dir(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns the sum of the sizes of the files that exist.
pub fn total_size<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> u64 {
    paths.into_iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
}

/// Returns the names of the regular files in a folder, sorted; empty if the folder does not exist.
pub fn file_names(folder: &Path) -> Result<Vec<String>> {
    list_entries(folder, |kind| kind.is_file())
}

/// Returns the names of the subfolders of a folder, sorted; empty if the folder does not exist.
pub fn folder_names(folder: &Path) -> Result<Vec<String>> {
    list_entries(folder, |kind| kind.is_dir())
}

fn list_entries(folder: &Path, is_included: impl Fn(FileType) -> bool) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if is_included(entry.file_type()?) {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    Ok(names)
}

/// Returns true if the path does not exist or is an empty folder.
pub fn is_empty_dir(folder: &Path) -> Result<bool> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        entries => Ok(entries?.next().is_none()),
    }
}
