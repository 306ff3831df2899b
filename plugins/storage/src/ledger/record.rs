//! Rows of the ledger's tip and of balances, as versioned JSON.

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::export::{decode_hex, encode_hex};

const VERSION: u32 = 1;

/// Tip of a ledger: its last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerTip {
    /// Number of the last entry of the chain.
    pub seq: u64,
    /// Hash of the last entry of the chain.
    pub hash: [u8; 32],
    /// Time of the last entry, Unix seconds.
    pub at: u64,
    /// Number of an entry such that all reserves before it have ended. After a crash, the search for open reserves
    /// starts at this entry.
    pub first_open: u64,
    /// True if the usage rollups contain every entry. Versions without rollups write false.
    pub are_rollups_complete: bool,
}

/// Balance of an account (the sum of its entries), or a change of a balance. Open reserves are not subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalanceRecord {
    /// Balance in micro-credits.
    pub credits: i64,
    /// Balance in nano-kWh.
    pub energy: i64,
}

#[derive(Serialize, Deserialize)]
struct TipRow {
    v: u32,
    seq: u64,
    hash: String,
    at: u64,
    low: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rollups: bool,
}

#[derive(Serialize, Deserialize)]
struct BalanceRow {
    v: u32,
    credits: i64,
    energy: i64,
}

impl LedgerTip {
    pub(crate) fn to_row(self) -> Result<Vec<u8>, StoreError> {
        let LedgerTip { seq, hash, at, first_open: low, are_rollups_complete: rollups } = self;
        encode(&TipRow { v: VERSION, seq, hash: encode_hex(&hash), at, low, rollups })
    }

    pub(crate) fn from_row(row: &[u8]) -> Result<LedgerTip, StoreError> {
        let tip: TipRow = decode(row, "the tip of the ledger")?;
        check_version(tip.v)?;
        let hash = decode_hex(&tip.hash).and_then(|hash| hash.try_into().ok());
        let hash = hash.ok_or_else(|| StoreError::corrupt("the tip of the ledger has no hash"))?;
        Ok(LedgerTip {
            seq: tip.seq,
            hash,
            at: tip.at,
            first_open: tip.low,
            are_rollups_complete: tip.rollups,
        })
    }
}

impl BalanceRecord {
    /// Returns the sum of two balances; each amount is saturated at the limits of 64 bits.
    #[must_use]
    pub const fn saturating_add(self, change: BalanceRecord) -> BalanceRecord {
        BalanceRecord {
            credits: self.credits.saturating_add(change.credits),
            energy: self.energy.saturating_add(change.energy),
        }
    }

    pub(crate) fn to_row(self) -> Result<Vec<u8>, StoreError> {
        encode(&BalanceRow { v: VERSION, credits: self.credits, energy: self.energy })
    }

    pub(crate) fn from_row(row: &[u8]) -> Result<BalanceRecord, StoreError> {
        let balance: BalanceRow = decode(row, "a balance")?;
        check_version(balance.v)?;
        Ok(BalanceRecord { credits: balance.credits, energy: balance.energy })
    }
}

fn encode(row: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(row).map_err(|_| StoreError::corrupt("a row cannot be written as JSON"))
}

fn decode<'a, T: Deserialize<'a>>(row: &'a [u8], record_name: &str) -> Result<T, StoreError> {
    serde_json::from_slice(row)
        .map_err(|_| StoreError::corrupt(format!("the row of {record_name} is in an unknown format")))
}

fn check_version(version: u32) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::Format { what: format!("ledger row version {version}") })
}
