//! Comparison of the replica files with the store.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use penstock_core::entry_number::number_before_chain;

use super::LedgerStore;
use super::replica::{contains_at, file_months, month_path, read_error};
use crate::StoreError;

/// Maximum number of attempts to read bytes of a file that may not be written yet, and the pause between two
/// attempts.
const READ_ATTEMPTS: u32 = 50;
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Expected extent of the replica of a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedReplica {
    /// Replica files with all entries of the chain.
    Complete,
    /// Replica files with only the first entries of each month; another gateway may have written the rest to its own
    /// folder.
    Partial,
}

/// Implements [`LedgerStore::compare_replica`] for one chain. A commit may be in progress during the comparison; the
/// store gets it a moment earlier than the file.
pub(super) fn compare_files(
    folder: &Path,
    ledger: &LedgerStore,
    chain: u32,
    expected: ExpectedReplica,
) -> Result<Vec<String>, StoreError> {
    let files = file_months(folder, chain)?;
    // The months of the store are read after the files, because the store gets a new month first.
    let months = ledger.chain_months(chain)?;
    let unknown = files.iter().filter(|file| !months.contains(file));
    let mut findings: Vec<String> = unknown
        .map(|month| format!("the file of {} has entries that the store lacks", file_title(chain, month)))
        .collect();
    for month in months {
        let title = file_title(chain, &month);
        let file = match File::open(month_path(folder, chain, &month)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && expected == ExpectedReplica::Partial => {
                continue;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                findings.push(format!("the file of {title} is missing"));
                continue;
            }
            Err(error) => return Err(read_error(error)),
        };
        let mut at = 0_u64;
        let mut differs = None;
        let end = file.metadata().map_err(read_error)?.len();
        ledger.for_each_block_in_month(&month, number_before_chain(chain), |block| {
            let is_missing = expected == ExpectedReplica::Partial && at + block.text.len() as u64 > end;
            if !is_missing && differs.is_none() && !eventually_contains(&file, at, &block.text)? {
                differs = Some(at);
            }
            at += block.text.len() as u64;
            Ok::<_, StoreError>(())
        })?;
        let length = file.metadata().map_err(read_error)?.len();
        // The length in the store is read after the length of the file, so that a commit in between is not reported as
        // a difference.
        let should = ledger.chain_month_byte_len(chain, &month)?;
        if let Some(at) = differs.or_else(|| (length > should).then_some(should)) {
            findings.push(format!("the file of {title} differs from the store after byte {at}"));
        }
    }
    Ok(findings)
}

/// Returns true if the file has the given bytes at the offset now or within a second.
fn eventually_contains(file: &File, offset: u64, text: &[u8]) -> Result<bool, StoreError> {
    for _ in 0..READ_ATTEMPTS {
        if contains_at(file, offset, text)? {
            return Ok(true);
        }
        if file.metadata().map_err(read_error)?.len() >= offset + text.len() as u64 {
            return contains_at(file, offset, text);
        }
        std::thread::sleep(READ_PAUSE);
    }
    Ok(false)
}

/// Returns the month of a file for messages, with its chain if there are several.
pub(super) fn file_title(chain: u32, month: &str) -> String {
    if chain == 0 { month.to_owned() } else { format!("{month}, chain {chain}") }
}
