//! Why an entry does not fit the ones before it.

/// The first thing that is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Not a line of this format.
    #[error("it is not an entry that this version reads")]
    Unreadable,
    /// The chain is broken here.
    #[error("its hash does not follow from the entry before it")]
    Chain,
    /// A gap, or an entry out of place.
    #[error("its number is not the next one ({expected})")]
    Order {
        /// The number that belongs here.
        expected: u64,
    },
    /// Time goes back.
    #[error("it is older than the entry before it")]
    Time,
    /// An amount below zero, or a grant of nothing.
    #[error("its amount cannot be")]
    Amount,
    /// Sums beyond 64 bits.
    #[error("the balance would not fit its integer")]
    Overflow,
    /// A second reserve for a request that has one open.
    #[error("its request has an open reserve already")]
    Reserved,
    /// A settle or void without an open reserve: there was none, or it has ended.
    #[error("its request has no open reserve")]
    NotReserved,
    /// Another account, key, wallet or amount than the reserve's.
    #[error("it differs from its reserve")]
    Differs,
    /// A correction of an entry that is not there or was corrected before.
    #[error("what it corrects was corrected before, or is not there")]
    Corrected,
}
