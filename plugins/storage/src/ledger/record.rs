//! Rows of the ledger's tip and of balances, as versioned JSON.

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::export::{hex, unhex};

const VERSION: u32 = 1;

/// Tip of a ledger: its last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tip {
    /// Number of the last entry.
    pub seq: u64,
    /// Hash of the last entry.
    pub hash: [u8; 32],
    /// Time of the last entry, Unix seconds.
    pub at: u64,
    /// Number of an entry before which every reserve has ended: after a crash, open reserves are searched from it on.
    pub low: u64,
}

/// Sum of the entries of an account; open reserves are not subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceRecord {
    /// Balance in micro-credits.
    pub credits: i64,
    /// Balance in nano-kWh.
    pub energy: i64,
}

#[derive(Serialize, Deserialize)]
struct WrittenTip {
    v: u32,
    seq: u64,
    hash: String,
    at: u64,
    low: u64,
}

#[derive(Serialize, Deserialize)]
struct WrittenBalance {
    v: u32,
    credits: i64,
    energy: i64,
}

impl Tip {
    pub(crate) fn to_row(self) -> Result<Vec<u8>, StoreError> {
        let Tip { seq, hash, at, low } = self;
        write(&WrittenTip { v: VERSION, seq, hash: hex(&hash), at, low })
    }

    pub(crate) fn from_row(row: &[u8]) -> Result<Tip, StoreError> {
        let tip: WrittenTip = read(row, "the tip of the ledger")?;
        check(tip.v)?;
        let hash = unhex(&tip.hash).and_then(|hash| hash.try_into().ok());
        let hash = hash.ok_or_else(|| StoreError::corrupt("the tip of the ledger has no hash"))?;
        Ok(Tip { seq: tip.seq, hash, at: tip.at, low: tip.low })
    }
}

impl BalanceRecord {
    pub(crate) fn to_row(self) -> Result<Vec<u8>, StoreError> {
        write(&WrittenBalance { v: VERSION, credits: self.credits, energy: self.energy })
    }

    pub(crate) fn from_row(row: &[u8]) -> Result<BalanceRecord, StoreError> {
        let balance: WrittenBalance = read(row, "a balance")?;
        check(balance.v)?;
        Ok(BalanceRecord { credits: balance.credits, energy: balance.energy })
    }
}

fn write(row: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(row).map_err(|_| StoreError::corrupt("a row cannot be written as JSON"))
}

fn read<'a, T: Deserialize<'a>>(row: &'a [u8], what: &str) -> Result<T, StoreError> {
    serde_json::from_slice(row)
        .map_err(|_| StoreError::corrupt(format!("the row of {what} is in an unknown format")))
}

fn check(version: u32) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::Format { what: format!("ledger row version {version}") })
}
