//! Options and checks of a store in a database.

use super::pepper::compare_pepper;
use super::to_sentence;
use crate::config::settings::{DatabasePassword, StorageEngine, StorageSettings};
use crate::time::clock::system_time;
use penstock_storage::{FolderEngine, PasswordSource, PostgresOptions, StoreSharing};

/// Folder of the lock and the identity of the process that uses a database.
const DATABASE_FOLDER: &str = "database";

/// Difference from the clock of the database, in seconds, from which a check fails.
const MAX_CLOCK_DIFFERENCE: u64 = 60;

/// Location of a store, with the engine or the options that open it.
#[derive(Debug)]
pub enum StoreLocation {
    /// Configured storage folder, with the engine that opens the store in it.
    Folder(&'static FolderEngine),
    /// PostgreSQL database.
    Database(PostgresOptions),
}

/// Returns the options of the configured database; `None` for a store in the folder.
#[must_use]
pub fn database_options(storage: &StorageSettings) -> Option<PostgresOptions> {
    match store_location(storage) {
        StoreLocation::Folder(_) => None,
        StoreLocation::Database(options) => Some(options),
    }
}

/// Returns the location of the configured store.
#[must_use]
pub fn store_location(storage: &StorageSettings) -> StoreLocation {
    let database = match &storage.engine {
        StorageEngine::Folder(engine) => return StoreLocation::Folder(engine),
        StorageEngine::Postgres(database) => database,
    };
    let password = match &database.password {
        None => PasswordSource::Url,
        Some(DatabasePassword::Text(text)) => PasswordSource::Text(text.reveal().to_owned()),
        Some(DatabasePassword::File(path)) => PasswordSource::File(path.clone()),
    };
    let options = PostgresOptions::new(database.url.reveal(), storage.path.join(DATABASE_FOLDER));
    let sharing = if storage.fleet.is_some() { StoreSharing::Shared } else { StoreSharing::Exclusive };
    StoreLocation::Database(PostgresOptions { password, sharing, ..options })
}

/// Result of a check of the configured database.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DatabaseCheckReport {
    /// Version of the server, if it was reached.
    pub server: Option<String>,
    /// Warnings about the database, as sentences.
    pub warnings: Vec<String>,
}

/// Returns the address and the names of the configured database; `None` for a store in a folder.
#[must_use]
pub fn describe_database(storage: &StorageSettings) -> Option<String> {
    database_options(storage).and_then(|options| penstock_storage::describe_database(&options).ok())
}

/// Checks the settings of the configured database, and connects to it if `reach` is true; writes nothing.
///
/// # Errors
/// Returns a sentence for the operator if the database cannot be used.
pub fn check_database(storage: &StorageSettings, reach: bool) -> Result<DatabaseCheckReport, String> {
    let Some(options) = database_options(storage) else { return Ok(DatabaseCheckReport::default()) };
    let (server, warnings) = if reach {
        let report = penstock_storage::check_postgres(&options);
        let mut report = report.map_err(|error| to_sentence(&error.to_string()))?;
        check_clocks(report.unix_seconds, system_time().as_secs())?;
        if let Some(known) = report.pepper_check.as_deref() {
            report.warnings.extend(compare_pepper(storage, known, report.valid_keys)?);
        }
        (Some(report.server_version), report.warnings)
    } else {
        let warning = penstock_storage::check_postgres_options(&options);
        (None, warning.map_err(|error| to_sentence(&error.to_string()))?.into_iter().collect())
    };
    Ok(DatabaseCheckReport {
        server,
        warnings: warnings.iter().map(|warning| to_sentence(warning)).collect(),
    })
}

/// Compares the database's clock with that of this machine.
fn check_clocks(database: i64, own: u64) -> Result<(), String> {
    let difference = i128::from(database) - i128::from(own);
    if difference.unsigned_abs() < u128::from(MAX_CLOCK_DIFFERENCE) {
        return Ok(());
    }
    let (seconds, direction) =
        (difference.unsigned_abs(), if difference > 0 { "ahead of" } else { "behind" });
    Err(format!(
        "The database's clock is {seconds} s {direction} that of this machine: set the clocks with NTP, since budgets, \
         invoices and expiry depend on them."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_a_minute_are_refused() {
        for same in [1_000, 1_059, 941] {
            assert_eq!(check_clocks(same, 1_000), Ok(()), "{same}");
        }
        for (database, expected) in [(1_060, "60 s ahead of"), (940, "60 s behind"), (i64::MIN, "behind")] {
            let refused = check_clocks(database, 1_000).err().unwrap_or_default();
            assert!(refused.contains(expected) && refused.contains("NTP"), "{refused}");
        }
    }
}
