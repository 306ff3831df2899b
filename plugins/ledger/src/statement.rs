//! A statement: the entries of a span added up by account and key, for an
//! invoice and for a sustainability report.
//!
//! EUR are added exactly and rounded once, to cents, where a row is shown
//! ([`Sums::invoiced`]).

use crate::entry::{Act, Drawn, Ending, Entry, Sale, Wallet};
use rust_decimal::Decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a row adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests that were charged.
    pub requests: u64,
    /// Requests that ended without a charge: failed, or cut short.
    pub uncharged: u64,
    /// Requests whose tokens the gateway counted, because the provider did not say.
    pub counted: u64,
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Prompt tokens from a provider's cache.
    pub cached: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Images.
    pub images: u64,
    /// Seconds of audio.
    pub seconds: Decimal,
    /// Energy at the buildings' meters, kWh, failed attempts included.
    pub kwh: Decimal,
    /// CO2 equivalent, grams, location-based.
    pub carbon_g: Decimal,
    /// Water, litres.
    pub water_l: Decimal,
    /// Micro-credits charged, corrections taken off.
    pub credits: i128,
    /// Nano-kWh charged to the energy wallet, corrections taken off.
    pub energy: i128,
    /// EUR charged, corrections taken off, eight places.
    pub eur: Decimal,
    /// Micro-credits granted.
    pub granted_credits: i128,
    /// Nano-kWh granted.
    pub granted_energy: i128,
}

impl Sums {
    /// EUR to the cent, half-even.
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

    /// Whether nothing was added.
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

/// One key of one account. Grants, and what belongs to no key, stand under an empty key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The account.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// What it adds up to.
    pub sums: Sums,
}

/// Sums by account and key, and the terms they refer to.
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

    /// Adds a correction to the model that the corrected charge was for. [`Statement::take`] does not know it: a
    /// correction does not say, and the charge may be of an earlier month.
    pub fn take_model(&mut self, correction: &Entry, model: &Arc<str>) {
        if let Act::Correct { what: Ending::Settle, .. } = &correction.act {
            let of_model = (correction.account.clone(), model.clone());
            self.models.entry(of_model).or_default().take(&correction.act);
        }
    }

    /// A row for each key of each account, by name.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|((account, key), sums)| Row {
            account: account.clone(),
            key: key.clone(),
            sums: sums.clone(),
        })
    }

    /// The rows of one account, by key.
    pub fn keys(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &Sums)> {
        of(&self.rows, account)
    }

    /// What an account's charges were for: sums by model.
    pub fn models(&self, account: &str) -> impl Iterator<Item = (&Arc<str>, &Sums)> {
        of(&self.models, account)
    }

    /// The accounts in it, by name.
    #[must_use]
    pub fn accounts(&self) -> BTreeSet<Arc<str>> {
        self.rows.keys().map(|(account, _)| account.clone()).collect()
    }

    /// The sums of one account over all its keys.
    #[must_use]
    pub fn account(&self, name: &str) -> Sums {
        let mut sum = Sums::default();
        self.keys(name).for_each(|(_, sums)| sum.add(sums));
        sum
    }

    /// Ids of the terms that its charges refer to.
    #[must_use]
    pub const fn terms(&self) -> &BTreeSet<Arc<str>> {
        &self.terms
    }
}

/// Sums by account and by something else.
type ByAccount = BTreeMap<(Arc<str>, Arc<str>), Sums>;

/// Those of one account.
fn of<'a>(sums: &'a ByAccount, account: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a Sums)> {
    let account: Arc<str> = account.into();
    sums.range((account.clone(), Arc::from(""))..)
        .take_while(move |((owner, _), _)| *owner == account)
        .map(|((_, other), sums)| (other, sums))
}

impl Sums {
    /// Adds another row.
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
