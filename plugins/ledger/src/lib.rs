//! Ledger of all movements of credits and billed energy: append-only entries in a hash chain.
//!
//! | entry | from → to |
//! |---|---|
//! | grant | issued → customer |
//! | reserve | customer → held |
//! | settle | held → revenue, the rest → customer |
//! | void | held → customer |
//! | correct | revenue → customer (a charge), customer → issued (a grant) |
//! | terms | nothing: the prices and the location that charges refer to |
//!
//! Amounts are integers: micro-credits in the credits wallet, nano-kWh in the energy wallet. There are no floats.
//!
//! Invariants, checked by the tests against a model:
//! 1. The four books of a wallet add up to zero ([`BookTotals::sum`]).
//! 2. A balance is the sum of its entries; the available amount is the balance less the open reserves.
//! 3. A reserve ends once, with a settle or a void. Only open reserves are settled or voided.
//! 4. A correction is a separate entry, at most one for a charge or a grant.
//! 5. A changed, missing, added or moved entry breaks the chain from that entry on.
//!
//! A settle may exceed its reserve if the reserve was an estimate: the excess is taken from the customer in the same
//! entry and may leave a debt.

mod balances;
mod chain;
mod entry;
mod error;
mod posting;
mod statement;
mod wire;

pub use balances::{AccountWallets, ChainBalances, OpenReserve, OpenReserves, WalletBalance};
pub use chain::{EntryHash, GENESIS_HASH, HashChain, MAX_LINE_BYTES, split_lines};
pub use entry::{CorrectedKind, EntryKind, LedgerEntry, RequestFootprint, SaleDetails, Wallet};
pub use error::EntryError;
pub use penstock_core::calendar::{UtcDay, UtcMonth};
pub use posting::{BookPosting, BookTotals, WalletBook, entry_postings};
pub use statement::{Statement, StatementRow, StatementSums};
pub use wire::ENTRY_MEMBERS;
