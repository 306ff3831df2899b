//! Errors of an entry that is invalid or contradicts the previous entries.

/// Error of an entry: the first check that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Line in an invalid format, or over the length limit.
    #[error("it is not a valid entry of this format version")]
    InvalidFormat,
    /// Hash that does not match the previous entry.
    #[error("its hash does not match the previous entry")]
    HashMismatch,
    /// Number that is not the next one.
    #[error("its number is not the next number, {expected}")]
    UnexpectedNumber {
        /// Expected number.
        expected: u64,
    },
    /// Time that is before the time of the previous entry.
    #[error("it is older than the previous entry")]
    TimeDecreased,
    /// Negative amount, or a grant of zero.
    #[error("its amount is invalid")]
    InvalidAmount,
    /// Sum that overflows 64 bits.
    #[error("the balance would overflow 64 bits")]
    Overflow,
    /// Reserve for a request that has an open reserve.
    #[error("its request already has an open reserve")]
    AlreadyReserved,
    /// Settle or void without an open reserve: it never existed or has ended.
    #[error("its request has no open reserve")]
    NotReserved,
    /// Account, key, wallet or amount that differs from the reserve.
    #[error("it differs from its reserve")]
    ReserveMismatch,
    /// Correction of an entry that does not exist or was corrected before.
    #[error("the entry it corrects does not exist or was already corrected")]
    NotCorrectable,
}
