//! Entries of the ledger: account, time and movement of an amount.

use penstock_core::TokenUsage;
use rust_decimal::Decimal;
use std::sync::Arc;

/// Wallet of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wallet {
    /// Wallet in micro-credits.
    Credits,
    /// Wallet in nano-kWh.
    Energy,
}

impl Wallet {
    /// All wallets of an account.
    pub const ALL: [Self; 2] = [Self::Credits, Self::Energy];

    /// Returns the name used in entries and in `paid_with`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }

    /// Returns the wallet with this name; `None` if the name is unknown.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wallet| wallet.name() == name)
    }
}

/// Sold work and its charge, with all data that is needed to recompute the charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleDetails {
    /// Catalogue id of the model that answered.
    pub model: Arc<str>,
    /// Provider that answered.
    pub provider: Arc<str>,
    /// Id of the pricing terms, see [`EntryKind::Terms`].
    pub terms: Arc<str>,
    /// True if the batch price was charged.
    pub batch: bool,
    /// Token usage; all zero where images or seconds are sold.
    pub usage: TokenUsage,
    /// Number of images that were sold.
    pub images: u32,
    /// Seconds of audio that were sold.
    pub seconds: Decimal,
    /// Billable energy in kWh; `None` if the model is not billed in energy.
    pub billable_kwh: Option<Decimal>,
    /// Charge in EUR, eight decimal places.
    pub eur: Decimal,
}

/// Energy, carbon and water of all attempts of a request, as reported in its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFootprint {
    /// Energy at the meter of the data center, kWh.
    pub kwh: Decimal,
    /// CO2 equivalent, grams, location-based.
    pub carbon_g: Decimal,
    /// Lower limit of `carbon_g`; zero in entries of versions that did not record the range.
    pub carbon_low_g: Decimal,
    /// Upper limit of `carbon_g`; zero in entries of versions that did not record the range.
    pub carbon_high_g: Decimal,
    /// Water in litres.
    pub water_l: Decimal,
    /// Energy of the failed attempts, which is a part of `kwh`. Zero in a void, in which all energy belongs to failed
    /// attempts.
    pub failed_kwh: Decimal,
}

/// Kind of the corrected entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorrectedKind {
    /// Correction of a charge.
    Settle,
    /// Correction of a grant.
    Grant,
}

/// Kind of a ledger entry, with its amounts. Amounts are in the unit of the wallet and never negative; members named
/// `eur` are in EUR, and that of a correction may be negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Credit to an account, bought or free.
    Grant {
        /// Idempotency key: a repeated request with the same id is not executed again.
        id: Arc<str>,
        /// Wallet that the amount belongs to.
        wallet: Wallet,
        /// Granted amount, more than zero.
        amount: i64,
        /// Reason given by the operator.
        note: Arc<str>,
        /// Author of the grant.
        by: Arc<str>,
    },
    /// Reservation of an amount before a request is sent to a provider.
    Reserve {
        /// Unique id of the request.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Wallet that the amount belongs to.
        wallet: Wallet,
        /// Reserved amount.
        amount: i64,
    },
    /// Charge for a completed request.
    Settle {
        /// Id of the request.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Wallet that both amounts belong to.
        wallet: Wallet,
        /// Charged amount.
        amount: i64,
        /// Amount of the reserve that ends, in the unit of the wallet.
        held: i64,
        /// Work that was sold, with the data behind the charge.
        sale: Box<SaleDetails>,
        /// Footprint of the request, failed attempts included.
        footprint: RequestFootprint,
    },
    /// End of a request without a charge.
    Void {
        /// Id of the request.
        request: Arc<str>,
        /// Public id of the key.
        key: Arc<str>,
        /// Wallet that the amount belongs to.
        wallet: Wallet,
        /// Amount of the reserve that ends, in the unit of the wallet.
        held: i64,
        /// Reason: `failed`, `left` (the client disconnected), `cancelled` or `interrupted` (a line of a batch),
        /// `crash`, or `dropped` (the gateway lost the request).
        why: Arc<str>,
        /// Energy, carbon and water of the failed attempts of the request.
        footprint: RequestFootprint,
    },
    /// Replacement of a charge or a grant by another amount.
    Correct {
        /// Idempotency key: a repeated request with the same id is not executed again.
        id: Arc<str>,
        /// Number of the corrected entry.
        of: u64,
        /// Kind of the corrected entry.
        what: CorrectedKind,
        /// Public id of the key of the corrected charge; `None` for a corrected grant.
        key: Option<Arc<str>>,
        /// Wallet of the corrected entry.
        wallet: Wallet,
        /// Amount before the correction, in the unit of the wallet.
        previous_amount: i64,
        /// Amount after the correction, in the unit of the wallet.
        new_amount: i64,
        /// Refund in EUR; negative if the customer pays more.
        eur: Decimal,
        /// Reason given by the operator.
        note: Arc<str>,
        /// Author of the correction.
        by: Arc<str>,
    },
    /// Pricing terms that later entries refer to: prices and location, as a JSON object.
    Terms {
        /// Id of the terms.
        id: Arc<str>,
        /// JSON of the terms.
        terms: Arc<str>,
    },
}

impl EntryKind {
    /// Returns the name used in the ledger.
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

/// Entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Number of the entry, consecutive within its chain, see [`penstock_core::entry_number`].
    pub seq: u64,
    /// Time in Unix seconds, not before the time of the previous entry of the chain.
    pub at: u64,
    /// Account of the entry; empty for terms, which apply to all accounts.
    pub account: Arc<str>,
    /// Movement of the entry.
    pub kind: EntryKind,
}
