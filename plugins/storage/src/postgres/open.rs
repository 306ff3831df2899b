//! Opening of a database: for the gateway, for an import, and for a check that changes nothing.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::PostgresStore;
use super::connection::{DatabaseError, connect, connect_with_address_in_errors};
use super::incarnation::{self, IdentityFile, WriterIncarnation};
use super::options::{ConnectSettings, PostgresOptions, option_error};
use super::reader::Reader;
use super::rows::{self, ScanStart};
use super::schema::{self, ImportState, TableNames};
use super::status::DatabaseStatus;
use super::writer::{GroupWriter, QUEUE_CAPACITY};
use crate::keys::KeyStore;
use crate::{PEPPER_CHECK_KEY, Store, StoreError, StoreTable};

/// Number of heartbeats within `takeover_after`, the time after which a process counts as dead.
const BEATS: u32 = 10;
/// Number of API keys that a check reads at once.
const KEYS_PER_PAGE: usize = 1_000;
/// Number of worker threads of the runtime: one of them may block while the receiver of a snapshot is slow.
const WORKERS: usize = 2;

/// Findings of [`check_postgres`] about a database server and the tables of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseReport {
    /// Version of the server, such as `15.4`.
    pub server_version: String,
    /// True if the tables exist.
    pub has_tables: bool,
    /// Time by the server's clock at the end of the check, Unix seconds.
    pub unix_seconds: i64,
    /// Stored fingerprint of the pepper of the API keys; `None` before the first start of a gateway.
    pub pepper_check: Option<Vec<u8>>,
    /// Number of API keys that are not revoked.
    pub valid_keys: u64,
    /// Sentences about settings of the server that endanger acknowledged writes, and about a connection without TLS.
    pub warnings: Vec<String>,
}

/// Opens the store in a database, and creates its tables if they are missing.
///
/// # Errors
/// Returns `InUse` if another live process uses the database, `Locked` if one of this machine has the folder,
/// `Unreachable` if there is no connection, `Database` for a refusal by the server, tables of a newer version or an
/// unfinished import.
pub fn open_postgres(options: &PostgresOptions) -> Result<Arc<dyn Store>, StoreError> {
    open(options, |_, _, state| async move {
        match state {
            ImportState::Complete => Ok(()),
            ImportState::Unfinished => Err(DatabaseError::Permanent(option_error(
                "an import into it has not finished: repeat `penstock store import`",
            ))),
        }
    })
}

/// Opens a database for an import. Until [`finish_import`], [`open_postgres`] refuses it; a repeated import deletes
/// what the unfinished one wrote.
///
/// # Errors
/// Same as [`open_postgres`]; `Database` if the database has rows.
pub fn begin_import(options: &PostgresOptions) -> Result<Arc<dyn Store>, StoreError> {
    open(options, |client, names, state| async move {
        match state {
            ImportState::Unfinished => schema::delete_all_rows(&*client, &names).await,
            ImportState::Complete => {
                for table in StoreTable::ALL {
                    let statement = format!("select from {} limit 1", names.row_table(table));
                    if client.query_typed_opt(&statement, &[]).await?.is_some() {
                        return Err(DatabaseError::Permanent(option_error(&format!(
                            "its schema {0} has rows, and an import needs an empty store: name another database, or \
                             run `DROP SCHEMA {0} CASCADE` if nothing in it is needed",
                            names.schema()
                        ))));
                    }
                }
                schema::set_import_state(&*client, &names, ImportState::Unfinished).await
            }
        }
    })
}

/// Marks an import as complete. The store of [`begin_import`] may still be open.
///
/// # Errors
/// Same as [`open_postgres`].
pub fn finish_import(options: &PostgresOptions) -> Result<(), StoreError> {
    let settings = ConnectSettings::new(options)?;
    let names = TableNames::new(&options.schema);
    run(&new_runtime()?, async move {
        let client = connect_with_address_in_errors(&settings).await?;
        schema::set_import_state(&client, &names, ImportState::Complete).await
    })
}

/// Checks the options without a connection; returns a warning for a remote server without TLS, otherwise `None`.
///
/// # Errors
/// Returns `Database` with a description that does not repeat the URL.
pub fn check_postgres_options(options: &PostgresOptions) -> Result<Option<String>, StoreError> {
    let settings = ConnectSettings::new(options)?;
    let is_open = settings.tls.is_none() && !settings.is_local;
    Ok(is_open.then(|| "the connection to the database is not encrypted: use sslmode=verify-full".to_owned()))
}

/// Returns the address and the names of a database for people, without credentials, such as `db.example.eu:5432,
/// database penstock, schema penstock`.
///
/// # Errors
/// Returns `Database` with a description that does not repeat the URL.
pub fn describe_database(options: &PostgresOptions) -> Result<String, StoreError> {
    let settings = ConnectSettings::new(options)?;
    Ok(format!("{}, database {}, schema {}", settings.address(), settings.database(), options.schema))
}

/// Connects and checks the server's version, settings and rights. Writes nothing, and does not look for other processes
/// that use the database.
///
/// # Errors
/// Returns `Unreachable` if there is no connection, `Database` for a refusal by the server, tables of a newer version
/// or invalid options.
pub fn check_postgres(options: &PostgresOptions) -> Result<DatabaseReport, StoreError> {
    let warning = check_postgres_options(options)?;
    let settings = ConnectSettings::new(options)?;
    let names = TableNames::new(&options.schema);
    run(&new_runtime()?, async move {
        let client = connect_with_address_in_errors(&settings).await?;
        let has_tables = schema::check_versions(&client, &names).await?.is_some();
        let mut warnings: Vec<String> = warning.into_iter().collect();
        for (name, safe) in [("fsync", "on"), ("full_page_writes", "on")] {
            if schema::server_setting(&client, name).await? != safe {
                warnings.push(format!(
                    "the setting {name} of the database's server is off: a power cut may damage the database"
                ));
            }
        }
        if schema::server_setting(&client, "synchronous_commit").await? == "off" {
            let risk = "a power cut may lose acknowledged writes";
            warnings.push(format!("the setting synchronous_commit of the database's server is off: {risk}"));
        }
        if !has_tables {
            let may = "select has_database_privilege(current_database(), 'CREATE')";
            if !client.query_typed_one(may, &[]).await?.try_get::<_, bool>(0)? {
                return Err(DatabaseError::Permanent(option_error(
                    "its user may not create the tables: run `GRANT CREATE ON DATABASE …` for it",
                )));
            }
        }
        let server = schema::server_setting(&client, "server_version").await?;
        let clock = "select floor(extract(epoch from clock_timestamp()))::bigint";
        let unix_seconds = client.query_typed_one(clock, &[]).await?.try_get(0)?;
        let (mut pepper_check, mut valid_keys) = (None, 0);
        if has_tables {
            pepper_check = rows::get(&client, &names, StoreTable::Meta, PEPPER_CHECK_KEY).await?;
            valid_keys = count_valid_keys(&client, &names).await?;
        }
        Ok(DatabaseReport {
            server_version: server,
            has_tables,
            unix_seconds,
            pepper_check,
            valid_keys,
            warnings,
        })
    })
}

/// Returns the number of API keys that are not revoked.
async fn count_valid_keys(client: &Client, names: &TableNames) -> Result<u64, DatabaseError> {
    let (mut count, mut from) = (0, ScanStart::After(None));
    loop {
        let page = rows::scan(client, names, StoreTable::Keys, b"", from, KEYS_PER_PAGE).await?;
        for row in &page.rows {
            count += u64::from(KeyStore::is_valid_row(&row.value).map_err(DatabaseError::Permanent)?);
        }
        match page.rows.last() {
            Some(last) if page.more => from = ScanStart::After(Some(last.key.clone())),
            _ => return Ok(count),
        }
    }
}

fn new_runtime() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("postgres")
        .enable_all()
        .build()
        .map_err(|error| StoreError::io("start the threads of its connections", &error))
}

/// Runs a future on the runtime and blocks until it ends.
fn run<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, DatabaseError>> + Send + 'static,
) -> Result<T, StoreError> {
    let (reply, answered) = sync_channel(1);
    runtime.spawn(async move { drop(reply.send(work.await)) });
    let ended = |_| StoreError::Io { what: "connect", kind: std::io::ErrorKind::BrokenPipe };
    Ok(answered.recv().map_err(ended)??)
}

/// Joins the processes that use the database, and opens the connection for reads. `admit` prepares or refuses the
/// database, depending on the state of an import.
async fn join_and_connect<F>(
    options: &PostgresOptions,
    settings: &ConnectSettings,
    identity: &mut IdentityFile,
    admit: impl FnOnce(Arc<Client>, TableNames, ImportState) -> F + Send,
) -> Result<(WriterIncarnation, Client), DatabaseError>
where
    F: Future<Output = Result<(), DatabaseError>> + Send,
{
    let names = TableNames::new(&options.schema);
    let previous = identity.previous.clone();
    let mut client = connect_with_address_in_errors(settings).await?;
    let state = schema::prepare_tables(&mut client, &names).await?;
    let (sharing, takeover_after) = (options.sharing, options.takeover_after);
    let incarnation =
        incarnation::join(&mut client, &names, previous.as_deref(), sharing, takeover_after).await?;
    let client = Arc::new(client);
    let opened = async {
        // The token is written first: if this process ends without `leave`, the next process of this folder needs the
        // token.
        identity.write(&incarnation.token).map_err(DatabaseError::Permanent)?;
        admit(Arc::clone(&client), names.clone(), state).await?;
        connect(settings).await
    };
    match opened.await {
        Ok(reading) => Ok((incarnation, reading)),
        Err(error) => {
            let _ = incarnation.leave(&client, &names).await;
            Err(error)
        }
    }
}

fn open<F>(
    options: &PostgresOptions,
    admit: impl FnOnce(Arc<Client>, TableNames, ImportState) -> F + Send + 'static,
) -> Result<Arc<dyn Store>, StoreError>
where
    F: Future<Output = Result<(), DatabaseError>> + Send,
{
    let settings = ConnectSettings::new(options)?;
    let names = TableNames::new(&options.schema);
    let mut identity = IdentityFile::lock(&options.folder)?;
    let runtime = new_runtime()?;
    let takeover_after = options.takeover_after;
    let opening = {
        let (options, settings) = (options.clone(), settings.clone());
        async move {
            let (incarnation, reading) = join_and_connect(&options, &settings, &mut identity, admit).await?;
            Ok((incarnation, identity, reading))
        }
    };
    let (incarnation, identity, reading) = run(&runtime, opening)?;
    let status = Arc::new(DatabaseStatus::new());
    let writer = GroupWriter {
        runtime: runtime.handle().clone(),
        settings: settings.clone(),
        names: names.clone(),
        incarnation,
        status: Arc::clone(&status),
        heartbeat_interval: takeover_after / BEATS,
        client: None,
        seq: 0,
        unanswered: None,
        identity,
    };
    let (jobs, waiting) = sync_channel(QUEUE_CAPACITY);
    let writer = Builder::new()
        .name("store writer".to_owned())
        .spawn(move || writer.run(&waiting))
        .map_err(|error| StoreError::io("start its writer thread", &error))?;
    Ok(Arc::new(PostgresStore {
        reader: Arc::new(Reader::new(settings, names, reading)),
        status,
        timeout: options.timeout,
        fail_fast_after: options.fail_fast_after,
        jobs: Some(jobs),
        writer: Some(writer),
        runtime: Some(runtime),
    }))
}
