//! Rows of rollups in a store.
//!
//! ```text
//! key    account | NUL | hour (4 bytes, big-endian) | first 16 bytes of the SHA-256 of the other dimensions
//! value  JSON object with the other dimensions and the sums; zeros and empty names are absent
//! ```

use crate::cell::{HourNumber, RollupDimensions, UsageOutcome};
use crate::price_class::PriceClass;
use crate::sums::UsageSums;
use penstock_core::usage_row::{USAGE_ROW_VERSION, UsageRow, UsageRowError, parse_amount};
use penstock_ledger::StatementSums;
use sha2::{Digest, Sha256};

/// Number of bytes of a row key after the account and the NUL.
const TAIL_BYTES: usize = 20;

/// Error of a row that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Key or value in an unknown format.
    #[error("a usage rollup is in an unknown format")]
    InvalidFormat,
    /// Row that a later version of the program has written.
    #[error("a usage rollup is of a later version")]
    NewerVersion,
}

impl From<UsageRowError> for RowError {
    fn from(error: UsageRowError) -> Self {
        match error {
            UsageRowError::InvalidFormat => Self::InvalidFormat,
            UsageRowError::NewerVersion => Self::NewerVersion,
        }
    }
}

/// Returns the key prefix of all rows of an account; the empty account is the whole gateway.
#[must_use]
pub fn account_key_prefix(account: &str) -> Vec<u8> {
    [account.as_bytes(), b"\0"].concat()
}

/// Returns the key prefix of the rows of an hour: the exclusive start of a scan of this hour and later ones.
#[must_use]
pub fn hour_key_prefix(account: &str, hour: HourNumber) -> Vec<u8> {
    [&account_key_prefix(account), &hour.0.to_be_bytes()[..]].concat()
}

/// Returns the outcome name that a row stores. Earlier versions cannot read rows with an unknown outcome, so a
/// cancelled request is stored as `left`, with an additional member that marks it as cancelled.
const fn stored_outcome(outcome: UsageOutcome) -> &'static str {
    match outcome {
        UsageOutcome::Cancelled => UsageOutcome::Disconnected.name(),
        other => other.name(),
    }
}

/// Returns the key of the row of a rollup.
#[must_use]
pub fn row_key(cell: &RollupDimensions) -> Vec<u8> {
    let mut hash = Sha256::new();
    for name in [&cell.key, &cell.model, &cell.provider, &cell.location, &cell.terms] {
        hash.update(name.as_bytes());
        hash.update(b"\0");
    }
    hash.update(stored_outcome(cell.outcome).as_bytes());
    if cell.outcome == UsageOutcome::Cancelled {
        hash.update(b"\0cancelled");
    }
    // The default class adds no bytes to the hash, so its keys are the same as in earlier versions, which had no
    // classes.
    if cell.price != PriceClass::default() {
        hash.update(b"\0");
        hash.update(cell.price.name().as_bytes());
    }
    let hash = hash.finalize();
    let mut key = hour_key_prefix(&cell.account, cell.hour);
    key.extend(hash.iter().take(TAIL_BYTES - 4));
    key
}

/// Returns the account and the hour in the key of a row.
///
/// # Errors
/// Returns an error if the key has another form.
pub fn parse_row_key(key: &[u8]) -> Result<(&str, HourNumber), RowError> {
    let split = key.len().checked_sub(TAIL_BYTES + 1).ok_or(RowError::InvalidFormat)?;
    let (account, tail) = key.split_at_checked(split).ok_or(RowError::InvalidFormat)?;
    let hour =
        tail.strip_prefix(b"\0").and_then(|tail| tail.first_chunk::<4>()).ok_or(RowError::InvalidFormat)?;
    let account = std::str::from_utf8(account).map_err(|_| RowError::InvalidFormat)?;
    Ok((account, HourNumber(u32::from_be_bytes(*hour))))
}

/// Encodes the value of a rollup's row: its dimensions and sums as JSON.
#[must_use]
pub fn encode_row_value(cell: &RollupDimensions, sums: &UsageSums) -> Vec<u8> {
    let of = &sums.billed;
    let row = UsageRow {
        v: USAGE_ROW_VERSION,
        key: (&*cell.key).into(),
        model: (&*cell.model).into(),
        provider: (&*cell.provider).into(),
        location: (&*cell.location).into(),
        terms: (&*cell.terms).into(),
        outcome: stored_outcome(cell.outcome).into(),
        cancelled: cell.outcome == UsageOutcome::Cancelled,
        price: if cell.price == PriceClass::default() { "".into() } else { cell.price.name().into() },
        requests: of.requests,
        uncharged: of.uncharged,
        counted: of.counted,
        batch: sums.batch_requests,
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
    row.to_json()
}

/// Decodes a row.
///
/// # Errors
/// Returns an error if key or value have another form.
pub fn decode_row(key: &[u8], value: &[u8]) -> Result<(RollupDimensions, UsageSums), RowError> {
    let (account, hour) = parse_row_key(key)?;
    let row = UsageRow::parse(value)?;
    let cell = RollupDimensions {
        account: account.into(),
        hour,
        key: (&*row.key).into(),
        model: (&*row.model).into(),
        provider: (&*row.provider).into(),
        location: (&*row.location).into(),
        terms: (&*row.terms).into(),
        outcome: match row.cancelled {
            true => UsageOutcome::Cancelled,
            false => UsageOutcome::from_name(&row.outcome).ok_or(RowError::InvalidFormat)?,
        },
        price: match &*row.price {
            "" => PriceClass::default(),
            name => PriceClass::from_name(name).ok_or(RowError::InvalidFormat)?,
        },
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
        credits: parse_amount(&row.credits)?,
        energy: parse_amount(&row.energy)?,
        eur: row.eur,
        granted_credits: parse_amount(&row.granted_credits)?,
        granted_energy: parse_amount(&row.granted_energy)?,
    };
    let sums = UsageSums {
        billed,
        batch_requests: row.batch,
        carbon_low_g: row.g_co2_low,
        carbon_high_g: row.g_co2_high,
        failed_kwh: row.failed_kwh,
    };
    Ok((cell, sums))
}
