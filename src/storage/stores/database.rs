//! Options and checks of a store in a database.

use super::to_sentence;
use crate::config::settings::{DatabasePassword, StorageEngine, StorageSettings};
use penstock_storage::{PasswordSource, PostgresOptions, StoreSharing};

/// Folder of the lock and the identity of the process that uses a database.
const DATABASE_FOLDER: &str = "database";

/// Returns the options of the configured database; `None` for the embedded store.
#[must_use]
pub fn database_options(storage: &StorageSettings) -> Option<PostgresOptions> {
    let StorageEngine::Postgres(database) = &storage.engine else { return None };
    let password = match &database.password {
        None => PasswordSource::Url,
        Some(DatabasePassword::Text(text)) => PasswordSource::Text(text.reveal().to_owned()),
        Some(DatabasePassword::File(path)) => PasswordSource::File(path.clone()),
    };
    let options = PostgresOptions::new(database.url.reveal(), storage.path.join(DATABASE_FOLDER));
    let sharing = if storage.fleet.is_some() { StoreSharing::Shared } else { StoreSharing::Alone };
    Some(PostgresOptions { password, sharing, ..options })
}

/// Checks the configured database, and connects to it if `reach` is set; writes nothing. Returns warnings.
///
/// # Errors
/// Returns a sentence for the operator if the database cannot be used.
pub fn check_database(storage: &StorageSettings, reach: bool) -> Result<Vec<String>, String> {
    let Some(options) = database_options(storage) else { return Ok(Vec::new()) };
    let warnings = if reach {
        penstock_storage::check_postgres(&options).map(|report| report.warnings)
    } else {
        penstock_storage::check_postgres_options(&options).map(|warning| warning.into_iter().collect())
    };
    let warnings = warnings.map_err(|error| to_sentence(&error.to_string()))?;
    Ok(warnings.iter().map(|warning| to_sentence(warning)).collect())
}
