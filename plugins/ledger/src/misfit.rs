//! Errors of an entry that contradicts the previous entries.

/// Error of an entry: the first check that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Line in an invalid format, or over the length limit.
    #[error("it is not a valid entry of this format version")]
    Unreadable,
    /// Hash that does not match the previous entry.
    #[error("its hash does not match the previous entry")]
    Chain,
    /// Number that is not the next one.
    #[error("its number is not the next number, {expected}")]
    Order {
        /// Expected number.
        expected: u64,
    },
    /// Time before that of the previous entry.
    #[error("it is older than the previous entry")]
    Time,
    /// Negative amount, or a grant of zero.
    #[error("its amount is invalid")]
    Amount,
    /// Sum that overflows 64 bits.
    #[error("the balance would overflow 64 bits")]
    Overflow,
    /// Reserve for a request that has an open reserve.
    #[error("its request already has an open reserve")]
    Reserved,
    /// Settle or void without an open reserve: it never existed or has ended.
    #[error("its request has no open reserve")]
    NotReserved,
    /// Account, key, wallet or amount other than those of the reserve.
    #[error("it differs from its reserve")]
    Differs,
    /// Correction of an entry that does not exist or was corrected before.
    #[error("the entry it corrects does not exist or was already corrected")]
    Corrected,
}
