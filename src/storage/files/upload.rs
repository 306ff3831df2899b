//! Upload of a file. It is validated line by line and written to a temporary file, which is renamed at the end. An
//! upload that ends earlier leaves nothing on the disk. All calls block.

use super::FileError;
use super::block_checksums::BlockChecksums;
use super::quota::{QuotaExceeded, QuotaReservation, UploadLimits, has_free_space};
use penstock_batch::jsonl::{FileSummary, FileValidator};
use penstock_core::hex;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Number of bytes after which the free disk space is checked again.
const SPACE_CHECK_BYTES: u64 = 4 << 20;

/// Upload of a file in progress.
pub struct FileUpload {
    /// File for the bytes; `None` after an invalid line, when the remaining bytes are only validated.
    temporary: Option<TemporaryFile>,
    lines: FileValidator,
    folder: PathBuf,
    bounds: UploadLimits,
    bytes: u64,
}

struct TemporaryFile {
    file: NamedTempFile,
    checksums: BlockChecksums,
    digest: Sha256,
    reservation: QuotaReservation,
}

/// Complete upload in a temporary file that was synced.
pub(super) struct StagedFile {
    path: TempPath,
    reservation: QuotaReservation,
    /// Summary of the validated lines.
    pub validated: FileSummary,
    /// Length of the uploaded file, in bytes.
    pub bytes: u64,
    /// SHA-256 of the uploaded file, in hex.
    pub sha256: String,
    /// Checksum of the table of block checksums.
    pub table_checksum: u32,
}

/// Returns a new validator for the lines of a batch file, each of at most `longest` bytes.
fn new_validator(longest: usize) -> FileValidator {
    FileValidator::new(penstock_batch::jsonl::BATCH_PATHS, longest)
}

impl FileUpload {
    /// Creates an upload with an empty temporary file in `upload_folder`.
    pub(super) fn new(
        upload_folder: &Path,
        folder: &Path,
        taken: QuotaReservation,
        bounds: UploadLimits,
    ) -> Result<Self, FileError> {
        if !has_free_space(folder, 0, bounds.min_free_bytes) {
            return Err(FileError::Quota(QuotaExceeded::Gateway));
        }
        let file = NamedTempFile::new_in(upload_folder).map_err(FileError::Io)?;
        let temporary = TemporaryFile {
            file,
            checksums: BlockChecksums::default(),
            digest: Sha256::new(),
            reservation: taken,
        };
        Ok(Self {
            temporary: Some(temporary),
            lines: new_validator(bounds.max_line_bytes),
            folder: folder.to_owned(),
            bounds,
            bytes: 0,
        })
    }

    /// Adds the next bytes. Invalid lines are not reported here, but all together when the upload is stored.
    ///
    /// # Errors
    /// Returns an error if there is no space, if a line exceeds its maximum length by more than 8 MiB, or if the disk
    /// fails.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let before = self.bytes;
        self.bytes += bytes.len() as u64;
        self.lines.push(bytes);
        if self.lines.has_error() {
            self.temporary = None;
        }
        if self.lines.exceeds_skip_limit() {
            let none = new_validator(self.bounds.max_line_bytes);
            std::mem::replace(&mut self.lines, none).end().map_err(FileError::InvalidLines)?;
        }
        let Some(temporary) = &mut self.temporary else { return Ok(()) };
        temporary.reservation.grow(bytes.len() as u64, &self.bounds).map_err(FileError::Quota)?;
        if before / SPACE_CHECK_BYTES != self.bytes / SPACE_CHECK_BYTES
            && !has_free_space(&self.folder, 0, self.bounds.min_free_bytes)
        {
            return Err(FileError::Quota(QuotaExceeded::Gateway));
        }
        temporary.checksums.push(bytes);
        temporary.digest.update(bytes);
        temporary.file.as_file_mut().write_all(bytes).map_err(FileError::Io)
    }

    /// Returns the bytes of memory that the incomplete line uses.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.lines.buffer_capacity()
    }

    /// Returns the limits of the upload.
    pub(super) const fn upload_limits(&self) -> UploadLimits {
        self.bounds
    }

    /// Completes the upload, and returns the staged file.
    ///
    /// # Errors
    /// Returns an error if lines are invalid or the disk fails.
    pub(super) fn finish(self) -> Result<StagedFile, FileError> {
        let checked = self.lines.end().map_err(FileError::InvalidLines)?;
        // If all lines are valid, the upload has a temporary file.
        let Some(temporary) = self.temporary else {
            return Err(FileError::Io(std::io::ErrorKind::NotFound.into()));
        };
        let TemporaryFile { mut file, checksums, digest, reservation: taken } = temporary;
        let (tail, table_checksum) = checksums.into_table_and_footer();
        file.as_file_mut().write_all(&tail).map_err(FileError::Io)?;
        file.as_file().sync_all().map_err(FileError::Io)?;
        let sha256 = hex::encode(&digest.finalize());
        Ok(StagedFile {
            path: file.into_temp_path(),
            reservation: taken,
            validated: checked,
            bytes: self.bytes,
            sha256,
            table_checksum,
        })
    }
}

impl StagedFile {
    /// Returns the temporary file, and the reserved space.
    pub(super) fn into_parts(self) -> (TempPath, QuotaReservation) {
        (self.path, self.reservation)
    }
}
