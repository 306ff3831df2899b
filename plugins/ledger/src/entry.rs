//! An entry: who, when, and what moved.

use penstock_contract::Usage;
use rust_decimal::Decimal;
use std::sync::Arc;

/// What an amount is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wallet {
    /// Micro-credits.
    Credits,
    /// Nano-kWh.
    Energy,
}

impl Wallet {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Credits, Self::Energy];

    /// The name in entries and in `paid_with`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }

    /// The wallet of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wallet| wallet.name() == name)
    }
}

/// What was sold, and for how much: enough to compute the charge again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sale {
    /// The catalogue's id of the model that answered.
    pub model: Arc<str>,
    /// The provider that answered.
    pub provider: Arc<str>,
    /// Id of the terms it was sold under, see [`Act::Terms`].
    pub terms: Arc<str>,
    /// Batch price.
    pub batch: bool,
    /// Tokens; all zero where images or seconds are sold.
    pub usage: Usage,
    /// Images.
    pub images: u32,
    /// Seconds of audio.
    pub seconds: Decimal,
    /// Energy for the bill, kWh; where the model is billed in energy.
    pub billable_kwh: Option<Decimal>,
    /// The charge in EUR, eight places.
    pub eur: Decimal,
}

/// What all attempts of a request drew, as its answer reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Energy at the building's meter, kWh.
    pub kwh: Decimal,
    /// CO2 equivalent, grams, by the place of the grid.
    pub carbon_g: Decimal,
    /// Water, litres.
    pub water_l: Decimal,
}

/// What a correction is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A charge.
    Settle,
    /// A grant.
    Grant,
}

/// What an entry does. Amounts are of its wallet and never below zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// An account is given an amount, bought or free.
    Grant {
        /// Name that makes asking again safe; unique.
        id: Arc<str>,
        /// Which wallet.
        wallet: Wallet,
        /// More than zero.
        amount: i64,
        /// Why, in the operator's words.
        note: Arc<str>,
        /// Who asked for it.
        by: Arc<str>,
    },
    /// An amount is set aside before a request is sent to a provider.
    Reserve {
        /// The request's id; unique.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Which wallet.
        wallet: Wallet,
        /// How much.
        amount: i64,
    },
    /// A request was answered and is paid for.
    Settle {
        /// The request's id.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Which wallet.
        wallet: Wallet,
        /// The charge.
        amount: i64,
        /// What was reserved.
        held: i64,
        /// What was sold.
        sale: Box<Sale>,
        /// What it drew, failed attempts included.
        drawn: Drawn,
    },
    /// A request ended without a charge.
    Void {
        /// The request's id.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Which wallet.
        wallet: Wallet,
        /// What was reserved.
        held: i64,
        /// Why: `failed`, `left`, `crash`.
        why: Arc<str>,
        /// What failed attempts drew.
        drawn: Drawn,
    },
    /// A charge or a grant is taken back and another amount put in its place.
    Correct {
        /// Name that makes asking again safe; unique.
        id: Arc<str>,
        /// The number of the corrected entry.
        of: u64,
        /// What that is.
        what: Ending,
        /// Its key, if it is a charge.
        key: Option<Arc<str>>,
        /// Its wallet.
        wallet: Wallet,
        /// Its amount.
        was: i64,
        /// What counts instead.
        instead: i64,
        /// What the customer gets back in EUR; below zero if it pays more.
        eur: Decimal,
        /// Why, in the operator's words.
        note: Arc<str>,
        /// Who asked for it.
        by: Arc<str>,
    },
    /// Terms that later entries refer to: prices and place, as a JSON object.
    Terms {
        /// Their id.
        id: Arc<str>,
        /// The terms themselves.
        terms: Arc<str>,
    },
}

impl Act {
    /// The name in the ledger.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Grant { .. } => "grant",
            Self::Reserve { .. } => "reserve",
            Self::Settle { .. } => "settle",
            Self::Void { .. } => "void",
            Self::Correct { .. } => "correct",
            Self::Terms { .. } => "terms",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number: 1 for the first, then one more each.
    pub seq: u64,
    /// Unix seconds; never less than the entry before it.
    pub at: u64,
    /// Whose; empty for terms, which are everybody's.
    pub account: Arc<str>,
    /// What it does.
    pub act: Act,
}
