//! Keys of the ledger's rows, see `mod.rs`.

use penstock_core::entry_number::MAX_CHAINS;

use crate::StoreError;

/// Length of a month in keys and file names: `2026-11`.
const MONTH_BYTES: usize = 7;

/// Key prefix of the names of entries.
pub(super) const NAME_PREFIX: &[u8] = b"ledger\0";

/// Key of the tip of chain 0.
const FIRST_TIP: &[u8] = b"ledger";

/// Key prefix of the tips of the other chains.
pub(super) const TIP_PREFIX: &[u8] = b"ledger#";

/// Returns the key of a chain's tip.
pub(super) fn tip_key(chain: u32) -> Vec<u8> {
    if chain == 0 { FIRST_TIP.to_vec() } else { [TIP_PREFIX, chain.to_string().as_bytes()].concat() }
}

/// Key prefix of the claims of chains. The claim of a chain names the incarnation that writes the chain.
pub(super) const CLAIM_PREFIX: &[u8] = b"ledger/chain/";

/// Parses the chain number from the key of a tip, which begins with [`TIP_PREFIX`].
pub(super) fn chain_of_tip(key: &[u8]) -> Result<u32, StoreError> {
    parse_chain(TIP_PREFIX, key).filter(|chain| *chain > 0).ok_or_else(unknown_key)
}

/// Returns the key of a chain's claim.
pub(super) fn claim_key(chain: u32) -> Vec<u8> {
    [CLAIM_PREFIX, chain.to_string().as_bytes()].concat()
}

/// Parses the chain number from the key of a claim.
pub(super) fn chain_of_claim(key: &[u8]) -> Result<u32, StoreError> {
    parse_chain(CLAIM_PREFIX, key).ok_or_else(unknown_key)
}

/// Returns the key of the position of a chain's journal.
pub(super) fn journal_position_key(chain: u32) -> Vec<u8> {
    [b"ledger/journal/", chain.to_string().as_bytes()].concat()
}

fn parse_chain(prefix: &[u8], key: &[u8]) -> Option<u32> {
    let chain = std::str::from_utf8(key.strip_prefix(prefix)?).ok()?.parse().ok()?;
    (chain < MAX_CHAINS).then_some(chain)
}

fn unknown_key() -> StoreError {
    StoreError::corrupt("the key of a ledger chain is in an unknown format")
}

/// Returns the key of an entry name.
pub(super) fn entry_name_key(name: &str) -> Vec<u8> {
    [NAME_PREFIX, name.as_bytes()].concat()
}

/// Returns the key of the row with the length of the replica file of a chain and a month.
pub(super) fn month_length_key(chain: u32, month: &str) -> Vec<u8> {
    let key = [b"ledger/", month.as_bytes()].concat();
    if chain == 0 { key } else { [key.as_slice(), b"#", chain.to_string().as_bytes()].concat() }
}

/// Returns the key of a block: its month and the number of its last entry, which begins with its chain.
pub(super) fn block_key(month: &str, last: u64) -> Result<Vec<u8>, StoreError> {
    if month.len() != MONTH_BYTES {
        return Err(StoreError::InvalidArgument { what: "a month is written like 2026-11" });
    }
    Ok([month.as_bytes(), &last.to_be_bytes()].concat())
}

/// Splits the key of a block into month and entry number.
pub(super) fn split_block_key(key: &[u8]) -> Result<(String, u64), StoreError> {
    let broken = || StoreError::corrupt("the key of a ledger block is in an unknown format");
    let (month, last) = key.split_at_checked(MONTH_BYTES).ok_or_else(broken)?;
    let month = String::from_utf8(month.to_vec()).map_err(|_| broken())?;
    Ok((month, u64::from_be_bytes(last.try_into().map_err(|_| broken())?)))
}

/// Returns the name of the replica file of a chain and a month.
pub(super) fn file_name(chain: u32, month: &str) -> String {
    if chain == 0 { format!("{month}.jsonl") } else { format!("{month}.{chain}.jsonl") }
}

/// Parses the chain and the month from the name of a replica file; `None` for other file names.
#[must_use]
pub fn parse_file_name(name: &str) -> Option<(u32, &str)> {
    let stem = name.strip_suffix(".jsonl")?;
    let (month, chain) = match stem.split_once('.') {
        Some((month, chain)) => (month, chain.parse().ok().filter(|chain| (1..MAX_CHAINS).contains(chain))?),
        None => (stem, 0),
    };
    (file_name(chain, month) == name).then_some((chain, month))
}
