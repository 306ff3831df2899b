//! Usage rollups: the writer changes them in the commit of their entries ([`cache`]); a page or a statement reads them
//! instead of the ledger ([`query`], [`answer`]). They can be rebuilt from the ledger and compared with it
//! ([`rebuild`]).

pub mod answer;
pub(super) mod cache;
pub mod query;
pub mod rebuild;
