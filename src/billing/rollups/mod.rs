//! Usage rollups: the writer changes those of hours in the commit of their entries ([`cache`]), and those of ended days
//! are built from them ([`days`]). A page or a statement reads them instead of the ledger ([`query`], [`answer`]). They
//! can be rebuilt from the ledger and compared with it ([`rebuild`]).

pub mod answer;
pub(super) mod cache;
mod day_check;
pub mod days;
mod hour_check;
pub mod query;
pub mod rebuild;
