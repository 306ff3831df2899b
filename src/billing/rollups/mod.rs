//! Usage rollups: the writer changes hour rollups in the commit of their entries ([`cache`]), and day rollups of ended
//! days are built from hour rollups ([`days`]). A page or a statement reads rollups instead of the ledger ([`query`],
//! [`answer`]). All rollups can be rebuilt from the ledger and compared with it ([`rebuild`]).

pub mod answer;
pub(super) mod cache;
mod day_check;
pub mod days;
mod hour_check;
pub mod query;
pub mod rebuild;
