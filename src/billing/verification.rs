//! Verification of the ledger: the entries of each chain, the balances and the replica files. A reservation ends in the
//! chain in which it was made; a balance is the sum over all chains. All calls block.

use super::checkpoint::LedgerCheckpoint;
use super::report::ReportError;
use penstock_core::entry_number::{chain_of, sequence_in_chain};
use penstock_ledger::{ChainBalances, HashChain, UtcMonth, split_lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::{BalanceRecord, EntryBlock, LedgerStore};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of balance differences that are listed.
const MAX_FINDINGS: usize = 100;
/// Maximum number of reads of a balance that changes during the verification.
const MAX_REREADS: u32 = 1_000;

/// Result of a ledger verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerVerification {
    /// Number of valid entries.
    pub entries: u64,
    /// Number of accounts with entries.
    pub accounts: usize,
    /// Number of open reservations.
    pub open_reservations: usize,
    /// Number of the first invalid entry, and the reason; `None` if all entries are valid.
    pub invalid_entry: Option<(u64, String)>,
    /// Balances that differ from the sum of the entries, at most 100.
    pub balance_differences: Vec<String>,
    /// Differences between the replica files and the store.
    pub replica_differences: Vec<String>,
    /// Last verified entry of each chain.
    pub checkpoint: LedgerCheckpoint,
}

impl LedgerVerification {
    /// Returns true if there is no problem.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.invalid_entry.is_none()
            && self.balance_differences.is_empty()
            && self.replica_differences.is_empty()
    }

    /// Returns the result as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "good": self.is_intact(),
            "entries": self.entries,
            "accounts": self.accounts,
            "open_reserves": self.open_reservations,
            "first_misfit": self.invalid_entry.as_ref().map(|(entry, why)| json!({ "entry": entry, "why": why })),
            "balances": self.balance_differences,
            "second_copy": self.replica_differences,
            "checkpoint": self.checkpoint.to_string(),
        })
    }
}

/// State of the verification of one chain, up to its last verified entry.
struct VerifiedChain {
    chain: HashChain,
    books: ChainBalances,
}

/// State of the verification of all chains.
struct VerificationState<'a> {
    chains: BTreeMap<u32, VerifiedChain>,
    /// Entries with the hashes that they must have.
    expected: &'a LedgerCheckpoint,
    /// Callback with the number of entries of each valid block.
    on_entries: &'a mut dyn FnMut(u64),
}

/// Number of an invalid entry, and the reason.
type InvalidEntry = (u64, String);

impl VerifiedChain {
    fn new(chain: u32) -> Self {
        Self { chain: HashChain::at_chain_start(chain), books: ChainBalances::at_chain_start(chain) }
    }

    /// Verifies the entries of the next block and adds them; returns their number, or the first invalid entry.
    fn add_block(&mut self, block: &EntryBlock, expected: &LedgerCheckpoint) -> Result<u64, InvalidEntry> {
        let (month, before) = (&block.month, self.chain.seq);
        for line in split_lines(&block.text) {
            let number = self.chain.seq + 1;
            let fits = self
                .chain
                .verify_next(line)
                .and_then(|entry| self.books.apply_entry(&entry).map(|()| entry.at));
            let at = fits.map_err(|why| (number, why.to_string()))?;
            if !expected.is_consistent_with(number, &self.chain.hash) {
                return Err((number, "it is another one than that of the checkpoint".to_owned()));
            }
            if UtcMonth::from_unix(at).to_string() != *month {
                return Err((number, format!("it is stored in the month {month} and dated in another")));
            }
        }
        if block.last == self.chain.seq {
            Ok(self.chain.seq - before)
        } else {
            Err((block.last, "its block is incomplete".to_owned()))
        }
    }
}

impl VerificationState<'_> {
    /// Adds the entries of all chains that follow the entries that were already added; returns the first invalid one.
    fn add_new_entries(&mut self, store: &LedgerStore) -> Result<Option<InvalidEntry>, ReportError> {
        let mut numbers: BTreeSet<u32> = self.chains.keys().copied().collect();
        numbers.extend(store.chains()?.into_iter().map(|(chain, _)| chain));
        for number in numbers {
            if let Some(misfit) = self.add_chain_entries(store, number)? {
                return Ok(Some(misfit));
            }
        }
        Ok(None)
    }

    /// Adds the entries of one chain that follow its last added entry; returns the first invalid one.
    fn add_chain_entries(
        &mut self,
        store: &LedgerStore,
        number: u32,
    ) -> Result<Option<InvalidEntry>, ReportError> {
        enum Stop {
            Store(StoreError),
            InvalidEntry(InvalidEntry),
        }
        impl From<StoreError> for Stop {
            fn from(error: StoreError) -> Self {
                Self::Store(error)
            }
        }
        let fold = self.chains.entry(number).or_insert_with(|| VerifiedChain::new(number));
        let (on_entries, expected) = (&mut self.on_entries, self.expected);
        let read = store.for_each_block(fold.chain.seq, |block| {
            on_entries(fold.add_block(block, expected).map_err(Stop::InvalidEntry)?);
            Ok(())
        });
        match read {
            Ok(()) => Ok(None),
            Err(Stop::InvalidEntry(misfit)) => Ok(Some(misfit)),
            Err(Stop::Store(error)) => Err(error.into()),
        }
    }

    /// Returns the number of the last entry of each chain.
    fn ends(&self) -> Vec<(u32, u64)> {
        let ends = self.chains.iter().map(|(number, fold)| (*number, fold.chain.seq));
        ends.filter(|(_, seq)| sequence_in_chain(*seq) > 0).collect()
    }

    /// Returns the checkpoint of the verified entries: the last entry of each chain.
    fn checkpoint(&self) -> LedgerCheckpoint {
        let ends = self.chains.values().map(|fold| (fold.chain.seq, fold.chain.hash));
        LedgerCheckpoint::from_entries(ends.filter(|(seq, _)| sequence_in_chain(*seq) > 0))
    }

    /// Returns the first entry of the checkpoint that does not exist.
    fn find_missing(&self) -> Option<InvalidEntry> {
        let is_missing =
            |number: &u64| self.chains.get(&chain_of(*number)).is_none_or(|fold| fold.chain.seq < *number);
        let number = self.expected.entry_numbers().find(is_missing)?;
        Some((number, "the checkpoint has it, and it does not exist".to_owned()))
    }

    /// Returns the balance of an account over all chains; `None` if it exceeds 64 bits.
    fn balance(&self, account: &str) -> Option<BalanceRecord> {
        let (mut credits, mut energy) = (0_i128, 0_i128);
        for fold in self.chains.values() {
            let sums = fold.books.account_balances(account);
            credits += i128::from(sums.credits.amount);
            energy += i128::from(sums.energy.amount);
        }
        Some(BalanceRecord { credits: i64::try_from(credits).ok()?, energy: i64::try_from(energy).ok()? })
    }

    fn accounts(&self) -> BTreeSet<Arc<str>> {
        self.chains.values().flat_map(|fold| fold.books.balances_by_account().keys().cloned()).collect()
    }
}

/// Verifies the ledger from its first entry: the hash chains, each balance, and the replica files. The ledger may be
/// written to during the verification.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn verify(store: &LedgerStore) -> Result<LedgerVerification, ReportError> {
    verify_with_checkpoint(store, &LedgerCheckpoint::default(), &mut |_| {})
}

/// Verifies like [`verify`], and also that the ledger has the entries of a checkpoint, with the same hashes. Calls
/// `on_entries_read` with the number of entries of each block.
///
/// # Errors
/// Returns the errors of [`verify`].
pub fn verify_with_checkpoint(
    store: &LedgerStore,
    expected: &LedgerCheckpoint,
    on_entries_read: &mut dyn FnMut(u64),
) -> Result<LedgerVerification, ReportError> {
    let mut fold = VerificationState { chains: BTreeMap::new(), expected, on_entries: on_entries_read };
    let mut proof =
        LedgerVerification { invalid_entry: fold.add_new_entries(store)?, ..LedgerVerification::default() };
    if proof.invalid_entry.is_none() {
        proof.invalid_entry = check_tips(store, &mut fold)?;
    }
    if proof.invalid_entry.is_none() {
        proof.invalid_entry = fold.find_missing();
    }
    if proof.invalid_entry.is_none() {
        proof.invalid_entry = check_corrections(store, &mut fold)?;
    }
    if proof.invalid_entry.is_none() {
        check_balances(store, &mut fold, &mut proof)?;
        proof.replica_differences = store.compare_replica()?;
    }
    proof.entries = fold.chains.values().map(|fold| sequence_in_chain(fold.books.last_seq())).sum();
    proof.checkpoint = fold.checkpoint();
    proof.accounts = fold.accounts().iter().filter(|name| !name.is_empty()).count();
    proof.open_reservations = fold.chains.values().map(|fold| fold.books.open_reserves().len()).sum();
    Ok(proof)
}

/// Checks that each tip is the end of its chain. A chain that is written to during each of the reads is skipped.
fn check_tips(
    store: &LedgerStore,
    fold: &mut VerificationState<'_>,
) -> Result<Option<InvalidEntry>, ReportError> {
    let numbers: Vec<u32> = fold.chains.keys().copied().chain([0]).collect();
    for number in numbers {
        if let Some(misfit) = check_tip(store, fold, number)? {
            return Ok(Some(misfit));
        }
    }
    Ok(None)
}

fn check_tip(
    store: &LedgerStore,
    fold: &mut VerificationState<'_>,
    number: u32,
) -> Result<Option<InvalidEntry>, ReportError> {
    let before_first = HashChain::at_chain_start(number);
    for _ in 0..MAX_REREADS {
        let tip = store.chain_tip(number)?;
        if let Some(misfit) = fold.add_chain_entries(store, number)? {
            return Ok(Some(misfit));
        }
        if store.chain_tip(number)? == tip {
            let tip = tip.map_or(before_first, |tip| HashChain { seq: tip.seq, hash: tip.hash });
            let end = fold.chains.get(&number).map_or(before_first, |fold| fold.chain);
            let missing = || (end.seq + 1, format!("entries up to {} are missing", tip.seq));
            return Ok((end != tip).then(missing));
        }
    }
    Ok(None)
}

/// Checks the entries that are corrected by an entry of another chain: each must exist, and must be corrected only
/// once.
fn check_corrections(
    store: &LedgerStore,
    fold: &mut VerificationState<'_>,
) -> Result<Option<InvalidEntry>, ReportError> {
    let all = fold.chains.iter().flat_map(|(chain, fold)| {
        let corrected = fold.books.corrected_entry_numbers().iter();
        corrected.map(move |of| (*of, *chain))
    });
    let mut all: Vec<(u64, u32)> = all.collect();
    all.sort_unstable();
    for pair in all.windows(2) {
        if let [(of, _), (same, _)] = pair
            && of == same
        {
            return Ok(Some((*of, "two entries correct it".to_owned())));
        }
    }
    for (of, _) in all.into_iter().filter(|(of, chain)| chain_of(*of) != *chain) {
        let exists = |fold: &VerificationState<'_>| {
            fold.chains.get(&chain_of(of)).is_some_and(|end| end.chain.seq >= of)
        };
        // The chain may have grown after it was read.
        if !exists(fold)
            && let Some(misfit) = fold.add_chain_entries(store, chain_of(of))?
        {
            return Ok(Some(misfit));
        }
        if !exists(fold) {
            return Ok(Some((of, "an entry corrects it, and it does not exist".to_owned())));
        }
    }
    Ok(None)
}

fn check_balances(
    store: &LedgerStore,
    fold: &mut VerificationState<'_>,
    proof: &mut LedgerVerification,
) -> Result<(), ReportError> {
    let mut names = fold.accounts();
    names.extend(store.balances()?.into_iter().map(|(name, _)| Arc::from(name)));
    for name in names {
        let Some((stored, ends)) = stable_balance(store, &name)? else { continue };
        if ends != fold.ends()
            && let Some(misfit) = fold.add_new_entries(store)?
        {
            proof.invalid_entry = Some(misfit);
            return Ok(());
        }
        if ends != fold.ends() {
            // The balance is skipped, since entries were written between its reads.
            continue;
        }
        if Some(stored.unwrap_or_default()) != fold.balance(&name)
            && proof.balance_differences.len() < MAX_FINDINGS
        {
            proof.balance_differences.push(format!("the balance of {name} is not the sum of its entries"));
        }
    }
    Ok(())
}

/// Balance of an account (`None` if it has none), with the number of the last entry that it includes of each chain.
type StableBalance = Option<(Option<BalanceRecord>, Vec<(u32, u64)>)>;

/// Reads a balance, and the number of the last entry of each chain that it includes; `None` if entries were written
/// during each of the reads.
fn stable_balance(store: &LedgerStore, name: &str) -> Result<StableBalance, StoreError> {
    let ends = || -> Result<Vec<(u32, u64)>, StoreError> {
        Ok(store.chains()?.into_iter().map(|(chain, tip)| (chain, tip.seq)).collect())
    };
    let mut before = ends()?;
    for _ in 0..MAX_REREADS {
        let balance = store.balance(name)?;
        let after = ends()?;
        if before == after {
            return Ok(Some((balance, after)));
        }
        before = after;
    }
    Ok(None)
}
