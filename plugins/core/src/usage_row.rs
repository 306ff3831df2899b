//! Value of a usage rollup, as a row in the store: a JSON object with names and sums; zeros and empty names are
//! absent. Transactions of the store add to a row with [`add_usage_rows`].

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Version of the JSON encoding of a usage row.
pub const USAGE_ROW_VERSION: u32 = 1;

/// Error of a row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageRowError {
    /// Row in an unknown format.
    InvalidFormat,
    /// Row with a version above [`USAGE_ROW_VERSION`], as a later gateway writes it.
    NewerVersion,
}

impl UsageRowError {
    /// Returns the error of a row that cannot be read, depending on the version in its member `v`.
    #[must_use]
    pub fn from_unreadable_row(value: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct RowVersion {
            v: u32,
        }
        match serde_json::from_slice(value) {
            Ok(RowVersion { v }) if v > USAGE_ROW_VERSION => Self::NewerVersion,
            _ => Self::InvalidFormat,
        }
    }
}

/// Usage totals of a rollup, with the names (key, model, provider …) that its requests share.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageRow<'a> {
    /// Version of the row's JSON encoding.
    pub v: u32,
    /// Public id of the key.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub key: Cow<'a, str>,
    /// Catalogue id of the model.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub model: Cow<'a, str>,
    /// Provider that answered.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub provider: Cow<'a, str>,
    /// City and country of the provider's data centre.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub location: Cow<'a, str>,
    /// Id of the pricing terms.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub terms: Cow<'a, str>,
    /// Outcome that the requests of this row have in common.
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    /// True for cancelled requests, whose outcome is stored as `left`. Absent in rows of earlier versions, which do
    /// not distinguish them from other requests with the outcome `left`.
    #[serde(skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// Price class of charged requests, such as batch; empty for the standard price, and in rows of earlier versions.
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub price: Cow<'a, str>,
    /// Charged requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub requests: u64,
    /// Requests without a charge.
    #[serde(skip_serializing_if = "is_zero")]
    pub uncharged: u64,
    /// Charged requests whose tokens the gateway counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub counted: u64,
    /// Charged requests at the price of batches; absent in rows of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub batch: u64,
    /// Prompt tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub input: u64,
    /// Prompt tokens from a provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Generated tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub output: u64,
    /// Images.
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    /// Seconds of audio.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub seconds: Decimal,
    /// Energy, kWh.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub kwh: Decimal,
    /// Energy of failed attempts, kWh.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub failed_kwh: Decimal,
    /// CO2 equivalent, grams.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub g_co2: Decimal,
    /// Lower limit of the CO2 equivalent, grams.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub g_co2_low: Decimal,
    /// Upper limit of the CO2 equivalent, grams.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub g_co2_high: Decimal,
    /// Water, litres.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub litres: Decimal,
    /// Charges in EUR.
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    pub eur: Decimal,
    /// Charges in micro-credits, as text, since they may exceed 64 bits.
    #[serde(borrow, skip_serializing_if = "is_zero_or_empty")]
    pub credits: Cow<'a, str>,
    /// Charges to the energy wallet, in nano-kWh, as text.
    #[serde(borrow, skip_serializing_if = "is_zero_or_empty")]
    pub energy: Cow<'a, str>,
    /// Amount granted to the account, in micro-credits, as text.
    #[serde(borrow, skip_serializing_if = "is_zero_or_empty")]
    pub granted_credits: Cow<'a, str>,
    /// Amount granted to the account, in nano-kWh, as text.
    #[serde(borrow, skip_serializing_if = "is_zero_or_empty")]
    pub granted_energy: Cow<'a, str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn is_false(mark: &bool) -> bool {
    !*mark
}

fn is_zero_or_empty(text: &str) -> bool {
    text == "0" || text.is_empty()
}

impl<'a> UsageRow<'a> {
    /// Decodes a row.
    ///
    /// # Errors
    /// Returns the error if the row is in an unknown format or of a later version.
    pub fn parse(value: &'a [u8]) -> Result<UsageRow<'a>, UsageRowError> {
        match serde_json::from_slice::<UsageRow<'a>>(value) {
            Ok(row) if row.v == USAGE_ROW_VERSION => Ok(row),
            _ => Err(UsageRowError::from_unreadable_row(value)),
        }
    }

    /// Returns the row as JSON text, the value in the store.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Serialization cannot fail, because the struct contains only names, integers and decimals.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Adds the sums of another row with the same names (key, model, provider …). A sum that would overflow stays at
    /// the maximum of its type.
    fn add(&mut self, other: &UsageRow<'_>) -> Result<(), UsageRowError> {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.uncharged, other.uncharged),
            (&mut self.counted, other.counted),
            (&mut self.batch, other.batch),
            (&mut self.input, other.input),
            (&mut self.cached, other.cached),
            (&mut self.output, other.output),
            (&mut self.images, other.images),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in [
            (&mut self.seconds, other.seconds),
            (&mut self.kwh, other.kwh),
            (&mut self.failed_kwh, other.failed_kwh),
            (&mut self.g_co2, other.g_co2),
            (&mut self.g_co2_low, other.g_co2_low),
            (&mut self.g_co2_high, other.g_co2_high),
            (&mut self.litres, other.litres),
            (&mut self.eur, other.eur),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in [
            (&mut self.credits, &other.credits),
            (&mut self.energy, &other.energy),
            (&mut self.granted_credits, &other.granted_credits),
            (&mut self.granted_energy, &other.granted_energy),
        ] {
            *sum = parse_amount(sum)?.saturating_add(parse_amount(more)?).to_string().into();
        }
        Ok(())
    }
}

/// Parses an amount of a row; an empty text is 0.
///
/// # Errors
/// Returns `InvalidFormat` if it is not an integer of 128 bits.
pub fn parse_amount(text: &str) -> Result<i128, UsageRowError> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| UsageRowError::InvalidFormat) }
}

/// Returns the value of a row after an addition; a missing row counts as zero.
///
/// # Errors
/// Returns the error of the row or of the change if it cannot be read.
pub fn add_usage_rows(current: Option<&[u8]>, change: &[u8]) -> Result<Vec<u8>, UsageRowError> {
    let added = UsageRow::parse(change)?;
    let Some(current) = current else { return Ok(change.to_vec()) };
    let mut row = UsageRow::parse(current)?;
    row.add(&added)?;
    Ok(row.to_json())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sums_are_added_and_stay_within_their_types() {
        let row = |requests, credits: &str, kwh: &str| {
            let kwh = kwh.parse().unwrap();
            UsageRow {
                v: 1,
                model: "m".into(),
                requests,
                credits: credits.to_owned().into(),
                kwh,
                ..UsageRow::default()
            }
            .to_json()
        };
        let sum = add_usage_rows(Some(&row(2, "-5", "0.25")), &row(3, "9", "0.5"));
        assert_eq!(sum, Ok(row(5, "4", "0.75")));
        assert_eq!(add_usage_rows(None, &row(3, "9", "0.5")), Ok(row(3, "9", "0.5")));
        let most = i128::MAX.to_string();
        assert_eq!(
            add_usage_rows(Some(&row(u64::MAX, &most, "1")), &row(1, "1", "0")),
            Ok(row(u64::MAX, &most, "1"))
        );
    }

    #[test]
    fn unreadable_rows_are_refused() {
        let change = UsageRow { v: 1, requests: 1, ..UsageRow::default() }.to_json();
        for (row, error) in [
            (&b"damaged"[..], UsageRowError::InvalidFormat),
            (br#"{"v":1,"outcome":"","credits":"x"}"#, UsageRowError::InvalidFormat),
            (br#"{"v":2,"outcome":""}"#, UsageRowError::NewerVersion),
            (br#"{"v":2,"outcome":{"name":5}}"#, UsageRowError::NewerVersion),
            (b"{}", UsageRowError::InvalidFormat),
            (br#"{"v":0,"outcome":""}"#, UsageRowError::InvalidFormat),
            (br#"{"v":-1,"outcome":""}"#, UsageRowError::InvalidFormat),
        ] {
            assert_eq!(add_usage_rows(Some(row), &change), Err(error));
        }
    }
}
