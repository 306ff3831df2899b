//! Verification of all persistent data: each row's checksum, the pepper, the hash chains of the audit log and the
//! ledger, each balance, each byte of each file, and each batch against its lines and results.

use super::progress::{ProgressReporter, ProgressUnit};
use super::{DataPaths, batches, store_error_message};
use crate::billing::checkpoint::LedgerCheckpoint;
use crate::billing::report;
use crate::storage::files::{FILE_ID_PREFIX, StoredContents};
use crate::storage::{object_id, stores};
use crate::time::format::format_rfc3339;
use penstock_core::hex;
use penstock_storage::audit::AuditLog;
use penstock_storage::batches::{BatchRecord, BatchStore};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Maximum number of findings that are listed.
const MAX_FINDINGS: usize = 100;
/// Bytes of a file per read.
const READ_SIZE: usize = 256 << 10;
/// Maximum number of records per page that is read from the store.
const PAGE_SIZE: usize = 500;

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of intact rows of the store.
    pub rows: u64,
    /// Number of valid ledger entries.
    pub entries: u64,
    /// Number of files with intact contents.
    pub files: u64,
    /// Total size of the files with intact contents, in bytes.
    pub bytes: u64,
    /// Number of batches that match their lines and results.
    pub batches: u64,
    /// One sentence for each of the first hundred problems.
    pub problems: Vec<String>,
    /// Number of problems beyond the first hundred, which are not in `problems`.
    pub unlisted: u64,
}

impl VerifyReport {
    /// Returns true if there is no problem.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem to the report; beyond the first hundred, only counts it.
    pub(super) fn add_finding(&mut self, problem: impl Into<String>) {
        if self.problems.len() < MAX_FINDINGS {
            self.problems.push(problem.into());
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns the result of the verification as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "good": self.is_intact(),
            "rows": self.rows,
            "entries": self.entries,
            "files": self.files,
            "bytes": self.bytes,
            "batches": self.batches,
            "wrong": self.problems,
            "more": self.unlisted,
        })
    }
}

/// Verifies the store, the pepper, the ledger, the audit log, and the contents of files and batches. If rows of the store are
/// damaged, only the rows are verified.
///
/// # Errors
/// Returns a sentence if the store cannot be opened or read to its end.
pub fn verify(data_paths: &DataPaths, progress: &ProgressReporter) -> Result<VerifyReport, String> {
    let store = data_paths.open_store()?;
    let mut verdict = VerifyReport::default();
    let to_message = |error: StoreError| store_error_message(&error);
    progress.begin_stage("Rows", ProgressUnit::Rows, None);
    let rows = store.verify_with_progress(&mut |rows| progress.advance(rows)).map_err(to_message)?;
    verdict.rows = rows.rows;
    rows.findings.iter().for_each(|finding| verdict.add_finding(format!("rows: {finding}")));
    if rows.damaged > 0 {
        // The checks of the ledger and of files would only report the damaged rows again.
        return Ok(verdict);
    }
    if let Err(why) = stores::check_pepper(&data_paths.storage, &store) {
        verdict.add_finding(format!("pepper: {why}"));
    }
    if let Some(number) = AuditLog::new(store.clone()).verify().map_err(to_message)? {
        verdict.add_finding(format!("audit log: entry {number} does not follow from the one before it"));
    }
    verify_ledger(data_paths, &store, &mut verdict, progress)?;
    let files = FileStore::new(store.clone());
    let mut bytes = 0;
    for_each_file_record(&files, |record| bytes += record.bytes).map_err(to_message)?;
    progress.begin_stage("File contents", ProgressUnit::Bytes, Some(bytes));
    let contents = data_paths.open_contents(&store)?;
    for_each_file_record(&files, |record| verdict.verify_file(&contents, record, progress))
        .map_err(to_message)?;
    progress.begin_stage("Batches", ProgressUnit::Batches, None);
    let batch_store = BatchStore::new(store);
    let known =
        batches::BatchVerificationSources { files: &files, batches: &batch_store, contents: &contents };
    let check = |batch: &BatchRecord| {
        batches::verify_batch(&known, batch, &mut verdict)?;
        progress.advance(1);
        Ok(())
    };
    batch_store.for_each(check).map_err(to_message)?;
    progress.finish_stage();
    Ok(verdict)
}

fn verify_ledger(
    data_paths: &DataPaths,
    store: &Arc<dyn Store>,
    verdict: &mut VerifyReport,
    progress: &ProgressReporter,
) -> Result<(), String> {
    progress.begin_stage("Ledger", ProgressUnit::Entries, None);
    // Opening the ledger for writes would repair the differences that have to be reported.
    let book = LedgerStore::open_for_comparison(store.clone(), &data_paths.ledger_path());
    let proof = report::verify_with_checkpoint(&book, &LedgerCheckpoint::default(), &mut |entries| {
        progress.advance(entries)
    })
    .map_err(|failed| failed.to_string())?;
    verdict.entries = proof.entries;
    if let Some((entry, why)) = &proof.invalid_entry {
        verdict.add_finding(format!("ledger: entry {entry} does not fit: {why}"));
    }
    for finding in proof.balance_differences.iter().chain(&proof.replica_differences) {
        verdict.add_finding(format!("ledger: {finding}"));
    }
    Ok(())
}

/// Calls `each` for every file record.
pub(super) fn for_each_file_record(
    files: &FileStore,
    mut each: impl FnMut(&FileRecord),
) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = files.list_all(after.as_deref(), PAGE_SIZE)?;
        page.files.iter().for_each(&mut each);
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

impl VerifyReport {
    fn verify_file(&mut self, contents: &StoredContents, record: &FileRecord, progress: &ProgressReporter) {
        match verify_contents(contents, record, progress) {
            Ok(()) => {
                self.files += 1;
                self.bytes += record.bytes;
            }
            Err(why) => {
                let made = format_rfc3339(record.created_at);
                self.add_finding(format!("file {} of key {}, made at {made}: {why}", record.id, record.key));
            }
        }
    }
}

/// Reads all contents of a file, and compares their SHA-256 with its record.
///
/// # Errors
/// Returns the problem as the end of a sentence.
fn verify_contents(
    stored: &StoredContents,
    record: &FileRecord,
    progress: &ProgressReporter,
) -> Result<(), String> {
    if !object_id::is_valid(FILE_ID_PREFIX, &record.id) {
        return Err("its id is invalid".to_owned());
    }
    let to_message = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidData => "its contents are damaged".to_owned(),
        std::io::ErrorKind::NotFound => "its contents are missing".to_owned(),
        _ => format!("its contents cannot be read: {error}"),
    };
    let contents = stored.open_contents(record).map_err(to_message)?;
    let (mut at, mut digest) = (0, Sha256::new());
    while at < contents.len() {
        let piece = contents.read(at, READ_SIZE).map_err(to_message)?;
        if piece.is_empty() {
            return Err("its contents are truncated".to_owned());
        }
        digest.update(&piece);
        progress.advance(piece.len() as u64);
        at += piece.len() as u64;
    }
    let sum = hex::encode(&digest.finalize());
    match &record.sha256 {
        Some(known) if *known != sum => Err("its contents are not those that were uploaded".to_owned()),
        None if record.status == FileStatus::Processed => Err("its record has no checksum".to_owned()),
        _ => Ok(()),
    }
}
