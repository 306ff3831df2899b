//! Reports from the ledger on the disk: verification, statements, pages of entries. All calls block.

use super::rerate::load_terms;
use penstock_ledger::{BalanceFold, EntryKind, HashChain, LedgerEntry, Statement, UtcMonth, lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::{BalanceRecord, EntryBlock, LedgerStore};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 100;
/// Maximum number of tries to read a balance that changes meanwhile.
const MAX_REREADS: u32 = 1_000;

/// Error of a report, as a sentence.
#[derive(Debug)]
pub struct ReportError(pub String);

impl From<StoreError> for ReportError {
    fn from(error: StoreError) -> Self {
        Self(format!("The ledger cannot be read: {error}."))
    }
}

/// Result of a ledger verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerVerification {
    /// Number of valid entries.
    pub entries: u64,
    /// Number of accounts with entries.
    pub accounts: usize,
    /// Number of open reservations.
    pub open: usize,
    /// Number of the first invalid entry, and the reason.
    pub invalid_entry: Option<(u64, String)>,
    /// Balances that differ from the sum of the entries.
    pub balances: Vec<String>,
    /// Differences between the replica files and the store.
    pub copy: Vec<String>,
}

impl LedgerVerification {
    /// Returns true if there is no problem.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.invalid_entry.is_none() && self.balances.is_empty() && self.copy.is_empty()
    }

    /// Returns the result as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "good": self.is_intact(),
            "entries": self.entries,
            "accounts": self.accounts,
            "open_reserves": self.open,
            "first_misfit": self.invalid_entry.as_ref().map(|(entry, why)| json!({ "entry": entry, "why": why })),
            "balances": self.balances,
            "second_copy": self.copy,
        })
    }
}

/// Verified hash chain and its balances.
#[derive(Default)]
struct VerifiedFold<'a> {
    chain: HashChain,
    books: BalanceFold,
    /// Callback with the number of entries of each valid block.
    on_entries: Option<&'a mut dyn FnMut(u64)>,
}

impl VerifiedFold<'_> {
    fn add_block(&mut self, block: &EntryBlock) -> Result<(), (u64, String)> {
        let (month, before) = (&block.month, self.chain.seq);
        for line in lines(&block.text) {
            let number = self.chain.seq + 1;
            let fits =
                self.chain.verify_next(line).and_then(|entry| self.books.apply(&entry).map(|()| entry.at));
            let at = fits.map_err(|why| (number, why.to_string()))?;
            if UtcMonth::from_unix(at).to_string() != *month {
                return Err((number, format!("it is stored in the month {month} and dated in another")));
            }
        }
        if let Some(read) = &mut self.on_entries {
            read(self.chain.seq - before);
        }
        if block.last == self.chain.seq {
            Ok(())
        } else {
            Err((block.last, "its block is incomplete".to_owned()))
        }
    }

    /// Adds the entries of the store after the last one.
    fn add_new_entries(&mut self, store: &LedgerStore) -> Result<Option<(u64, String)>, ReportError> {
        enum Stop {
            Store(StoreError),
            Misfit((u64, String)),
        }
        impl From<StoreError> for Stop {
            fn from(error: StoreError) -> Self {
                Self::Store(error)
            }
        }
        match store.for_each_block(self.chain.seq, |block| self.add_block(block).map_err(Stop::Misfit)) {
            Ok(()) => Ok(None),
            Err(Stop::Misfit(misfit)) => Ok(Some(misfit)),
            Err(Stop::Store(error)) => Err(error.into()),
        }
    }
}

/// Verifies the ledger from the first entry: the hash chain, each balance, the replica files. It may be
/// written to meanwhile.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn verify(store: &LedgerStore) -> Result<LedgerVerification, ReportError> {
    verify_with(store, &mut |_| {})
}

/// Verifies like [`verify`], with a callback for each portion of entries.
///
/// # Errors
/// Returns the errors of [`verify`].
pub fn verify_with(
    store: &LedgerStore,
    read: &mut dyn FnMut(u64),
) -> Result<LedgerVerification, ReportError> {
    let mut fold = VerifiedFold { on_entries: Some(read), ..VerifiedFold::default() };
    let mut proof =
        LedgerVerification { invalid_entry: fold.add_new_entries(store)?, ..LedgerVerification::default() };
    if proof.invalid_entry.is_none() {
        proof.invalid_entry = check_tip(store, &mut fold)?;
    }
    if proof.invalid_entry.is_none() {
        check_balances(store, &mut fold, &mut proof)?;
        proof.copy = store.compare_replica()?;
    }
    proof.entries = fold.books.seq();
    proof.accounts = fold.books.accounts().keys().filter(|name| !name.is_empty()).count();
    proof.open = fold.books.open().len();
    Ok(proof)
}

/// Checks that the tip is the end of the chain.
fn check_tip(store: &LedgerStore, fold: &mut VerifiedFold<'_>) -> Result<Option<(u64, String)>, ReportError> {
    for _ in 0..MAX_REREADS {
        let tip = store.tip()?.unwrap_or_default();
        if let Some(misfit) = fold.add_new_entries(store)? {
            return Ok(Some(misfit));
        }
        if store.tip()?.unwrap_or_default() == tip {
            let same = (fold.chain.seq, fold.chain.hash) == (tip.seq, tip.hash);
            let missing = || (fold.chain.seq + 1, format!("entries up to {} are missing", tip.seq));
            return Ok((!same).then(missing));
        }
    }
    Ok(None)
}

fn check_balances(
    store: &LedgerStore,
    fold: &mut VerifiedFold<'_>,
    proof: &mut LedgerVerification,
) -> Result<(), ReportError> {
    let mut names: Vec<Arc<str>> = fold.books.accounts().keys().cloned().collect();
    names.extend(store.balances()?.into_iter().map(|(name, _)| Arc::from(name)));
    names.sort();
    names.dedup();
    for name in names {
        let Some((kept, seq)) = stable_balance(store, &name)? else { continue };
        if seq > fold.books.seq()
            && let Some(misfit) = fold.add_new_entries(store)?
        {
            proof.invalid_entry = Some(misfit);
            return Ok(());
        }
        if seq != fold.books.seq() {
            // Skipped, since entries were written between the reads.
            continue;
        }
        let sum = fold.books.account(&name);
        let sum = BalanceRecord { credits: sum.credits.amount, energy: sum.energy.amount };
        if kept.unwrap_or_default() != sum && proof.balances.len() < MAX_FINDINGS {
            proof.balances.push(format!("the balance of {name} is not the sum of its entries"));
        }
    }
    Ok(())
}

type StableBalance = Option<(Option<BalanceRecord>, u64)>;

/// Reads a balance, and the number of the entry that it includes.
fn stable_balance(store: &LedgerStore, name: &str) -> Result<StableBalance, StoreError> {
    for _ in 0..MAX_REREADS {
        let before = store.tip()?.map_or(0, |tip| tip.seq);
        let balance = store.balance(name)?;
        if store.tip()?.map_or(0, |tip| tip.seq) == before {
            return Ok(Some((balance, before)));
        }
    }
    Ok(None)
}

/// Finds an entry by its number.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn find(store: &LedgerStore, number: u64) -> Result<Option<LedgerEntry>, ReportError> {
    for month in store.months()? {
        let (mut blocks, _) = store.month_blocks(&month, number.saturating_sub(1))?;
        let Some(block) = blocks.next().transpose()? else { continue };
        for line in lines(&block.text) {
            let entry = parse_entry(line)?;
            if entry.seq == number {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

fn parse_entry(line: &[u8]) -> Result<LedgerEntry, ReportError> {
    let unreadable =
        |_| ReportError("An entry of the ledger cannot be read; `penstock credits verify` names it.".into());
    HashChain::parse_unverified(line).map(|(entry, _)| entry).map_err(unreadable)
}

/// Calls `take` for each entry of a month.
pub(super) fn for_each_entry(
    store: &LedgerStore,
    month: UtcMonth,
    mut take: impl FnMut(LedgerEntry) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    store.for_each_block_in_month(&month.to_string(), 0, |block| {
        lines(&block.text).try_for_each(|line| take(parse_entry(line)?))
    })
}

/// Reads a page of the ledger's text after an entry, and the number of its last entry; `None` at the end.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn page_text(store: &LedgerStore, after: u64) -> Result<Option<(Vec<u8>, u64)>, ReportError> {
    /// Approximate page size in bytes.
    const PAGE: usize = 512 * 1024;
    for month in store.months()? {
        let (blocks, _) = store.month_blocks(&month, after)?;
        let mut text = Vec::new();
        let mut last = after;
        for block in blocks {
            let block = block?;
            for line in lines(&block.text) {
                let entry = parse_entry(line)?;
                if entry.seq > after {
                    text.extend_from_slice(line);
                    last = entry.seq;
                }
            }
            if text.len() > PAGE {
                break;
            }
        }
        if !text.is_empty() {
            return Ok(Some((text, last)));
        }
    }
    Ok(None)
}

/// Returns the model of the charge that an entry corrects.
fn corrected_model(store: &LedgerStore, entry: &LedgerEntry) -> Result<Option<Arc<str>>, ReportError> {
    let EntryKind::Correct { of, .. } = &entry.kind else { return Ok(None) };
    Ok(find(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(sale.model),
        _ => None,
    }))
}

/// Statement of a month, and the terms of its charges.
pub struct MonthlyStatement {
    /// Month of the statement.
    pub month: UtcMonth,
    /// Sums of the month.
    pub statement: Statement,
    /// Terms by ID.
    pub terms: BTreeMap<Arc<str>, Value>,
}

/// Computes the statement of a month from its rollups, for one account or all; from its entries if the rollups are
/// incomplete.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn monthly_statement(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    if store.tip()?.is_some_and(|tip| tip.rollups) {
        return super::rollups::query::monthly_statement(store, month, account);
    }
    statement_of_entries(store, month, account)
}

/// Computes the statement of a month from its entries, for one account or all.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn statement_of_entries(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    let mut statement = Statement::default();
    for_each_entry(store, month, |entry| {
        if account.is_none_or(|name| *entry.account == *name) {
            statement.add_entry(&entry);
            if let Some(model) = corrected_model(store, &entry)? {
                statement.add_model_correction(&entry, &model);
            }
        }
        Ok(())
    })?;
    let mut terms = BTreeMap::new();
    for id in statement.terms() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(MonthlyStatement { month, statement, terms })
}
