//! Class of the price of charged requests.

use penstock_ledger::Wallet;

/// Class of the price of charged requests: requests of the same class and tariff have the same unit prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceClass {
    /// Prices of the tariff, paid in credits. Rollups of an earlier version and requests without a charge have this
    /// class too.
    #[default]
    Standard,
    /// Half the prices of the tariff, for requests of batches, paid in credits.
    Batch,
    /// Full price per kWh, paid from the energy wallet.
    Energy,
    /// Full price per kWh but for only half of the energy, for requests of batches, paid from the energy wallet.
    BatchEnergy,
}

impl PriceClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Standard, Self::Batch, Self::Energy, Self::BatchEnergy];

    /// Returns the class of a charge.
    #[must_use]
    pub const fn from_charge(wallet: Wallet, batch: bool) -> Self {
        match (wallet, batch) {
            (Wallet::Credits, false) => Self::Standard,
            (Wallet::Credits, true) => Self::Batch,
            (Wallet::Energy, false) => Self::Energy,
            (Wallet::Energy, true) => Self::BatchEnergy,
        }
    }

    /// Returns the name used in rows and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Batch => "batch",
            Self::Energy => "energy",
            Self::BatchEnergy => "batch_energy",
        }
    }

    /// Returns the class with this name; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}
