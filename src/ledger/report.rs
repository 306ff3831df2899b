//! What is read from the ledger on the disk: its proof, statements, a day rated
//! again, pages of entries. Every call blocks.

use crate::upstream::bill::eur8;
use penstock_contract::Done;
use penstock_ledger::{Act, Books, Chain, Day, Entry, Month, Statement, Wallet, lines};
use penstock_pricing::{Billing, PaidWith, Sold, Tariff, charge};
use penstock_storage::StoreError;
use penstock_storage::ledger::{BalanceRecord, LedgerStore, Sheet};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Findings told.
const FINDINGS: usize = 100;
/// How often a balance that changes while it is read is read again.
const AGAIN: u32 = 1_000;

/// Why a report was not made, in a sentence.
#[derive(Debug)]
pub struct Failed(pub String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(format!("The ledger cannot be read: {error}."))
    }
}

/// What a proof of the whole ledger found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Entries that fit.
    pub entries: u64,
    /// Accounts that have any.
    pub accounts: usize,
    /// Reserves without an end.
    pub open: usize,
    /// The first entry that does not fit: its number and why.
    pub misfit: Option<(u64, String)>,
    /// Balances that are not what the entries add up to.
    pub balances: Vec<String>,
    /// Where the second copy differs.
    pub copy: Vec<String>,
}

impl Proof {
    /// Whether everything fits.
    #[must_use]
    pub const fn good(&self) -> bool {
        self.misfit.is_none() && self.balances.is_empty() && self.copy.is_empty()
    }

    /// For machines.
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

/// Folds entries that are proven to follow each other.
#[derive(Default)]
struct Fold {
    chain: Chain,
    books: Books,
}

impl Fold {
    fn sheet(&mut self, sheet: &Sheet) -> Result<(), (u64, String)> {
        let month = &sheet.month;
        for line in lines(&sheet.text) {
            let number = self.chain.seq + 1;
            let fits = self.chain.open(line).and_then(|entry| self.books.take(&entry).map(|()| entry.at));
            let at = fits.map_err(|why| (number, why.to_string()))?;
            if Month::of(at).to_string() != *month {
                return Err((number, format!("it stands in the month {month} and is of another")));
            }
        }
        if sheet.last == self.chain.seq {
            Ok(())
        } else {
            Err((sheet.last, "its sheet is not whole".to_owned()))
        }
    }

    /// Takes what the store has behind the last entry taken.
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
        match store.walk(self.chain.seq, |sheet| self.sheet(sheet).map_err(Stop::Misfit)) {
            Ok(()) => Ok(None),
            Err(Stop::Misfit(misfit)) => Ok(Some(misfit)),
            Err(Stop::Store(error)) => Err(error.into()),
        }
    }
}

/// Recomputes everything from the first entry on: the chain, every balance, the
/// second copy. The ledger may be written to meanwhile.
///
/// # Errors
/// The store cannot be read.
pub fn verify(store: &LedgerStore) -> Result<Proof, Failed> {
    let mut fold = Fold::default();
    let mut proof = Proof { misfit: fold.on(store)?, ..Proof::default() };
    if proof.misfit.is_none() {
        proof.misfit = ends_at_tip(store, &mut fold)?;
    }
    if proof.misfit.is_none() {
        balances(store, &mut fold, &mut proof)?;
        proof.copy = store.compare()?;
    }
    proof.entries = fold.books.seq();
    proof.accounts = fold.books.accounts().keys().filter(|name| !name.is_empty()).count();
    proof.open = fold.books.open().len();
    Ok(proof)
}

/// The tip has to be the end of the chain.
fn ends_at_tip(store: &LedgerStore, fold: &mut Fold) -> Result<Option<(u64, String)>, Failed> {
    for _ in 0..AGAIN {
        let tip = store.tip()?.unwrap_or_default();
        if let Some(misfit) = fold.on(store)? {
            return Ok(Some(misfit));
        }
        if store.tip()?.unwrap_or_default() == tip {
            let same = (fold.chain.seq, fold.chain.hash) == (tip.seq, tip.hash);
            let missing = || (fold.chain.seq + 1, format!("the ledger should go on to {}", tip.seq));
            return Ok((!same).then(missing));
        }
    }
    Ok(None)
}

fn balances(store: &LedgerStore, fold: &mut Fold, proof: &mut Proof) -> Result<(), Failed> {
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
            // Written meanwhile: it was read at a moment that is over.
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

/// A balance, and the entry after which it was so.
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

/// An entry by its number.
///
/// # Errors
/// The store cannot be read.
pub fn find(store: &LedgerStore, number: u64) -> Result<Option<Entry>, Failed> {
    for month in store.months()? {
        let (sheets, _) = store.sheets(&month, number.saturating_sub(1))?;
        for line in sheets.first().into_iter().flat_map(|sheet| lines(&sheet.text)) {
            let entry = read(line)?;
            if entry.seq == number {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

fn read(line: &[u8]) -> Result<Entry, Failed> {
    let unreadable =
        |_| Failed("An entry of the ledger cannot be read; `penstock credits verify` names it.".into());
    Chain::glance(line).map(|(entry, _)| entry).map_err(unreadable)
}

/// The entries of a month, one after the other.
fn each(
    store: &LedgerStore,
    month: Month,
    mut take: impl FnMut(Entry) -> Result<(), Failed>,
) -> Result<(), Failed> {
    store.walk_month(&month.to_string(), 0, |sheet| lines(&sheet.text).try_for_each(|line| take(read(line)?)))
}

/// A page of the ledger's text behind an entry, and the number of its last one;
/// `None` at the end.
///
/// # Errors
/// The store cannot be read.
pub fn page(store: &LedgerStore, after: u64) -> Result<Option<(Vec<u8>, u64)>, Failed> {
    /// Bytes of a page, about.
    const PAGE: usize = 512 * 1024;
    for month in store.months()? {
        let (sheets, _) = store.sheets(&month, after)?;
        let mut text = Vec::new();
        let mut last = after;
        for sheet in &sheets {
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

/// A month added up, and the terms its charges refer to.
pub struct Monthly {
    /// Which month.
    pub month: Month,
    /// The sums.
    pub statement: Statement,
    /// Terms by id.
    pub terms: BTreeMap<Arc<str>, Value>,
}

/// Adds a month up, of one account or of all.
///
/// # Errors
/// The store cannot be read.
pub fn monthly(store: &LedgerStore, month: Month, account: Option<&str>) -> Result<Monthly, Failed> {
    let mut statement = Statement::default();
    each(store, month, |entry| {
        if account.is_none_or(|name| *entry.account == *name) {
            statement.take(&entry);
        }
        Ok(())
    })?;
    let mut terms = BTreeMap::new();
    for id in statement.terms() {
        terms.insert(id.clone(), terms_of(store, id)?);
    }
    Ok(Monthly { month, statement, terms })
}

fn terms_of(store: &LedgerStore, id: &str) -> Result<Value, Failed> {
    let missing = || Failed(format!("The terms {id} that a charge refers to are not in the ledger."));
    let number = store.number_of(&format!("terms {id}"))?.ok_or_else(missing)?;
    match find(store, number)?.ok_or_else(missing)?.act {
        Act::Terms { terms, .. } => serde_json::from_str(&terms).map_err(|_| missing()),
        _ => Err(missing()),
    }
}

/// A day rated again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rerated {
    /// Charges of the day.
    pub charges: u64,
    /// What they were, in micro-credits.
    pub credits: i128,
    /// What they were, in nano-kWh.
    pub energy: i128,
    /// What they were, in EUR.
    pub eur: Decimal,
    /// What they are when computed again: the same three.
    pub again: (i128, i128, Decimal),
    /// The first entry whose charge comes out different.
    pub differs: Option<u64>,
}

impl Rerated {
    /// For machines.
    #[must_use]
    pub fn told(&self, day: Day) -> Value {
        let sums = |credits: i128, energy: i128, eur: Decimal| {
            json!({
                "credits": Decimal::from_i128_with_scale(credits, 6).normalize().to_string(),
                "energy_kwh": Decimal::from_i128_with_scale(energy, 9).normalize().to_string(),
                "eur": eur.normalize().to_string(),
            })
        };
        json!({
            "day": day.to_string(),
            "charges": self.charges,
            "charged": sums(self.credits, self.energy, self.eur),
            "computed_again": sums(self.again.0, self.again.1, self.again.2),
            "same": self.differs.is_none(),
            "first_different_entry": self.differs,
        })
    }
}

/// Computes every charge of a day again, from its usage and its terms as they
/// stand in the ledger.
///
/// # Errors
/// The store cannot be read, or a charge refers to terms that are not there.
pub fn rerate(store: &LedgerStore, day: Day) -> Result<Rerated, Failed> {
    let mut known: BTreeMap<Arc<str>, (Tariff, Decimal)> = BTreeMap::new();
    let mut sums = Rerated::default();
    each(store, Month::of(day.start()), |entry| {
        let Act::Settle { wallet, amount, sale, .. } = &entry.act else { return Ok(()) };
        if Day::of(entry.at) != day {
            return Ok(());
        }
        if !known.contains_key(&sale.terms) {
            known.insert(sale.terms.clone(), tariff(&terms_of(store, &sale.terms)?)?);
        }
        let Some((tariff, eur_per_credit)) = known.get(&sale.terms) else { return Ok(()) };
        let done = match (sale.images, sale.seconds.is_zero()) {
            (0, true) => Done::Tokens(sale.usage),
            (0, false) => Done::Audio { seconds: sale.seconds },
            (count, _) => Done::Images { count, steps: None, pixels: None },
        };
        let sold: Sold = crate::upstream::bill::sold(&done);
        let pays = match wallet {
            Wallet::Credits => PaidWith::Credits,
            Wallet::Energy => PaidWith::Energy,
        };
        let kwh = sale.billable_kwh.unwrap_or_default();
        let again = charge(tariff, &sold, pays, sale.batch, kwh, *eur_per_credit);
        sums.charges += 1;
        sums.eur += sale.eur;
        sums.again.2 += again.eur;
        let computed = match wallet {
            Wallet::Credits => {
                sums.credits += i128::from(*amount);
                sums.again.0 += i128::from(again.credits.0);
                again.credits.0
            }
            Wallet::Energy => {
                sums.energy += i128::from(*amount);
                sums.again.1 += i128::from(again.energy.0);
                again.energy.0
            }
        };
        if (computed != *amount || eur8(again.eur) != eur8(sale.eur)) && sums.differs.is_none() {
            sums.differs = Some(entry.seq);
        }
        Ok(())
    })?;
    Ok(sums)
}

/// The tariff that terms state, and what a credit is.
fn tariff(terms: &Value) -> Result<(Tariff, Decimal), Failed> {
    let price =
        |name: &str| terms.get(name).and_then(Value::as_str).and_then(|text| text.parse::<Decimal>().ok());
    let unreadable = || Failed("The terms of a charge are not what this version reads.".to_owned());
    let billing = match terms.get("billing").and_then(Value::as_str) {
        Some("credits") => Billing::Credits,
        Some("energy") => Billing::Energy,
        _ => return Err(unreadable()),
    };
    let tariff = Tariff {
        input: price("input"),
        cached_input: price("cached_input"),
        output: price("output"),
        image: price("image"),
        minute: price("minute"),
        eur_per_kwh: price("eur_per_kwh").ok_or_else(unreadable)?,
        billing,
    };
    Ok((tariff, price("eur_per_credit").ok_or_else(unreadable)?))
}
