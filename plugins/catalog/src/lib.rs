//! Model catalogue: models, their names, and the pages in which clients read them.
//!
//! Guarantees: one item serves the client libraries of both dialects; a page is a pure function of catalogue, query and
//! figures; numbers are exact decimals; following a page's cursors always ends.

mod catalog;
mod item;
mod meta;
mod model;
mod object;
mod page;
mod pattern;
mod query;

pub use catalog::{Catalog, ModelMatch};
pub use item::serialize_item;
pub use meta::ItemDetail;
pub use model::{CatalogModel, CatalogPrice, LifecycleStage};
pub use page::LastHourFigures;
pub use pattern::AliasPattern;
pub use query::{CatalogQuery, SortOrder, parse_item_detail};
