//! Scans over every row of an open store: makes a consistent copy, and verifies the rows of the store.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::commit_marker::{fingerprint, is_caller_row};
use super::engine::{SledEngine, VerifyProgress};
use crate::{SnapshotRow, StoreError, StoreTable, VerifyOutcome, row};

/// Number of rows read per chunk, so that a failing store can be reopened between chunks.
const CHUNK_ROWS: usize = 256;
/// Maximum number of changed rows that a copy reads while it pauses writes for its last round.
const MAX_PAUSED_ROWS: usize = 256;
/// Maximum number of catch-up rounds before a copy pauses writes.
const MAX_ROUNDS: usize = 16;
/// Maximum number of damaged rows that a verification lists.
const MAX_FINDINGS: usize = 100;

/// Implements [`crate::Store::copy_rows`]: reads every row, and records the keys of concurrent writes meanwhile. Then
/// reads the recorded rows again, in rounds; in the last round, with few rows, writes are paused.
pub(crate) fn copy_all_rows(
    engine: &SledEngine,
    sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let _alone = engine.scan_lock.lock();
    {
        let _writing = engine.write_lock.lock();
        *engine.changed_keys.lock() = Some(BTreeSet::new());
    }
    let copied = for_each_row(engine, |key, sealed| match is_caller_row(key) {
        true => emit_row(key, Some(row::decode_checksummed(key, sealed)?), sink),
        false => Ok(()),
    })
    .and_then(|()| catch_up(engine, sink));
    *engine.changed_keys.lock() = None;
    copied
}

fn catch_up(
    engine: &SledEngine,
    sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for _ in 0..MAX_ROUNDS {
        if engine.changed_keys.lock().as_ref().is_none_or(|keys| keys.len() <= MAX_PAUSED_ROWS) {
            break;
        }
        copy_changed_rows(engine, sink)?;
    }
    let _writing = engine.write_lock.lock();
    copy_changed_rows(engine, sink)
}

fn copy_changed_rows(
    engine: &SledEngine,
    sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let keys = engine.changed_keys.lock().as_mut().map(std::mem::take).unwrap_or_default();
    for key in keys {
        let value = engine.with_sled(|live| live.get(&key))?;
        emit_row(&key, value.as_deref(), sink)?;
    }
    Ok(())
}

fn emit_row(
    key: &[u8],
    value: Option<&[u8]>,
    sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (space, key) = split_key(key)?;
    sink(SnapshotRow { table: space, key, value })
}

fn split_key(key: &[u8]) -> Result<(StoreTable, &[u8]), StoreError> {
    let known = key.split_first().and_then(|(tag, key)| Some((StoreTable::from_tag(*tag)?, key)));
    known.ok_or_else(|| StoreError::Format { what: "a row of an unknown table".to_owned() })
}

/// Implements [`crate::Store::verify_with_progress`]. Writes are paused briefly for each chunk, so that every
/// concurrent write is counted once: by the writer if its key is before the cursor, otherwise by the scan.
pub(crate) fn verify(
    engine: &SledEngine,
    on_rows_read: &mut dyn FnMut(u64),
) -> Result<VerifyOutcome, StoreError> {
    let _alone = engine.scan_lock.lock();
    *engine.verify_pass.lock() = Some(VerifyProgress::default());
    let mut verified = VerifyOutcome::default();
    let surveyed = loop {
        let _writing = engine.write_lock.lock();
        let mut survey = engine.verify_pass.lock();
        let Some(survey) = survey.as_mut() else { break Err(aborted_error()) };
        let before = verified.rows;
        let result = verify_chunk(engine, survey, &mut verified);
        on_rows_read(verified.rows - before);
        match result {
            Ok(true) => {}
            Ok(false) => break Ok((survey.counted, *engine.content_digest.lock())),
            Err(error) => break Err(error),
        }
    };
    *engine.verify_pass.lock() = None;
    let (found, should) = surveyed?;
    if verified.damaged == 0 && (found.rows, found.sum) != (should.rows, should.sum) {
        verified.missing = true;
        verified.findings.push(format!("there are {} rows, but {} were written", found.rows, should.rows));
    }
    Ok(verified)
}

fn aborted_error() -> StoreError {
    StoreError::Io { what: "write during a verification", kind: std::io::ErrorKind::Interrupted }
}

/// Verifies the rows on opening; returns their size on disk.
///
/// # Errors
/// Returns `Corrupt` if rows are missing. A damaged row is no error, because the others can be read.
pub(crate) fn check_missing_rows(engine: &SledEngine) -> Result<u64, StoreError> {
    let verified = verify(engine, &mut |_| {})?;
    match verified.findings.into_iter().next() {
        Some(finding) if verified.missing => Err(StoreError::corrupt(finding)),
        _ => Ok(verified.bytes + verified.rows * row::ENCODING_BYTES),
    }
}

/// Verifies one chunk of rows; returns true if there were rows left to read.
fn verify_chunk(
    engine: &SledEngine,
    survey: &mut VerifyProgress,
    verified: &mut VerifyOutcome,
) -> Result<bool, StoreError> {
    let chunk = read_chunk(engine, survey.cursor.as_deref())?;
    for (key, sealed) in chunk.iter().filter(|(key, _)| is_caller_row(key)) {
        survey.counted.add_fingerprint(fingerprint(key, sealed));
        match split_key(key).and_then(|_| row::decode_checksummed(key, sealed)) {
            Ok(value) => {
                verified.rows += 1;
                verified.bytes += (key.len() - 1 + value.len()) as u64;
            }
            Err(error) => {
                verified.damaged += 1;
                if verified.findings.len() < MAX_FINDINGS {
                    verified.findings.push(error.to_string());
                }
            }
        }
    }
    match chunk.into_iter().next_back() {
        Some((key, _)) => {
            survey.cursor = Some(key);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Passes every row to `each` in ascending key order, a chunk at a time.
pub(crate) fn for_each_row(
    engine: &SledEngine,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let mut chunk = read_chunk(engine, last.as_deref())?;
        for (key, sealed) in &chunk {
            each(key, sealed)?;
        }
        match chunk.pop() {
            Some((key, _)) => last = Some(key),
            None => return Ok(()),
        }
    }
}

type EncodedRow = (Vec<u8>, Vec<u8>);

/// Returns the next chunk of rows after a key.
fn read_chunk(engine: &SledEngine, after: Option<&[u8]>) -> Result<Vec<EncodedRow>, StoreError> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut chunk = Vec::with_capacity(CHUNK_ROWS);
    engine.with_sled(|live| {
        live.scan(from, |key, sealed| {
            chunk.push((key.to_vec(), sealed.to_vec()));
            Ok(chunk.len() < CHUNK_ROWS)
        })
    })?;
    Ok(chunk)
}
