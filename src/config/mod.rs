//! Configuration: the written form, its validation, and the settings of the gateway.

mod changes;
mod check;
mod diagnostic;
mod load;
mod parallel;
pub mod pem_files;
pub mod raw;
mod read;
mod resolve;
mod scalar_check;
mod schema;
mod secret;
pub mod settings;
mod spanned_deserializer;
mod spanned_toml;
mod suggest;
mod tree;
mod units;

pub use changes::{ConfigChange, ConfigDocument, diff_settings};
pub use diagnostic::{Diagnostic, Diagnostics, format_mistakes};
pub use load::{ConfigSource, DEMO_CONFIG, GatewayAccess, LoadedConfig, load_text};
pub use parallel::ParallelValue;
pub use penstock_regular_file::describe_io_error;
pub use resolve::ResolveEnv;
pub use resolve::url::parse_base_url;
pub use schema::schema_json;
pub use secret::SecretText;
pub use settings::*;
pub use units::{format_duration, is_too_long_duration, parse_duration};

#[cfg(test)]
mod tests;

/// Function that reads the configuration again, for a reload.
pub type ConfigLoader = std::sync::Arc<dyn Fn() -> Result<LoadedConfig, Diagnostics> + Send + Sync>;
