//! Statement of a period: sums of the period's entries by account and key, for invoices and sustainability reports.
//!
//! EUR amounts are added exactly and rounded once, to cents, where a row is displayed ([`StatementSums::rounded_eur`]).

use crate::entry::{CorrectedKind, EntryKind, LedgerEntry, SaleDetails, Wallet};
use rust_decimal::Decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Totals of one row of an account statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementSums {
    /// Number of charged requests.
    pub requests: u64,
    /// Number of requests without a charge: failed, or aborted.
    pub uncharged: u64,
    /// Number of charged requests whose tokens the gateway counted, because the provider reported none or an
    /// implausible number.
    pub counted: u64,
    /// Number of prompt tokens, cached ones included.
    pub input: u64,
    /// Number of prompt tokens from a provider's cache.
    pub cached: u64,
    /// Number of generated tokens, reasoning included.
    pub output: u64,
    /// Number of images that were sold.
    pub images: u64,
    /// Seconds of audio that were sold.
    pub seconds: Decimal,
    /// Energy at the meters of the data centers, kWh, failed attempts included.
    pub kwh: Decimal,
    /// CO2 equivalent, grams, location-based.
    pub carbon_g: Decimal,
    /// Water in litres.
    pub water_l: Decimal,
    /// Micro-credits charged, corrections subtracted.
    pub credits: i128,
    /// Nano-kWh charged to the energy wallet, corrections subtracted.
    pub energy: i128,
    /// EUR charged, corrections subtracted, eight decimal places.
    pub eur: Decimal,
    /// Micro-credits granted, corrections of grants included.
    pub granted_credits: i128,
    /// Nano-kWh granted, corrections of grants included.
    pub granted_energy: i128,
}

impl StatementSums {
    /// Returns the EUR amount rounded half-even to cents.
    #[must_use]
    pub fn rounded_eur(&self) -> Decimal {
        let mut cents = self.eur.round_dp(2);
        cents.rescale(2);
        cents
    }

    fn add_footprint(&mut self, kwh: Decimal, carbon_g: Decimal, water_l: Decimal) {
        self.kwh = self.kwh.saturating_add(kwh);
        self.carbon_g = self.carbon_g.saturating_add(carbon_g);
        self.water_l = self.water_l.saturating_add(water_l);
    }

    fn add_sale(&mut self, sale: &SaleDetails) {
        self.requests += 1;
        self.counted += u64::from(sale.usage.source.is_gateway_count());
        self.input = self.input.saturating_add(sale.usage.input);
        self.cached = self.cached.saturating_add(sale.usage.cached);
        self.output = self.output.saturating_add(sale.usage.output);
        self.images += u64::from(sale.images);
        self.seconds = self.seconds.saturating_add(sale.seconds);
        self.eur = self.eur.saturating_add(sale.eur);
    }

    fn add_charge(&mut self, wallet: Wallet, amount: i128) {
        match wallet {
            Wallet::Credits => self.credits += amount,
            Wallet::Energy => self.energy += amount,
        }
    }

    fn add_grant(&mut self, wallet: Wallet, amount: i128) {
        match wallet {
            Wallet::Credits => self.granted_credits += amount,
            Wallet::Energy => self.granted_energy += amount,
        }
    }

    /// Returns true if all sums are zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the amounts of a ledger entry to the totals.
    pub fn add_entry(&mut self, act: &EntryKind) {
        match act {
            EntryKind::Grant { wallet, amount, .. } => self.add_grant(*wallet, i128::from(*amount)),
            EntryKind::Settle { wallet, amount, sale, footprint, .. } => {
                self.add_sale(sale);
                self.add_footprint(footprint.kwh, footprint.carbon_g, footprint.water_l);
                self.add_charge(*wallet, i128::from(*amount));
            }
            EntryKind::Void { footprint, .. } => {
                self.uncharged += 1;
                self.add_footprint(footprint.kwh, footprint.carbon_g, footprint.water_l);
            }
            EntryKind::Correct { what, wallet, previous_amount: was, new_amount: instead, eur, .. } => {
                let change = i128::from(*instead) - i128::from(*was);
                match what {
                    CorrectedKind::Settle => {
                        self.add_charge(*wallet, change);
                        self.eur = self.eur.saturating_sub(*eur);
                    }
                    CorrectedKind::Grant => self.add_grant(*wallet, change),
                }
            }
            EntryKind::Reserve { .. } | EntryKind::Terms { .. } => {}
        }
    }
}

/// Statement row of one key of one account. Grants, and entries without a key, have an empty key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementRow {
    /// Account of the row.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// Sums of the row.
    pub sums: StatementSums,
}

/// Sums by account and key, and by account and model; and the ids of the pricing terms of the charges.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    rows: SumsByAccount,
    models: SumsByAccount,
    terms: BTreeSet<Arc<str>>,
}

impl Statement {
    /// Adds an entry.
    pub fn add_entry(&mut self, entry: &LedgerEntry) {
        let key = match &entry.kind {
            EntryKind::Settle { key, .. } | EntryKind::Void { key, .. } => key.clone(),
            EntryKind::Correct { key: Some(key), .. } => key.clone(),
            EntryKind::Grant { .. } | EntryKind::Correct { .. } => Arc::from(""),
            EntryKind::Reserve { .. } | EntryKind::Terms { .. } => return,
        };
        self.rows.entry((entry.account.clone(), key)).or_default().add_entry(&entry.kind);
        if let EntryKind::Settle { sale, .. } = &entry.kind {
            let of_model = (entry.account.clone(), sale.model.clone());
            self.models.entry(of_model).or_default().add_entry(&entry.kind);
            self.terms.insert(sale.terms.clone());
        }
    }

    /// Adds a correction to the sums of the model of the corrected charge. [`Statement::add_entry`] cannot do this: a
    /// correction does not name the model, and the charge may be from an earlier month.
    pub fn add_model_correction(&mut self, correction: &LedgerEntry, model: &Arc<str>) {
        if let EntryKind::Correct { what: CorrectedKind::Settle, .. } = &correction.kind {
            let of_model = (correction.account.clone(), model.clone());
            self.models.entry(of_model).or_default().add_entry(&correction.kind);
        }
    }

    /// Adds the sums of several entries of one account and key. `model` is the model of charges and of their
    /// corrections; `terms` is the id of the pricing terms of charges.
    pub fn add_key_sums(
        &mut self,
        (account, key): (&Arc<str>, &Arc<str>),
        model: Option<&Arc<str>>,
        terms: Option<&Arc<str>>,
        sums: &StatementSums,
    ) {
        self.rows.entry((account.clone(), key.clone())).or_default().add(sums);
        if let Some(model) = model {
            self.models.entry((account.clone(), model.clone())).or_default().add(sums);
        }
        self.terms.extend(terms.cloned());
    }

    /// Returns a row for each key of each account, in the order of their names.
    pub fn rows(&self) -> impl Iterator<Item = StatementRow> + '_ {
        self.rows.iter().map(|((account, key), sums)| StatementRow {
            account: account.clone(),
            key: key.clone(),
            sums: sums.clone(),
        })
    }

    /// Returns the rows of one account, by key.
    pub fn account_rows(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &StatementSums)> {
        of_account(&self.rows, account)
    }

    /// Returns the sums of an account's charges, by model.
    pub fn model_sums(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &StatementSums)> {
        of_account(&self.models, account)
    }

    /// Returns the accounts of the statement, in alphabetical order.
    #[must_use]
    pub fn accounts(&self) -> BTreeSet<Arc<str>> {
        self.rows.keys().map(|(account, _)| account.clone()).collect()
    }

    /// Returns the sums of one account over all its keys.
    #[must_use]
    pub fn account_sums(&self, name: &str) -> StatementSums {
        let mut sum = StatementSums::default();
        self.account_rows(name).for_each(|(_, sums)| sum.add(sums));
        sum
    }

    /// Returns the ids of the pricing terms of the charges.
    #[must_use]
    pub const fn pricing_terms_ids(&self) -> &BTreeSet<Arc<str>> {
        &self.terms
    }
}

/// Sums by account and a second name: key or model.
type SumsByAccount = BTreeMap<(Arc<str>, Arc<str>), StatementSums>;

/// Returns the sums of one account, by their second name (key or model).
fn of_account<'a>(
    sums: &'a SumsByAccount,
    account: &str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a StatementSums)> {
    let account: Arc<str> = account.into();
    sums.range((account.clone(), Arc::from(""))..)
        .take_while(move |((owner, _), _)| *owner == account)
        .map(|((_, other), sums)| (other, sums))
}

impl StatementSums {
    /// Adds the sums of another row.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.uncharged += other.uncharged;
        self.counted += other.counted;
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.output = self.output.saturating_add(other.output);
        self.images += other.images;
        self.seconds = self.seconds.saturating_add(other.seconds);
        self.add_footprint(other.kwh, other.carbon_g, other.water_l);
        self.credits += other.credits;
        self.energy += other.energy;
        self.eur = self.eur.saturating_add(other.eur);
        self.granted_credits += other.granted_credits;
        self.granted_energy += other.granted_energy;
    }
}
