//! Configuration: the written form, its validation, and the settings of the gateway.

mod changes;
mod check;
mod diagnostic;
mod load;
pub mod raw;
mod read;
mod resolve;
mod scalar_check;
mod schema;
mod secret;
pub mod settings;
mod spanned_toml;
mod suggest;
mod units;

pub use changes::{Change, Document, changes};
pub use diagnostic::{Mistake, Report};
pub use load::{DEMO, Loaded, Reach, Source, load_text};
pub use read::cause;
pub use resolve::Surroundings;
pub use schema::text as schema_text;
pub use secret::Secret;
pub use settings::*;
pub use units::{duration, write_duration};

#[cfg(test)]
mod tests;

/// Reads the configuration again, for a reload.
pub type ConfigSource = std::sync::Arc<dyn Fn() -> Result<Loaded, String> + Send + Sync>;
