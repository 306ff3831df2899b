//! Everything that lasts, looked at once: every row's checksum, the audit log's
//! and the ledger's chain, every balance, every byte of every file, every batch
//! against its lines and its results.

use super::progress::{Progress, Unit};
use super::{Place, batches, told};
use crate::billing::report;
use crate::storage::files::{Contents, PREFIX};
use crate::storage::object_id;
use crate::time::format::rfc3339;
use penstock_contract::hex;
use penstock_storage::audit::AuditLog;
use penstock_storage::batches::{BatchRecord, BatchStore};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// Findings that are told one by one.
const MOST: usize = 100;
/// Bytes of a file read at once.
const STRIDE: usize = 256 << 10;
/// Records read at once.
const PAGE: usize = 500;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Rows of the store that are as they were written.
    pub rows: u64,
    /// Entries of the ledger that fit.
    pub entries: u64,
    /// Files whose contents are as they were written …
    pub files: u64,
    /// … and their bytes.
    pub bytes: u64,
    /// Batches that are in order.
    pub batches: u64,
    /// A sentence for each of the first hundred things that are wrong.
    pub wrong: Vec<String>,
    /// How many are wrong beyond those.
    pub more: u64,
}

impl Verdict {
    /// Nothing is wrong.
    #[must_use]
    pub const fn good(&self) -> bool {
        self.wrong.is_empty()
    }

    pub(super) fn find(&mut self, wrong: impl Into<String>) {
        if self.wrong.len() < MOST {
            self.wrong.push(wrong.into());
        } else {
            self.more += 1;
        }
    }

    /// For machines.
    #[must_use]
    pub fn told(&self) -> Value {
        json!({
            "good": self.good(),
            "rows": self.rows,
            "entries": self.entries,
            "files": self.files,
            "bytes": self.bytes,
            "batches": self.batches,
            "wrong": self.wrong,
            "more": self.more,
        })
    }
}

/// Looks at everything.
///
/// # Errors
/// The store cannot be opened, or not be read to its end.
pub fn verify(place: &Place, progress: &Progress) -> Result<Verdict, String> {
    let store = place.open()?;
    let mut verdict = Verdict::default();
    let said = |error: StoreError| told(&error);
    progress.begin("Rows", Unit::Rows, None);
    let rows = store.verify_with(&mut |rows| progress.advance(rows)).map_err(said)?;
    verdict.rows = rows.rows;
    rows.findings.iter().for_each(|finding| verdict.find(format!("rows: {finding}")));
    if rows.damaged > 0 {
        // What is read below would only stumble over them again.
        return Ok(verdict);
    }
    if let Some(number) = AuditLog::new(store.clone()).verify().map_err(said)? {
        verdict.find(format!("audit log: entry {number} does not follow from the one before it"));
    }
    ledger(place, &store, &mut verdict, progress)?;
    let files = FileStore::new(store.clone());
    let mut bytes = 0;
    each_file(&files, |record| bytes += record.bytes).map_err(said)?;
    progress.begin("File contents", Unit::Bytes, Some(bytes));
    each_file(&files, |record| verdict.file(&place.files, record, progress)).map_err(said)?;
    progress.begin("Batches", Unit::Batches, None);
    let batch_store = BatchStore::new(store);
    let known = batches::Known { files: &files, batches: &batch_store, folder: &place.files };
    let check = |batch: &BatchRecord| {
        batches::check(&known, batch, &mut verdict)?;
        progress.advance(1);
        Ok(())
    };
    batch_store.for_each(check).map_err(said)?;
    progress.finish();
    Ok(verdict)
}

fn ledger(
    place: &Place,
    store: &Arc<dyn Store>,
    verdict: &mut Verdict,
    progress: &Progress,
) -> Result<(), String> {
    progress.begin("Ledger", Unit::Entries, None);
    // Opening it for work would repair what is to be reported.
    let book = LedgerStore::open_for_compare(store.clone(), &place.ledger());
    let proof =
        report::verify_with(&book, &mut |entries| progress.advance(entries)).map_err(|failed| failed.0)?;
    verdict.entries = proof.entries;
    if let Some((entry, why)) = &proof.misfit {
        verdict.find(format!("ledger: entry {entry} does not fit: {why}"));
    }
    for finding in proof.balances.iter().chain(&proof.copy) {
        verdict.find(format!("ledger: {finding}"));
    }
    Ok(())
}

/// Gives every record of a file to `each`.
pub(super) fn each_file(files: &FileStore, mut each: impl FnMut(&FileRecord)) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = files.all(after.as_deref(), PAGE)?;
        page.files.iter().for_each(&mut each);
        after = page.files.last().map(|file| file.id.clone());
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
}

impl Verdict {
    fn file(&mut self, folder: &Path, record: &FileRecord, progress: &Progress) {
        match whole(folder, record, progress) {
            Ok(()) => {
                self.files += 1;
                self.bytes += record.bytes;
            }
            Err(why) => {
                let made = rfc3339(record.created_at);
                self.find(format!("file {} of key {}, made at {made}: {why}", record.id, record.key));
            }
        }
    }
}

/// Whether the contents of a file are what its record says, to the last byte.
///
/// # Errors
/// What is wrong, as the end of a sentence.
fn whole(folder: &Path, record: &FileRecord, progress: &Progress) -> Result<(), String> {
    if !object_id::is(PREFIX, &record.id) {
        return Err("its id is none".to_owned());
    }
    let said = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidData => "its contents are damaged".to_owned(),
        std::io::ErrorKind::NotFound => "its contents are missing".to_owned(),
        _ => format!("its contents cannot be read: {error}"),
    };
    let contents = Contents::open(&folder.join(&record.id), record).map_err(said)?;
    let (mut at, mut digest) = (0, Sha256::new());
    while at < contents.len() {
        let piece = contents.read(at, STRIDE).map_err(said)?;
        if piece.is_empty() {
            return Err("its contents end too early".to_owned());
        }
        digest.update(&piece);
        progress.advance(piece.len() as u64);
        at += piece.len() as u64;
    }
    let sum = hex::text(&digest.finalize());
    match &record.sha256 {
        Some(known) if *known != sum => Err("its contents are not those that were uploaded".to_owned()),
        None if record.status == FileStatus::Processed => Err("its record has no checksum".to_owned()),
        _ => Ok(()),
    }
}
