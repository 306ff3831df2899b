//! Why an entry does not fit the ones before it.

/// The first thing that is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Not a line of this format.
    #[error("it is not a valid entry of this format version")]
    Unreadable,
    /// The chain is broken here.
    #[error("its hash does not match the previous entry")]
    Chain,
    /// A gap, or an entry out of place.
    #[error("its number is not the next number, {expected}")]
    Order {
        /// The number that belongs here.
        expected: u64,
    },
    /// Time goes back.
    #[error("it is older than the previous entry")]
    Time,
    /// An amount below zero, or a grant of nothing.
    #[error("its amount is invalid")]
    Amount,
    /// Sums beyond 64 bits.
    #[error("the balance would overflow 64 bits")]
    Overflow,
    /// A second reserve for a request that has one open.
    #[error("its request already has an open reserve")]
    Reserved,
    /// A settle or void without an open reserve: there was none, or it has ended.
    #[error("its request has no open reserve")]
    NotReserved,
    /// Another account, key, wallet or amount than the reserve's.
    #[error("it differs from its reserve")]
    Differs,
    /// A correction of an entry that is not there or was corrected before.
    #[error("the entry it corrects does not exist or was already corrected")]
    Corrected,
}
