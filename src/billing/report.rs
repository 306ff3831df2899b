//! Reports from the ledger on the disk: verification, statements, pages of entries. All calls block.

use super::rerate::terms_of;
use penstock_ledger::{BalanceFold, EntryKind, HashChain, LedgerEntry, Month, Statement, lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::{BalanceRecord, EntryBlock, LedgerStore};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of findings.
const FINDINGS: usize = 100;
/// Tries to read a balance that changes meanwhile.
const AGAIN: u32 = 1_000;

/// Error of a report, as a sentence.
#[derive(Debug)]
pub struct Failed(pub String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(format!("The ledger cannot be read: {error}."))
    }
}

/// Result of a ledger verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Number of valid entries.
    pub entries: u64,
    /// Number of accounts with entries.
    pub accounts: usize,
    /// Number of open reservations.
    pub open: usize,
    /// Number of the first invalid entry, and the reason.
    pub misfit: Option<(u64, String)>,
    /// Balances that differ from the sum of the entries.
    pub balances: Vec<String>,
    /// Differences between the replica files and the store.
    pub copy: Vec<String>,
}

impl Proof {
    /// Returns true if there is no problem.
    #[must_use]
    pub const fn good(&self) -> bool {
        self.misfit.is_none() && self.balances.is_empty() && self.copy.is_empty()
    }

    /// JSON form of the result.
    #[must_use]
    pub fn told(&self) -> Value {
        json!({
            "good": self.good(),
            "entries": self.entries,
            "accounts": self.accounts,
            "open_reserves": self.open,
            "first_misfit": self.misfit.as_ref().map(|(entry, why)| json!({ "entry": entry, "why": why })),
            "balances": self.balances,
            "second_copy": self.copy,
        })
    }
}

/// Verified hash chain and its balances.
#[derive(Default)]
struct Fold<'a> {
    chain: HashChain,
    books: BalanceFold,
    /// Callback with the number of entries of each valid sheet.
    read: Option<&'a mut dyn FnMut(u64)>,
}

impl Fold<'_> {
    fn sheet(&mut self, sheet: &EntryBlock) -> Result<(), (u64, String)> {
        let (month, before) = (&sheet.month, self.chain.seq);
        for line in lines(&sheet.text) {
            let number = self.chain.seq + 1;
            let fits =
                self.chain.verify_next(line).and_then(|entry| self.books.apply(&entry).map(|()| entry.at));
            let at = fits.map_err(|why| (number, why.to_string()))?;
            if Month::of(at).to_string() != *month {
                return Err((number, format!("it is stored in the month {month} and dated in another")));
            }
        }
        if let Some(read) = &mut self.read {
            read(self.chain.seq - before);
        }
        if sheet.last == self.chain.seq {
            Ok(())
        } else {
            Err((sheet.last, "its sheet is incomplete".to_owned()))
        }
    }

    /// Adds the entries of the store after the last one.
    fn on(&mut self, store: &LedgerStore) -> Result<Option<(u64, String)>, Failed> {
        enum Stop {
            Store(StoreError),
            Misfit((u64, String)),
        }
        impl From<StoreError> for Stop {
            fn from(error: StoreError) -> Self {
                Self::Store(error)
            }
        }
        match store.for_each_block(self.chain.seq, |sheet| self.sheet(sheet).map_err(Stop::Misfit)) {
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
pub fn verify(store: &LedgerStore) -> Result<Proof, Failed> {
    verify_with(store, &mut |_| {})
}

/// Verifies like [`verify`], with a callback for each portion of entries.
///
/// # Errors
/// Returns the errors of [`verify`].
pub fn verify_with(store: &LedgerStore, read: &mut dyn FnMut(u64)) -> Result<Proof, Failed> {
    let mut fold = Fold { read: Some(read), ..Fold::default() };
    let mut proof = Proof { misfit: fold.on(store)?, ..Proof::default() };
    if proof.misfit.is_none() {
        proof.misfit = ends_at_tip(store, &mut fold)?;
    }
    if proof.misfit.is_none() {
        balances(store, &mut fold, &mut proof)?;
        proof.copy = store.compare_replica()?;
    }
    proof.entries = fold.books.seq();
    proof.accounts = fold.books.accounts().keys().filter(|name| !name.is_empty()).count();
    proof.open = fold.books.open().len();
    Ok(proof)
}

/// Checks that the tip is the end of the chain.
fn ends_at_tip(store: &LedgerStore, fold: &mut Fold<'_>) -> Result<Option<(u64, String)>, Failed> {
    for _ in 0..AGAIN {
        let tip = store.tip()?.unwrap_or_default();
        if let Some(misfit) = fold.on(store)? {
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

fn balances(store: &LedgerStore, fold: &mut Fold<'_>, proof: &mut Proof) -> Result<(), Failed> {
    let mut names: Vec<Arc<str>> = fold.books.accounts().keys().cloned().collect();
    names.extend(store.balances()?.into_iter().map(|(name, _)| Arc::from(name)));
    names.sort();
    names.dedup();
    for name in names {
        let Some((kept, seq)) = steady(store, &name)? else { continue };
        if seq > fold.books.seq()
            && let Some(misfit) = fold.on(store)?
        {
            proof.misfit = Some(misfit);
            return Ok(());
        }
        if seq != fold.books.seq() {
            // Skipped, since entries were written between the reads.
            continue;
        }
        let sum = fold.books.account(&name);
        let sum = BalanceRecord { credits: sum.credits.amount, energy: sum.energy.amount };
        if kept.unwrap_or_default() != sum && proof.balances.len() < FINDINGS {
            proof.balances.push(format!("the balance of {name} is not the sum of its entries"));
        }
    }
    Ok(())
}

type Steady = Option<(Option<BalanceRecord>, u64)>;

/// Reads a balance, and the number of the entry that it includes.
fn steady(store: &LedgerStore, name: &str) -> Result<Steady, StoreError> {
    for _ in 0..AGAIN {
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
pub fn find(store: &LedgerStore, number: u64) -> Result<Option<LedgerEntry>, Failed> {
    for month in store.months()? {
        let (mut sheets, _) = store.blocks(&month, number.saturating_sub(1))?;
        let Some(sheet) = sheets.next().transpose()? else { continue };
        for line in lines(&sheet.text) {
            let entry = read(line)?;
            if entry.seq == number {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

fn read(line: &[u8]) -> Result<LedgerEntry, Failed> {
    let unreadable =
        |_| Failed("An entry of the ledger cannot be read; `penstock credits verify` names it.".into());
    HashChain::parse_unverified(line).map(|(entry, _)| entry).map_err(unreadable)
}

/// Calls `take` for each entry of a month.
pub(super) fn each(
    store: &LedgerStore,
    month: Month,
    mut take: impl FnMut(LedgerEntry) -> Result<(), Failed>,
) -> Result<(), Failed> {
    store.for_each_block_in_month(&month.to_string(), 0, |sheet| {
        lines(&sheet.text).try_for_each(|line| take(read(line)?))
    })
}

/// Reads a page of the ledger's text after an entry, and the number of its last entry; `None` at the end.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn page(store: &LedgerStore, after: u64) -> Result<Option<(Vec<u8>, u64)>, Failed> {
    /// Approximate page size in bytes.
    const PAGE: usize = 512 * 1024;
    for month in store.months()? {
        let (sheets, _) = store.blocks(&month, after)?;
        let mut text = Vec::new();
        let mut last = after;
        for sheet in sheets {
            let sheet = sheet?;
            for line in lines(&sheet.text) {
                let entry = read(line)?;
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

/// Model of the charge that an entry corrects.
fn corrected_model(store: &LedgerStore, entry: &LedgerEntry) -> Result<Option<Arc<str>>, Failed> {
    let EntryKind::Correct { of, .. } = &entry.kind else { return Ok(None) };
    Ok(find(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(sale.model),
        _ => None,
    }))
}

/// Statement of a month, and the terms of its charges.
pub struct Monthly {
    /// Month of the statement.
    pub month: Month,
    /// Sums of the month.
    pub statement: Statement,
    /// Terms by ID.
    pub terms: BTreeMap<Arc<str>, Value>,
}

/// Computes the statement of a month, for one account or all.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn monthly(store: &LedgerStore, month: Month, account: Option<&str>) -> Result<Monthly, Failed> {
    let mut statement = Statement::default();
    each(store, month, |entry| {
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
        terms.insert(id.clone(), terms_of(store, id)?);
    }
    Ok(Monthly { month, statement, terms })
}
