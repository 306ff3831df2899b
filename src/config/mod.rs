//! What users write, proven, and what the house uses.

mod changes;
mod check;
mod form;
mod load;
mod mistake;
mod near;
mod node;
pub mod raw;
mod read;
mod resolve;
mod schema;
mod secret;
pub mod settings;
mod single;
mod tree;

pub use changes::{Change, Document, changes};
pub use form::{duration, write_duration};
pub use load::{DEMO, Loaded, Reach, Source, load_text};
pub use mistake::{Mistake, Report};
pub use read::cause;
pub use resolve::Surroundings;
pub use schema::text as schema_text;
pub use secret::Secret;
pub use settings::*;

#[cfg(test)]
mod tests;
