//! Rebuild of the store's ledger from its replica files, for a store that was lost or has lost entries. The files are
//! verified before the store is changed. The files are not changed, except that an incomplete last line, as after a
//! power cut, is removed once the store has all entries. The ledger of a fleet can be rebuilt only from the files of
//! all its gateways, copied to one folder.

use super::entry_effects::balance_change;
use super::report::ReportError;
use penstock_core::entry_number::sequence_in_chain;
use penstock_ledger::{
    ChainBalances, EntryError, EntryKind, HashChain, LedgerEntry, MAX_LINE_BYTES, UtcMonth,
};
use penstock_storage::fleet::SharedFleet;
use penstock_storage::ledger::{
    EntryBlock, LedgerCommit, LedgerStore, LedgerTip, MAX_BLOCK_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_ROWS,
    TARGET_BLOCK_BYTES, parse_file_name,
};
use penstock_storage::{Store, StoreError};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Outcome of a rebuild.
#[derive(Debug, PartialEq, Eq)]
pub struct RebuiltLedger {
    /// Number of entries.
    pub entries: u64,
    /// Files whose incomplete last line was removed.
    pub shortened_files: Vec<PathBuf>,
}

/// Rewrites the ledger of `store` and its usage rollups from the files in `copies`, and removes the fleet's rows.
/// Blocks; no other process may have the store open.
///
/// # Errors
/// Returns the first invalid entry of the files, or an I/O error. After an incomplete rebuild the store does not open
/// until a rebuild succeeds.
pub fn rebuild_ledger(store: &Arc<dyn Store>, copies: &Path) -> Result<RebuiltLedger, ReportError> {
    let files = replica_files(copies)?;
    // The files are read twice, once to verify and once to write, since a ledger may be larger than the memory.
    let (mut corrected, mut incomplete) = (HashSet::new(), Vec::new());
    for (chain, months) in &files {
        let mut proof = ReplicaVerifier::new(*chain);
        let ends = for_each_line(months, |_, line| {
            let entry = proof.add_line(line)?;
            match &entry.kind {
                EntryKind::Correct { of, .. } if !corrected.insert(*of) => {
                    Err(ReportError::Invalid(format!(
                        "Entry {} of the second copy does not fit: the entry it corrects was already corrected.",
                        entry.seq
                    )))
                }
                _ => Ok(()),
            }
        })?;
        incomplete.extend(ends);
    }
    let ledger = LedgerStore::open_read_only(store.clone());
    check_chains(&ledger, &files)?;
    LedgerStore::clear(&**store)?;
    // When the first gateway of the fleet starts, it fills the pools again from the balances.
    SharedFleet::new(store.clone()).remove_fleet_rows()?;
    let (mut entries, mut terms) = (0, HashSet::new());
    for (chain, months) in &files {
        entries += write_chain(&ledger.open_inactive_chain(*chain)?, months, &mut terms)?;
    }
    super::rollups::rebuild::rebuild(&ledger)?;
    incomplete.iter().try_for_each(IncompleteEnd::remove)?;
    Ok(RebuiltLedger { entries, shortened_files: incomplete.into_iter().map(|end| end.path).collect() })
}

/// Checks that the files contain all chains that the store has, since the folder of a gateway contains only the chain
/// of that gateway. If the list of chains in the store is damaged, nothing is checked, since a rebuild is the remedy
/// for this.
fn check_chains(ledger: &LedgerStore, files: &ReplicaFiles) -> Result<(), ReportError> {
    let chains = match ledger.chains() {
        Err(StoreError::Corrupt { .. }) => return Ok(()),
        chains => chains?,
    };
    match chains.iter().find(|(chain, _)| !files.contains_key(chain)) {
        None => Ok(()),
        Some((chain, _)) => Err(ReportError::Invalid(format!(
            "The second copy lacks chain {chain} of the ledger, which another gateway of the fleet wrote: copy the files \
             ledger/*.jsonl of all gateways into one folder first."
        ))),
    }
}

/// Writes the entries of a chain; returns the number of entries.
fn write_chain(
    ledger: &LedgerStore,
    months: &[(String, PathBuf)],
    terms: &mut HashSet<Arc<str>>,
) -> Result<u64, ReportError> {
    let (mut fold, mut draft, mut tip) =
        (ReplicaVerifier::new(ledger.chain()), LedgerCommit::default(), None);
    for_each_line(months, |month, line| {
        let entry = fold.add_line(line)?;
        add_to_block(&mut draft, month, line, &entry);
        add_names(&mut draft, &entry, terms);
        add_balance_change(&mut draft, &entry)?;
        let bytes: usize = draft.blocks.iter().map(|block| block.text.len()).sum();
        let rows = draft.blocks.len() + draft.balance_changes.len() + draft.names.len();
        if bytes + 2 * MAX_LINE_BYTES > MAX_COMMIT_BYTES || rows + 8 > MAX_COMMIT_ROWS {
            write_group(ledger, &mut draft, &mut tip, &fold)?;
        }
        Ok(())
    })?;
    write_group(ledger, &mut draft, &mut tip, &fold)?;
    Ok(sequence_in_chain(fold.chain.seq))
}

struct ReplicaVerifier {
    chain: HashChain,
    books: ChainBalances,
    at: u64,
}

impl ReplicaVerifier {
    fn new(chain: u32) -> Self {
        Self { chain: HashChain::at_chain_start(chain), books: ChainBalances::at_chain_start(chain), at: 0 }
    }

    fn add_line(&mut self, line: &[u8]) -> Result<LedgerEntry, ReportError> {
        let number = self.chain.seq + 1;
        let invalid = |why: EntryError| {
            ReportError::Invalid(format!("Entry {number} of the second copy does not fit: {why}."))
        };
        let entry = self.chain.verify_next(line).map_err(invalid)?;
        self.books.apply_entry(&entry).map_err(invalid)?;
        self.at = entry.at;
        Ok(entry)
    }
}

fn add_to_block(draft: &mut LedgerCommit, month: &str, line: &[u8], entry: &LedgerEntry) {
    let has_space = |block: &EntryBlock| {
        block.text.len() < TARGET_BLOCK_BYTES && block.text.len() + line.len() <= MAX_BLOCK_BYTES
    };
    let fits = |block: &EntryBlock| block.month == month && has_space(block);
    if !draft.blocks.last().is_some_and(fits) {
        draft.blocks.push(EntryBlock { month: month.to_owned(), last: entry.seq, text: Vec::new() });
    }
    if let Some(block) = draft.blocks.last_mut() {
        block.text.extend_from_slice(line);
        block.last = entry.seq;
    }
}

/// Adds the names that an entry used. Terms may be recorded more than once; then their name refers to the first of
/// these entries.
fn add_names(draft: &mut LedgerCommit, entry: &LedgerEntry, known_terms: &mut HashSet<Arc<str>>) {
    match &entry.kind {
        EntryKind::Terms { id, .. } => {
            if known_terms.insert(id.clone()) {
                draft.names.push((format!("terms {id}"), entry.seq));
            }
        }
        EntryKind::Grant { id, .. } => draft.names.push((format!("grant {id}"), entry.seq)),
        EntryKind::Correct { id, of, .. } => {
            draft.names.push((format!("correct {id}"), entry.seq));
            draft.names.push((super::correction_entry_name(*of), entry.seq));
        }
        EntryKind::Reserve { .. } | EntryKind::Void { .. } | EntryKind::Settle { .. } => {}
    }
}

/// Adds the change of a balance by an entry.
fn add_balance_change(draft: &mut LedgerCommit, entry: &LedgerEntry) -> Result<(), ReportError> {
    let overflow =
        || ReportError::Invalid(format!("Entry {} of the second copy has an invalid amount.", entry.seq));
    let Some(change) = balance_change(&entry.kind).ok_or_else(overflow)? else { return Ok(()) };
    match draft.balance_changes.iter_mut().find(|(account, _)| **account == *entry.account) {
        Some((_, known)) => *known = known.saturating_add(change),
        None => draft.balance_changes.push((entry.account.to_string(), change)),
    }
    Ok(())
}

fn write_group(
    ledger: &LedgerStore,
    draft: &mut LedgerCommit,
    tip: &mut Option<LedgerTip>,
    fold: &ReplicaVerifier,
) -> Result<(), ReportError> {
    if draft.blocks.is_empty() {
        return Ok(());
    }
    let mut group = std::mem::take(draft);
    let low = fold.books.open_reserves().oldest_seq().unwrap_or(fold.chain.seq + 1);
    group.previous_tip = *tip;
    let (seq, hash) = (fold.chain.seq, fold.chain.hash);
    // The tip marks the rollups as incomplete; they are rebuilt when the ledger is complete.
    group.new_tip = LedgerTip { seq, hash, at: fold.at, first_open: low, are_rollups_complete: false };
    ledger.append(&group)?;
    *tip = Some(group.new_tip);
    Ok(())
}

/// Replica files of each chain, by month and sorted.
type ReplicaFiles = BTreeMap<u32, Vec<(String, PathBuf)>>;

fn replica_files(copies: &Path) -> Result<ReplicaFiles, ReportError> {
    let read_error = |error: std::io::Error| {
        ReportError::Invalid(format!(
            "The second copy of the ledger in {} cannot be read: {error}.",
            copies.display()
        ))
    };
    let mut files = ReplicaFiles::new();
    for entry in std::fs::read_dir(copies).map_err(read_error)? {
        let path = entry.map_err(read_error)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(parse_file_name);
        if let Some((chain, month)) = name.filter(|(_, month)| UtcMonth::parse(month).is_some()) {
            files.entry(chain).or_default().push((month.to_owned(), path.clone()));
        }
    }
    files.values_mut().for_each(|months| months.sort());
    Ok(files)
}

/// Incomplete last line of a file.
struct IncompleteEnd {
    path: PathBuf,
    month: String,
    /// Offset of the line in the file.
    at: u64,
    /// First bytes of the line.
    line: Vec<u8>,
}

impl IncompleteEnd {
    fn remove(&self) -> Result<(), ReportError> {
        let file = File::options().write(true).open(&self.path);
        let cut = file.and_then(|file| file.set_len(self.at).and_then(|()| file.sync_all()));
        cut.map_err(|error| {
            let file = self.path.display();
            ReportError::Invalid(format!(
                "The ledger was rebuilt, but the incomplete last line of {file} cannot be removed: {error}."
            ))
        })
    }
}

/// Calls `take` for each line of the files of a chain, with its month. Returns the incomplete lines, after which no
/// complete line follows in the chain.
fn for_each_line(
    files: &[(String, PathBuf)],
    mut take: impl FnMut(&str, &[u8]) -> Result<(), ReportError>,
) -> Result<Vec<IncompleteEnd>, ReportError> {
    let mut incomplete: Vec<IncompleteEnd> = Vec::new();
    for (month, path) in files {
        let read_error = |error: std::io::Error| {
            ReportError::Invalid(format!("The file {} cannot be read: {error}.", path.display()))
        };
        let mut file = BufReader::new(File::open(path).map_err(read_error)?);
        let (mut line, mut at) = (Vec::new(), 0);
        loop {
            line.clear();
            let most = MAX_LINE_BYTES as u64;
            let read =
                std::io::Read::take(&mut file, most).read_until(b'\n', &mut line).map_err(read_error)?;
            if read == 0 {
                break;
            }
            if line.ends_with(b"\n") {
                // Only the end of a chain may be incomplete; `take` refuses an incomplete line.
                if let Some(end) = incomplete.first() {
                    take(&end.month, &end.line)?;
                }
                take(month, &line)?;
            } else if incomplete.last().is_none_or(|end| end.path != *path) {
                let (path, month, line) = (path.clone(), month.clone(), std::mem::take(&mut line));
                incomplete.push(IncompleteEnd { path, month, at, line });
            }
            at += read as u64;
        }
    }
    Ok(incomplete)
}
