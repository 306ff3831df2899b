//! Sums of a usage rollup: requests, tokens, amounts and footprint.

use penstock_ledger::{EntryKind, StatementSums};
use rust_decimal::Decimal;

/// Sums of a rollup: those of a statement, and also the number of batch requests, the lower and upper limits of the
/// carbon, and the energy of failed attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Sums that a statement has too: requests, tokens, amounts and footprint.
    pub billed: StatementSums,
    /// Number of charged requests at the price of batches. It is too low in rollups that an earlier version wrote.
    pub batch_requests: u64,
    /// Lower limit of the carbon, grams.
    pub carbon_low_g: Decimal,
    /// Upper limit of the carbon, grams.
    pub carbon_high_g: Decimal,
    /// Energy of failed attempts, kWh, which is a part of `billed.kwh`.
    pub failed_kwh: Decimal,
}

impl UsageSums {
    /// Returns the contribution of one ledger entry to the sums.
    #[must_use]
    pub fn from_entry(kind: &EntryKind) -> Self {
        let mut sums = Self::default();
        sums.billed.add_entry(kind);
        let (footprint, failed_kwh) = match kind {
            EntryKind::Settle { footprint, sale, .. } => {
                sums.batch_requests = u64::from(sale.batch);
                (footprint, footprint.failed_kwh)
            }
            EntryKind::Void { footprint, .. } => (footprint, footprint.kwh),
            EntryKind::Grant { .. }
            | EntryKind::Reserve { .. }
            | EntryKind::Correct { .. }
            | EntryKind::Terms { .. } => return sums,
        };
        sums.failed_kwh = failed_kwh;
        // Entries of earlier versions have no carbon range, so the figure itself is both the lower and the upper
        // limit.
        let ranged = !footprint.carbon_high_g.is_zero();
        sums.carbon_low_g = if ranged { footprint.carbon_low_g } else { footprint.carbon_g };
        sums.carbon_high_g = if ranged { footprint.carbon_high_g } else { footprint.carbon_g };
        sums
    }

    /// Adds the sums of another rollup to the sums of this one.
    pub fn add(&mut self, other: &Self) {
        self.billed.add(&other.billed);
        self.batch_requests = self.batch_requests.saturating_add(other.batch_requests);
        self.carbon_low_g = self.carbon_low_g.saturating_add(other.carbon_low_g);
        self.carbon_high_g = self.carbon_high_g.saturating_add(other.carbon_high_g);
        self.failed_kwh = self.failed_kwh.saturating_add(other.failed_kwh);
    }
}
