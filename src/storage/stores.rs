//! Persistent state: the store, its records, and the secrets. All calls block; async callers use [`run_blocking`].

mod database;
mod pepper;
mod secret_files;

use crate::config::settings::StorageSettings;
use crate::fleet::FleetMember;
use crate::upgrade::control_channel::ControlChannel;
use crate::upgrade::handover_store::HandoverStore;
use penstock_storage::accounts::AccountStore;
use penstock_storage::audit::AuditLog;
use penstock_storage::fleet::SharedFleet;
use penstock_storage::invoices::InvoiceStore;
use penstock_storage::keys::KeyStore;
use penstock_storage::ledger::{ChainClaim, LedgerStore};
use penstock_storage::measurements::MeasurementStore;
use penstock_storage::sessions::SessionStore;
use penstock_storage::spend::SpendStore;
use penstock_storage::users::UserStore;
use penstock_storage::{Store, StoreError, StoreOptions};
use secret_files::{
    check_token_length, hex_secret, parse_hex_secret, read_or_create, read_secret, write_secret,
};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

pub use database::{
    DatabaseCheckReport, StoreLocation, check_database, database_options, describe_database, store_location,
};

/// Open stores, with the ledger, the pepper and the admin token.
#[derive(Clone)]
pub struct OpenStorage {
    /// Store of all rows; the typed stores use it.
    pub store: Arc<dyn Store>,
    /// Store in the form that can be handed over to another process, and its settings.
    handover: (Arc<HandoverStore>, StorageSettings),
    /// Membership in the fleet of the store.
    pub fleet: Arc<FleetMember>,
    /// Store of API keys.
    pub keys: KeyStore,
    /// Store of accounts.
    pub accounts: AccountStore,
    /// Spending of accounts and keys.
    pub spends: SpendStore,
    /// Store of measured latency statistics.
    pub measurements: MeasurementStore,
    /// Persons who may sign in to the console.
    pub users: UserStore,
    /// Sessions of signed-in persons.
    pub sessions: SessionStore,
    /// Store of issued invoices.
    pub invoices: InvoiceStore,
    /// Audit log of administrative changes.
    pub audit: AuditLog,
    /// Ledger and its replica files.
    pub ledger: Arc<LedgerStore>,
    /// Secret key of the digests of API keys (HMAC).
    pub pepper: Pepper,
    /// Bearer token of the admin listener.
    pub admin_token: Arc<str>,
}

/// Secret key (32 bytes) of the digests of API keys; its debug output is `***`.
#[derive(Clone, Copy)]
pub struct Pepper(pub [u8; 32]);

impl std::fmt::Debug for Pepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Name of the store in the storage folder.
pub const STORE_FOLDER: &str = "store";
/// Name of the store in the storage folder while an archive is imported.
pub const IMPORT_FOLDER: &str = "store.import";
/// Name of the folder with the ledger's replica files.
pub const LEDGER_REPLICA_FOLDER: &str = "ledger";
/// File of the pepper, the secret of the key digests.
pub const PEPPER_FILE: &str = "pepper";
/// File that the demo creates in its storage folder.
pub const DEMO_MARKER_FILE: &str = "demo";
/// File with the number of the fleet member that last used this folder.
const MEMBER_FILE: &str = "database/member";
/// File of the admin token, which the command line reads too.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";

impl OpenStorage {
    /// Opens the store, and creates missing parts at the first start.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the storage cannot be used.
    pub fn open(storage: &StorageSettings) -> Result<Self, String> {
        let folder = &storage.path;
        penstock_storage::create_private_dir_all(folder)
            .map_err(|error| format!("The storage folder {} cannot be made: {error}.", folder.display()))?;
        let handed = Arc::new(HandoverStore::new(open_or_create(storage)?));
        let store: Arc<dyn Store> = handed.clone();
        let pepper = pepper::find_pepper(storage, &store)?;
        let fleet = join_fleet(storage, &store)?;
        let copies = folder.join(LEDGER_REPLICA_FOLDER);
        let ledger =
            open_ledger(&fleet, &store, &copies).map_err(|error| format_open_error(&copies, &error))?;
        let path = folder.join(ADMIN_TOKEN_FILE);
        let admin_token = check_token_length(&path, read_or_create(&path, hex_secret)?)?;
        restrict(folder);
        Ok(Self::with_parts(storage, handed, pepper, fleet, ledger, admin_token))
    }

    /// Opens an existing store for commands that only read its ledger. Joins no fleet, and changes neither the ledger
    /// nor its replica files. A missing pepper or admin token is created.
    ///
    /// # Errors
    /// Returns a sentence for the operator if there is no store, or if it cannot be used.
    pub fn open_for_reading(storage: &StorageSettings) -> Result<Self, String> {
        let folder = &storage.path;
        require_store(storage)?;
        let handed = Arc::new(HandoverStore::new(open_or_create(storage)?));
        let store: Arc<dyn Store> = handed.clone();
        let pepper = pepper::find_pepper(storage, &store)?;
        let ledger = LedgerStore::open_for_comparison(store, &folder.join(LEDGER_REPLICA_FOLDER));
        let token = read_or_create(&folder.join(ADMIN_TOKEN_FILE), hex_secret)?;
        Ok(Self::with_parts(storage, handed, pepper, FleetMember::without_fleet(), ledger, token))
    }

    fn with_parts(
        storage: &StorageSettings,
        handed: Arc<HandoverStore>,
        pepper: Pepper,
        fleet: Arc<FleetMember>,
        ledger: LedgerStore,
        admin_token: String,
    ) -> Self {
        let store: Arc<dyn Store> = handed.clone();
        Self {
            keys: KeyStore::new(store.clone()),
            accounts: AccountStore::new(store.clone()),
            spends: SpendStore::with_incarnation(store.clone(), fleet.member_number()),
            measurements: MeasurementStore::new(store.clone()),
            users: UserStore::new(store.clone()),
            sessions: SessionStore::new(store.clone()),
            invoices: InvoiceStore::new(store.clone()),
            audit: AuditLog::new(store.clone()),
            ledger: Arc::new(ledger),
            fleet,
            store,
            handover: (handed, storage.clone()),
            pepper,
            admin_token: admin_token.into(),
        }
    }
}

impl OpenStorage {
    /// Closes the store, and calls `taken`, which waits until another process has opened it; opens the store again if
    /// `taken` fails. Blocks.
    ///
    /// # Errors
    /// Returns the reason of the failure.
    pub fn hand_over(
        &self,
        taken: impl FnOnce() -> Result<Arc<ControlChannel>, String>,
    ) -> Result<Arc<ControlChannel>, String> {
        let (handed, storage) = &self.handover;
        handed.hand_over_store(taken, || open_or_create(storage))
    }
}

/// Joins the configured fleet. Without a configured fleet, dissolves the fleet that the store records, if that fleet
/// has no live gateway.
///
/// # Errors
/// Returns a sentence for the operator.
fn join_fleet(storage: &StorageSettings, store: &Arc<dyn Store>) -> Result<Arc<FleetMember>, String> {
    let fleet = SharedFleet::new(store.clone());
    let Some(settings) = &storage.fleet else {
        fleet.remove_fleet_rows().map_err(|error| to_sentence(&error.to_string()))?;
        return Ok(FleetMember::without_fleet());
    };
    let member = FleetMember::join(fleet, settings, &storage.path.join(MEMBER_FILE))?;
    member.start_heartbeat()?;
    Ok(member)
}

/// Opens the ledger: in a fleet, with a chain that no other member writes.
fn open_ledger(
    fleet: &FleetMember,
    store: &Arc<dyn Store>,
    copies: &Path,
) -> Result<LedgerStore, StoreError> {
    if !fleet.has_fleet() {
        return LedgerStore::open(store.clone(), Some(copies));
    }
    let claim = ChainClaim::take(&**store, fleet.member_number())?;
    LedgerStore::open_member(store.clone(), Some(copies), claim)
}

/// Checks an existing admin token; a missing one is created at the start.
///
/// # Errors
/// Returns a sentence that tells the operator what to do.
pub fn check_admin_token(storage: &StorageSettings) -> Result<(), String> {
    let path = storage.path.join(ADMIN_TOKEN_FILE);
    match fs::read_to_string(&path) {
        Ok(token) => check_token_length(&path, token.trim().to_owned()).map(|_| ()),
        // A missing file is created at the start. If the file belongs to another user, the permission error is also
        // reported at the start.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(()),
        Err(_) => read_secret(&path).map(|_| ()),
    }
}

/// Opens the store if it exists, and creates nothing; `None` if there is no store.
///
/// # Errors
/// Returns a sentence for the operator if the store cannot be opened.
pub fn open_existing(storage: &StorageSettings) -> Result<Option<Arc<dyn Store>>, String> {
    if store_exists(storage)? { open_or_create(storage).map(Some) } else { Ok(None) }
}

/// Checks that there is a store.
///
/// # Errors
/// Returns a sentence for the operator if there is none, or if that cannot be found out.
pub fn require_store(storage: &StorageSettings) -> Result<(), String> {
    match (store_exists(storage)?, store_location(storage)) {
        (true, _) => Ok(()),
        (false, StoreLocation::Folder(_)) => Err(format!("There is no store in {}.", storage.path.display())),
        (false, StoreLocation::Database(_)) => Err("There is no store in the database yet.".to_owned()),
    }
}

/// Returns true if there is a store.
fn store_exists(storage: &StorageSettings) -> Result<bool, String> {
    match store_location(storage) {
        StoreLocation::Folder(_) => {
            check_no_interrupted_import(&storage.path)?;
            let path = storage.path.join(STORE_FOLDER);
            match fs::metadata(&path) {
                Ok(found) => Ok(found.is_dir()),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(format!("The store in {} cannot be opened: {error}.", path.display())),
            }
        }
        StoreLocation::Database(options) => {
            let report = penstock_storage::check_postgres(&options);
            Ok(report.map_err(|error| to_sentence(&error.to_string()))?.has_tables)
        }
    }
}

/// Checks that no import into a storage folder was interrupted: its keys and balances would be missing.
fn check_no_interrupted_import(folder: &Path) -> Result<(), String> {
    if !folder.join(IMPORT_FOLDER).exists() {
        return Ok(());
    }
    Err(format!(
        "An import into {} was interrupted, or is running: wait for its end, or repeat it (`penstock store import`).",
        folder.display()
    ))
}

/// Opens the store with the configured engine, and creates it if it is missing.
///
/// # Errors
/// Returns a sentence for the operator if the store cannot be opened.
pub fn open_or_create(storage: &StorageSettings) -> Result<Arc<dyn Store>, String> {
    let engine = match store_location(storage) {
        StoreLocation::Folder(engine) => engine,
        StoreLocation::Database(options) => {
            return penstock_storage::open_postgres(&options)
                .map_err(|error| to_sentence(&error.to_string()));
        }
    };
    check_no_interrupted_import(&storage.path)?;
    let options = StoreOptions { ballast_bytes: storage.ballast_bytes, ..StoreOptions::default() };
    let folder = storage.path.join(STORE_FOLDER);
    (engine.open)(&folder, options).map_err(|error| format_open_error(&folder, &error))
}

/// Restores missing parts of the replica files from the store; returns a text for each month that was repaired.
///
/// # Errors
/// Returns a sentence for the operator if the ledger cannot be opened.
pub fn repair_ledger_replica(storage: &StorageSettings) -> Result<Vec<String>, String> {
    let store = open_existing(storage)?;
    let store = store.ok_or_else(|| format!("There is no store in {}.", storage.path.display()))?;
    let copies = storage.path.join(LEDGER_REPLICA_FOLDER);
    let ledger =
        LedgerStore::open(store, Some(&copies)).map_err(|error| format_open_error(&copies, &error))?;
    Ok(ledger.take_replica_repairs().into_iter().map(|repair| repair.what).collect())
}

/// Checks that a gateway can start with the pepper of its configuration or of its file. Changes nothing.
///
/// # Errors
/// Returns a sentence for the operator: the pepper is missing, malformed, or not that of the keys.
pub fn check_pepper(storage: &StorageSettings, store: &Arc<dyn Store>) -> Result<(), String> {
    pepper::read_valid_pepper(storage, store).map(|_| ())
}

/// Accepts a pepper that differs from the pepper of the existing keys. Returns the number of keys that no longer work
/// and have to be replaced.
///
/// # Errors
/// Returns a sentence for the operator if the store is missing or cannot be written.
pub fn accept_new_pepper(storage: &StorageSettings) -> Result<u64, String> {
    let store = open_existing(storage)?;
    let store = store.ok_or_else(|| format!("There is no store in {}.", storage.path.display()))?;
    pepper::accept_new_pepper(storage, &store)
}

/// Runs a blocking call of the store on a blocking thread.
///
/// # Errors
/// Returns the error of the call as text.
pub async fn run_blocking<T, E>(call: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|_| "The store's thread ended.".to_owned())?
        .map_err(|error| error.to_string())
}

/// Formats the error of opening a store as a sentence with the path of the store, because I/O errors do not contain it.
pub(crate) fn format_open_error(store: &Path, error: &StoreError) -> String {
    match error {
        StoreError::Io { .. } => to_sentence(&format!("{error}, at {}", store.display())),
        _ => to_sentence(&error.to_string()),
    }
}

/// Formats a cause as a sentence: the first letter in upper case, and a period at the end.
pub fn to_sentence(cause: &str) -> String {
    let mut letters = cause.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Restricts all files in a folder to their owner, including files that an earlier version or the engine of the store
/// created with more permissions. The folder itself keeps its permissions, because other users may need access to
/// archives in it.
fn restrict(folder: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let files =
        files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path());
    for path in [folder.join(STORE_FOLDER), folder.join(LEDGER_REPLICA_FOLDER)].into_iter().chain(files) {
        if let Err(error) = penstock_storage::restrict_permissions_recursively(&path) {
            tracing::warn!(name: "permissions_not_restricted", path = %path.display(), reason = %error);
        }
    }
}

#[cfg(test)]
mod tests;
