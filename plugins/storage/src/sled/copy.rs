//! Scans over every row: a consistent copy of an open store, and its verification.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::engine::{Engine, Survey};
use super::live::Live;
use super::tip::{is_row, mark};
use crate::{Copied, Space, StoreError, Verified, row};

/// Number of rows read per chunk, so that a failing store can be reopened between chunks.
const TURN: usize = 256;
/// Number of changed rows from which a copy pauses writes to finish.
const FEW: usize = 256;
/// Maximum number of catch-up rounds before a copy pauses writes.
const ROUNDS: usize = 16;
/// Maximum number of findings retained.
const FINDINGS: usize = 100;

/// Implements [`crate::Store::copy`]: reads every row while the keys of concurrent writes are recorded, then reads the
/// recorded rows again; the last few of them while writes are paused.
pub(crate) fn copy(
    engine: &Engine,
    sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let _alone = engine.copying.lock();
    {
        let _writing = engine.writing.lock();
        *engine.touched.lock() = Some(BTreeSet::new());
    }
    let copied = walk(engine, |key, sealed| match is_row(key) {
        true => give(key, Some(row::open(key, sealed)?), sink),
        false => Ok(()),
    })
    .and_then(|()| catch_up(engine, sink));
    *engine.touched.lock() = None;
    copied
}

fn catch_up(
    engine: &Engine,
    sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for _ in 0..ROUNDS {
        if engine.touched.lock().as_ref().is_none_or(|keys| keys.len() <= FEW) {
            break;
        }
        again(engine, sink)?;
    }
    let _writing = engine.writing.lock();
    again(engine, sink)
}

fn again(
    engine: &Engine,
    sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let keys = engine.touched.lock().as_mut().map(std::mem::take).unwrap_or_default();
    for key in keys {
        let value = engine.with(|live| live.get(&key))?;
        give(&key, value.as_deref(), sink)?;
    }
    Ok(())
}

fn give(
    key: &[u8],
    value: Option<&[u8]>,
    sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (space, key) = part(key)?;
    sink(Copied { space, key, value })
}

fn part(key: &[u8]) -> Result<(Space, &[u8]), StoreError> {
    let known = key.split_first().and_then(|(tag, key)| Some((Space::of_tag(*tag)?, key)));
    known.ok_or_else(|| StoreError::Format { what: "a row of an unknown table".to_owned() })
}

/// Implements [`crate::Store::verify`]. Each chunk pauses writes briefly, so that every concurrent write is counted
/// once: by the writer if its key is before the cursor, otherwise by the scan.
pub(crate) fn verify(engine: &Engine, read: &mut dyn FnMut(u64)) -> Result<Verified, StoreError> {
    let _alone = engine.copying.lock();
    *engine.survey.lock() = Some(Survey::default());
    let mut verified = Verified::default();
    let surveyed = loop {
        let _writing = engine.writing.lock();
        let mut survey = engine.survey.lock();
        let Some(survey) = survey.as_mut() else { break Err(disturbed()) };
        let before = verified.rows;
        let turn = survey_turn(engine, survey, &mut verified);
        read(verified.rows - before);
        match turn {
            Ok(true) => {}
            Ok(false) => break Ok((survey.found, *engine.tip.lock())),
            Err(error) => break Err(error),
        }
    };
    *engine.survey.lock() = None;
    let (found, should) = surveyed?;
    if verified.damaged == 0 && (found.rows, found.sum) != (should.rows, should.sum) {
        verified.missing = true;
        verified.findings.push(format!("there are {} rows, but {} were written", found.rows, should.rows));
    }
    Ok(verified)
}

fn disturbed() -> StoreError {
    StoreError::Io { what: "write during a verification", kind: std::io::ErrorKind::Interrupted }
}

/// Returns `Corrupt` if a store small enough to be verified on opening lacks rows.
pub(crate) fn refuse_if_missing(engine: &Engine) -> Result<(), StoreError> {
    if engine.with(Live::log_bytes)? > engine.options.verify_under_bytes {
        return Ok(());
    }
    let verified = verify(engine, &mut |_| {})?;
    match verified.findings.into_iter().next() {
        Some(finding) if verified.missing => Err(StoreError::corrupt(finding)),
        _ => Ok(()),
    }
}

/// Verifies one chunk; returns true if there were rows left to read.
fn survey_turn(engine: &Engine, survey: &mut Survey, verified: &mut Verified) -> Result<bool, StoreError> {
    let turn = turn(engine, survey.cursor.as_deref())?;
    for (key, sealed) in turn.iter().filter(|(key, _)| is_row(key)) {
        survey.found.add(mark(key, sealed));
        match part(key).and_then(|_| row::open(key, sealed)) {
            Ok(value) => {
                verified.rows += 1;
                verified.bytes += (key.len() - 1 + value.len()) as u64;
            }
            Err(error) => {
                verified.damaged += 1;
                if verified.findings.len() < FINDINGS {
                    verified.findings.push(error.to_string());
                }
            }
        }
    }
    match turn.into_iter().next_back() {
        Some((key, _)) => {
            survey.cursor = Some(key);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Passes every row to `each` in ascending key order, a chunk at a time.
pub(crate) fn walk(
    engine: &Engine,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let mut turn = turn(engine, last.as_deref())?;
        for (key, sealed) in &turn {
            each(key, sealed)?;
        }
        match turn.pop() {
            Some((key, _)) => last = Some(key),
            None => return Ok(()),
        }
    }
}

type Sealed = (Vec<u8>, Vec<u8>);

/// Returns the next chunk of rows after a key.
fn turn(engine: &Engine, after: Option<&[u8]>) -> Result<Vec<Sealed>, StoreError> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut turn = Vec::with_capacity(TURN);
    engine.with(|live| {
        live.walk(from, |key, sealed| {
            turn.push((key.to_vec(), sealed.to_vec()));
            Ok(turn.len() < TURN)
        })
    })?;
    Ok(turn)
}
