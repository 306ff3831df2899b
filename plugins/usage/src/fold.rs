//! Contribution of one entry to a rollup.

use crate::cell::{HourNumber, RollupDimensions, UsageOutcome};
use crate::price_class::PriceClass;
use crate::sums::UsageSums;
use penstock_ledger::{CorrectedKind, EntryKind, LedgerEntry, SaleDetails};
use std::sync::Arc;

/// Model, provider and pricing terms of a charge, by which rollups are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeDimensions {
    /// Catalogue id of the model.
    pub model: Arc<str>,
    /// Provider that answered.
    pub provider: Arc<str>,
    /// Id of the pricing terms.
    pub terms: Arc<str>,
}

impl From<&SaleDetails> for ChargeDimensions {
    fn from(sale: &SaleDetails) -> Self {
        Self { model: sale.model.clone(), provider: sale.provider.clone(), terms: sale.terms.clone() }
    }
}

/// Returns the data-centre location in pricing terms, given as JSON; empty if they name none.
#[must_use]
pub fn data_center_location(terms: &str) -> Arc<str> {
    let terms: Option<serde_json::Value> = serde_json::from_str(terms).ok();
    let location = terms.as_ref().and_then(|terms| terms.get("location")?.as_str());
    location.unwrap_or_default().into()
}

/// Returns the rollup dimensions of an entry, and its sums; `None` for reserves and pricing terms, which are not
/// usage. `corrected` has the dimensions of the charge that a correction corrects; `location` returns the location of
/// pricing terms by their id.
pub fn entry_rollup(
    entry: &LedgerEntry,
    corrected: Option<&ChargeDimensions>,
    location: impl FnOnce(&Arc<str>) -> Arc<str>,
) -> Option<(RollupDimensions, UsageSums)> {
    let empty = || Arc::from("");
    let (outcome, key, work) = match &entry.kind {
        EntryKind::Settle { key, sale, .. } => {
            (UsageOutcome::Charged, key.clone(), Some(ChargeDimensions::from(&**sale)))
        }
        EntryKind::Void { key, why, .. } => (UsageOutcome::from_void_reason(why), key.clone(), None),
        EntryKind::Correct { what: CorrectedKind::Settle, key, .. } => {
            (UsageOutcome::Corrected, key.clone().unwrap_or_else(empty), corrected.cloned())
        }
        EntryKind::Correct { what: CorrectedKind::Grant, key, .. } => {
            (UsageOutcome::Granted, key.clone().unwrap_or_else(empty), None)
        }
        EntryKind::Grant { .. } => (UsageOutcome::Granted, empty(), None),
        EntryKind::Reserve { .. } | EntryKind::Terms { .. } => return None,
    };
    let location = work.as_ref().map_or_else(empty, |work| location(&work.terms));
    let ChargeDimensions { model, provider, terms } =
        work.unwrap_or_else(|| ChargeDimensions { model: empty(), provider: empty(), terms: empty() });
    let hour = HourNumber::from_unix(entry.at);
    let account = entry.account.clone();
    let price = match &entry.kind {
        EntryKind::Settle { wallet, sale, .. } => PriceClass::from_charge(*wallet, sale.batch),
        _ => PriceClass::default(),
    };
    let cell = RollupDimensions { account, hour, key, model, provider, location, terms, outcome, price };
    Some((cell, UsageSums::from_entry(&entry.kind)))
}
