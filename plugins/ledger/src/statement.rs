//! Statement of a period: sums of its entries by account and key, for invoices and sustainability reports.
//!
//! EUR amounts are added exactly and rounded once, to cents, where a row is displayed ([`Sums::invoiced`]).

use crate::entry::{Act, Drawn, Ending, Entry, Sale, Wallet};
use rust_decimal::Decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sums of a statement row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of charged requests.
    pub requests: u64,
    /// Number of requests without a charge: failed, or aborted.
    pub uncharged: u64,
    /// Number of requests whose tokens the gateway counted because the provider reported none.
    pub counted: u64,
    /// Number of prompt tokens, cached ones included.
    pub input: u64,
    /// Number of prompt tokens from a provider's cache.
    pub cached: u64,
    /// Number of generated tokens, reasoning included.
    pub output: u64,
    /// Number of images.
    pub images: u64,
    /// Seconds of audio.
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
    /// Micro-credits granted.
    pub granted_credits: i128,
    /// Nano-kWh granted.
    pub granted_energy: i128,
}

impl Sums {
    /// Returns the EUR amount rounded half-even to cents.
    #[must_use]
    pub fn invoiced(&self) -> Decimal {
        let mut cents = self.eur.round_dp(2);
        cents.rescale(2);
        cents
    }

    fn drawn(&mut self, drawn: &Drawn) {
        self.kwh = self.kwh.saturating_add(drawn.kwh);
        self.carbon_g = self.carbon_g.saturating_add(drawn.carbon_g);
        self.water_l = self.water_l.saturating_add(drawn.water_l);
    }

    fn sold(&mut self, sale: &Sale) {
        self.requests += 1;
        self.counted += u64::from(sale.usage.source.is_gateway());
        self.input = self.input.saturating_add(sale.usage.input);
        self.cached = self.cached.saturating_add(sale.usage.cached);
        self.output = self.output.saturating_add(sale.usage.output);
        self.images += u64::from(sale.images);
        self.seconds = self.seconds.saturating_add(sale.seconds);
        self.eur = self.eur.saturating_add(sale.eur);
    }

    fn charged(&mut self, wallet: Wallet, amount: i128) {
        match wallet {
            Wallet::Credits => self.credits += amount,
            Wallet::Energy => self.energy += amount,
        }
    }

    fn granted(&mut self, wallet: Wallet, amount: i128) {
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

    fn take(&mut self, act: &Act) {
        match act {
            Act::Grant { wallet, amount, .. } => self.granted(*wallet, i128::from(*amount)),
            Act::Settle { wallet, amount, sale, drawn, .. } => {
                self.sold(sale);
                self.drawn(drawn);
                self.charged(*wallet, i128::from(*amount));
            }
            Act::Void { drawn, .. } => {
                self.uncharged += 1;
                self.drawn(drawn);
            }
            Act::Correct { what, wallet, was, instead, eur, .. } => {
                let change = i128::from(*instead) - i128::from(*was);
                match what {
                    Ending::Settle => {
                        self.charged(*wallet, change);
                        self.eur = self.eur.saturating_sub(*eur);
                    }
                    Ending::Grant => self.granted(*wallet, change),
                }
            }
            Act::Reserve { .. } | Act::Terms { .. } => {}
        }
    }
}

/// Statement row of one key of one account. Grants, and entries without a key, have an empty key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Account of the row.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// Sums of the row.
    pub sums: Sums,
}

/// Sums by account and key, and the ids of the pricing terms of their charges.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    rows: ByAccount,
    models: ByAccount,
    terms: BTreeSet<Arc<str>>,
}

impl Statement {
    /// Adds an entry.
    pub fn take(&mut self, entry: &Entry) {
        let key = match &entry.act {
            Act::Settle { key, .. } | Act::Void { key, .. } => key.clone(),
            Act::Correct { key: Some(key), .. } => key.clone(),
            Act::Grant { .. } | Act::Correct { .. } => Arc::from(""),
            Act::Reserve { .. } | Act::Terms { .. } => return,
        };
        self.rows.entry((entry.account.clone(), key)).or_default().take(&entry.act);
        if let Act::Settle { sale, .. } = &entry.act {
            let of_model = (entry.account.clone(), sale.model.clone());
            self.models.entry(of_model).or_default().take(&entry.act);
            self.terms.insert(sale.terms.clone());
        }
    }

    /// Adds a correction to the model of the corrected charge. [`Statement::take`] cannot do this: a correction does
    /// not name the model, and the charge may be from an earlier month.
    pub fn take_model(&mut self, correction: &Entry, model: &Arc<str>) {
        if let Act::Correct { what: Ending::Settle, .. } = &correction.act {
            let of_model = (correction.account.clone(), model.clone());
            self.models.entry(of_model).or_default().take(&correction.act);
        }
    }

    /// Returns a row for each key of each account, by name.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|((account, key), sums)| Row {
            account: account.clone(),
            key: key.clone(),
            sums: sums.clone(),
        })
    }

    /// Returns the rows of one account, by key.
    pub fn keys(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &Sums)> {
        of(&self.rows, account)
    }

    /// Returns the sums of an account's charges, by model.
    pub fn models(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &Sums)> {
        of(&self.models, account)
    }

    /// Returns the accounts of the statement, by name.
    #[must_use]
    pub fn accounts(&self) -> BTreeSet<Arc<str>> {
        self.rows.keys().map(|(account, _)| account.clone()).collect()
    }

    /// Returns the sums of one account over all its keys.
    #[must_use]
    pub fn account(&self, name: &str) -> Sums {
        let mut sum = Sums::default();
        self.keys(name).for_each(|(_, sums)| sum.add(sums));
        sum
    }

    /// Returns the ids of the pricing terms of the charges.
    #[must_use]
    pub const fn terms(&self) -> &BTreeSet<Arc<str>> {
        &self.terms
    }
}

/// Sums by account and a second name: key or model.
type ByAccount = BTreeMap<(Arc<str>, Arc<str>), Sums>;

/// Returns the sums of one account.
fn of<'a>(sums: &'a ByAccount, account: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a Sums)> {
    let account: Arc<str> = account.into();
    sums.range((account.clone(), Arc::from(""))..)
        .take_while(move |((owner, _), _)| *owner == account)
        .map(|((_, other), sums)| (other, sums))
}

impl Sums {
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
        self.drawn(&Drawn { kwh: other.kwh, carbon_g: other.carbon_g, water_l: other.water_l });
        self.credits += other.credits;
        self.energy += other.energy;
        self.eur = self.eur.saturating_add(other.eur);
        self.granted_credits += other.granted_credits;
        self.granted_energy += other.granted_energy;
    }
}
