//! Rows of rollups in a store.
//!
//! ```text
//! key    account | NUL | hour (4 bytes, big-endian) | first 16 bytes of the SHA-256 of the other dimensions
//! value  JSON object with the other dimensions and the sums; zeros and empty names are absent
//! ```

use crate::cell::{RollupCell, UsageHour, UsageOutcome};
use crate::sums::UsageSums;
use penstock_ledger::StatementSums;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

const VERSION: u32 = 1;
/// Bytes of a key after its account and the NUL.
const TAIL_BYTES: usize = 20;

/// Error of a row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Key or value in an unknown format.
    #[error("a usage rollup is in an unknown format")]
    Format,
    /// Row of a later version.
    #[error("a usage rollup is of a later version")]
    Version,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct RowJson<'a> {
    v: u32,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    key: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    model: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    provider: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    location: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    terms: Cow<'a, str>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    #[serde(skip_serializing_if = "is_zero")]
    requests: u64,
    #[serde(skip_serializing_if = "is_zero")]
    uncharged: u64,
    #[serde(skip_serializing_if = "is_zero")]
    counted: u64,
    #[serde(skip_serializing_if = "is_zero")]
    input: u64,
    #[serde(skip_serializing_if = "is_zero")]
    cached: u64,
    #[serde(skip_serializing_if = "is_zero")]
    output: u64,
    #[serde(skip_serializing_if = "is_zero")]
    images: u64,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    seconds: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    kwh: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    failed_kwh: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    g_co2: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    g_co2_low: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    g_co2_high: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    litres: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero")]
    eur: Decimal,
    /// Integers beyond 64 bits as text.
    #[serde(borrow, skip_serializing_if = "is_nought")]
    credits: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_nought")]
    energy: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_nought")]
    granted_credits: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "is_nought")]
    granted_energy: Cow<'a, str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_nought(text: &str) -> bool {
    text == "0" || text.is_empty()
}

/// Returns the key prefix of all rows of an account; the empty account is the whole gateway.
#[must_use]
pub fn account_prefix(account: &str) -> Vec<u8> {
    [account.as_bytes(), b"\0"].concat()
}

/// Returns the key before the first row of an hour.
#[must_use]
pub fn hour_key(account: &str, hour: UsageHour) -> Vec<u8> {
    [&account_prefix(account), &hour.0.to_be_bytes()[..]].concat()
}

/// Returns the key of a cell's row.
#[must_use]
pub fn row_key(cell: &RollupCell) -> Vec<u8> {
    let mut hash = Sha256::new();
    for name in [&cell.key, &cell.model, &cell.provider, &cell.location, &cell.terms] {
        hash.update(name.as_bytes());
        hash.update(b"\0");
    }
    hash.update(cell.outcome.name().as_bytes());
    let hash = hash.finalize();
    let mut key = hour_key(&cell.account, cell.hour);
    key.extend(hash.iter().take(TAIL_BYTES - 4));
    key
}

/// Returns the account and the hour of a row.
///
/// # Errors
/// Returns an error if the key has another form.
pub fn hour_of_key(key: &[u8]) -> Result<(&str, UsageHour), RowError> {
    let split = key.len().checked_sub(TAIL_BYTES + 1).ok_or(RowError::Format)?;
    let (account, tail) = key.split_at_checked(split).ok_or(RowError::Format)?;
    let hour = tail.strip_prefix(b"\0").and_then(|tail| tail.first_chunk::<4>()).ok_or(RowError::Format)?;
    let account = std::str::from_utf8(account).map_err(|_| RowError::Format)?;
    Ok((account, UsageHour(u32::from_be_bytes(*hour))))
}

/// Encodes the value of a row.
#[must_use]
pub fn encode(cell: &RollupCell, sums: &UsageSums) -> Vec<u8> {
    let of = &sums.billed;
    let row = RowJson {
        v: VERSION,
        key: (&*cell.key).into(),
        model: (&*cell.model).into(),
        provider: (&*cell.provider).into(),
        location: (&*cell.location).into(),
        terms: (&*cell.terms).into(),
        outcome: cell.outcome.name().into(),
        requests: of.requests,
        uncharged: of.uncharged,
        counted: of.counted,
        input: of.input,
        cached: of.cached,
        output: of.output,
        images: of.images,
        seconds: of.seconds,
        kwh: of.kwh,
        failed_kwh: sums.failed_kwh,
        g_co2: of.carbon_g,
        g_co2_low: sums.carbon_low_g,
        g_co2_high: sums.carbon_high_g,
        litres: of.water_l,
        eur: of.eur,
        credits: of.credits.to_string().into(),
        energy: of.energy.to_string().into(),
        granted_credits: of.granted_credits.to_string().into(),
        granted_energy: of.granted_energy.to_string().into(),
    };
    // A struct of names, integers and decimals always serializes.
    serde_json::to_vec(&row).unwrap_or_default()
}

/// Decodes a row.
///
/// # Errors
/// Returns an error if key or value have another form.
pub fn decode(key: &[u8], value: &[u8]) -> Result<(RollupCell, UsageSums), RowError> {
    let (account, hour) = hour_of_key(key)?;
    let row: RowJson<'_> = serde_json::from_slice(value).map_err(|_| RowError::Format)?;
    if row.v != VERSION {
        return Err(RowError::Version);
    }
    let integer =
        |text: &str| if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| RowError::Format) };
    let cell = RollupCell {
        account: account.into(),
        hour,
        key: (&*row.key).into(),
        model: (&*row.model).into(),
        provider: (&*row.provider).into(),
        location: (&*row.location).into(),
        terms: (&*row.terms).into(),
        outcome: UsageOutcome::from_name(&row.outcome).ok_or(RowError::Format)?,
    };
    let billed = StatementSums {
        requests: row.requests,
        uncharged: row.uncharged,
        counted: row.counted,
        input: row.input,
        cached: row.cached,
        output: row.output,
        images: row.images,
        seconds: row.seconds,
        kwh: row.kwh,
        carbon_g: row.g_co2,
        water_l: row.litres,
        credits: integer(&row.credits)?,
        energy: integer(&row.energy)?,
        eur: row.eur,
        granted_credits: integer(&row.granted_credits)?,
        granted_energy: integer(&row.granted_energy)?,
    };
    let (carbon_low_g, carbon_high_g) = (row.g_co2_low, row.g_co2_high);
    Ok((cell, UsageSums { billed, carbon_low_g, carbon_high_g, failed_kwh: row.failed_kwh }))
}
