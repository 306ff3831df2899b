//! Numbers of ledger entries. Each process that writes to the ledger has a chain of its own. The number of an entry
//! consists of the number of its chain and its position in that chain. Numbers stay below 2^53, up to which JSON
//! parsers read integers exactly:
//!
//! ```text
//! number = chain · 2^33 + sequence,   chain < 2^20,   sequence from 1
//! ```

/// Distance between the first numbers of two consecutive chains. A chain has one entry less, because sequences start at
/// 1.
const CHAIN_ENTRIES: u64 = 1 << 33;

/// Maximum number of chains of a ledger. A new gateway continues the lowest chain that no running gateway writes.
pub const MAX_CHAINS: u32 = 1 << 20;

/// Returns the number of the chain to which a ledger entry belongs.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "31 bits are left")]
pub const fn chain_of(number: u64) -> u32 {
    (number / CHAIN_ENTRIES) as u32
}

/// Returns the position of an entry in its chain, from 1; 0 for the number before the first entry.
#[must_use]
pub const fn sequence_in_chain(number: u64) -> u64 {
    number % CHAIN_ENTRIES
}

/// Returns the number before the first entry of a chain, with sequence 0.
#[must_use]
#[allow(clippy::cast_lossless, reason = "`from` is not const")]
pub const fn number_before_chain(chain: u32) -> u64 {
    chain as u64 * CHAIN_ENTRIES
}

/// Returns the highest number that an entry of a chain can have.
#[must_use]
pub const fn last_number_in_chain(chain: u32) -> u64 {
    number_before_chain(chain) + (CHAIN_ENTRIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_chains_are_exact_in_json() {
        let last = last_number_in_chain(MAX_CHAINS - 1);
        assert!(last < 1 << 53, "{last}");
        assert_eq!((chain_of(last), sequence_in_chain(last)), (MAX_CHAINS - 1, CHAIN_ENTRIES - 1));
        assert_eq!((chain_of(7), sequence_in_chain(7), number_before_chain(0)), (0, 7, 0));
        assert_eq!(last_number_in_chain(3) + 1, number_before_chain(4));
        assert_eq!((chain_of(number_before_chain(4)), sequence_in_chain(number_before_chain(4))), (4, 0));
    }
}
