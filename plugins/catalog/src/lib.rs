//! The catalogue: which models there are, under which names, and the pages in
//! which clients read of them.
//!
//! Promises: one item serves both dialects' client libraries; a page is a pure
//! function of catalogue, query and figures; numbers are exact decimals;
//! whoever follows a page's cursors comes to an end.

mod catalog;
mod item;
mod meta;
mod model;
mod object;
mod page;
mod pattern;
mod query;

pub use catalog::Catalog;
pub use item::one;
pub use meta::Detail;
pub use model::{Lifecycle, Model, Price};
pub use page::Figures;
pub use pattern::Pattern;
pub use query::{Query, Sort, detail};
