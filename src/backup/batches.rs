//! Checks of a batch against its parts: line counts, the bitmap of finished lines, the size of its results file, and
//! each result in that file.

use super::verify::VerifyReport;
use crate::storage::files::{LineReader, StoredContents};
use penstock_batch::jsonl;
use penstock_storage::StoreError;
use penstock_storage::batches::{BatchRecord, BatchState, BatchStore};
use penstock_storage::files::{FileRecord, FileStore};
use serde::Deserialize;
use std::collections::HashSet;

/// Stores and file contents against which a batch is verified.
pub(super) struct BatchVerificationSources<'a> {
    pub(super) files: &'a FileStore,
    pub(super) batches: &'a BatchStore,
    pub(super) contents: &'a StoredContents,
}

/// Fields that are read from a result line.
#[derive(Deserialize)]
struct ResultLine {
    custom_id: String,
}

/// Checks one batch against its lines and results, and adds the problems to the report.
pub(super) fn verify_batch(
    sources: &BatchVerificationSources<'_>,
    batch: &BatchRecord,
    verdict: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut problems = Vec::new();
    let counts = &batch.counts;
    let answered = counts.completed + counts.failed;
    let all = answered + counts.cancelled + counts.expired;
    if all > counts.total || (batch.state == BatchState::Completed && all != counts.total) {
        problems.push(format!("its counts add up to {all} of {} lines", counts.total));
    }
    let done = sources.batches.finished_line_bitmap(&batch.id)?;
    let bits: u32 = done.iter().flatten().map(|byte| byte.count_ones()).sum();
    match (batch.state.is_final(), &done) {
        (true, Some(_)) => problems.push("it has ended, and its line bitmap still exists".to_owned()),
        (false, _) if bits != answered => {
            problems.push(format!("{bits} lines are marked as finished, and {answered} are counted"));
        }
        _ => {}
    }
    let output = match &batch.output {
        Some(id) => sources.files.get(id)?,
        None => None,
    };
    match (&batch.output, output) {
        (_, Some(output)) => verify_results(sources, batch, &output, answered, &mut problems)?,
        // The client may delete the results file after the batch has ended, so a missing file is a problem only for an
        // open batch.
        (Some(_), None) if !batch.state.is_final() => {
            problems.push("the file of its results is missing".to_owned())
        }
        (None, None) if answered > 0 => problems.push("it has results and no results file".to_owned()),
        _ => {}
    }
    if problems.is_empty() {
        verdict.batches += 1;
    }
    problems.into_iter().for_each(|problems| verdict.add_finding(format!("batch {}: {problems}", batch.id)));
    Ok(())
}

/// Checks that each counted line has exactly one result, and that there are no other results.
fn verify_results(
    sources: &BatchVerificationSources<'_>,
    batch: &BatchRecord,
    output: &FileRecord,
    answered: u32,
    problems: &mut Vec<String>,
) -> Result<(), StoreError> {
    if output.bytes != batch.output_bytes {
        let (file, own) = (output.bytes, batch.output_bytes);
        problems.push(format!("its results are {file} bytes by their file and {own} by the batch"));
    }
    let Ok(mut lines) = sources.contents.open_contents(output).map(LineReader::new) else {
        // The verification of the files has already reported this file.
        return Ok(());
    };
    let asked = input_custom_ids(sources, batch)?;
    let mut seen = HashSet::new();
    while let Ok(Some(line)) = lines.next_line() {
        let Ok(result) = serde_json::from_slice::<ResultLine>(&line.bytes) else {
            problems.push(format!("line {} of its results cannot be read", line.number));
            break;
        };
        if asked.as_ref().is_some_and(|asked| !asked.contains(&result.custom_id)) {
            problems.push(format!("line {} of its results has an unknown custom_id", line.number));
        }
        if !seen.insert(result.custom_id) {
            problems.push(format!("line {} of its results answers a line for the second time", line.number));
        }
    }
    if seen.len() != answered as usize {
        problems.push(format!("{} results, and {answered} lines are counted", seen.len()));
    }
    Ok(())
}

/// Returns the custom IDs of the input lines; `None` if the input file is missing or unreadable.
fn input_custom_ids(
    sources: &BatchVerificationSources<'_>,
    batch: &BatchRecord,
) -> Result<Option<HashSet<String>>, StoreError> {
    let Some(input) = sources.files.get(&batch.input)? else { return Ok(None) };
    let Ok(contents) = sources.contents.open_contents(&input) else { return Ok(None) };
    let (mut lines, mut asked) = (LineReader::new(contents), HashSet::new());
    while let Ok(Some(line)) = lines.next_line() {
        let Ok(line) = jsonl::parse_line(&line.bytes, penstock_batch::jsonl::BATCH_PATHS) else {
            return Ok(None);
        };
        asked.insert(line.custom_id.into_owned());
    }
    Ok(Some(asked))
}
