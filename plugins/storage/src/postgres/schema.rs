//! Tables of the database and their versions.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::connection::DatabaseError;
use super::options::option_error;
use crate::StoreTable;

/// Version of the tables that this program writes.
const VERSION: i32 = 1;
/// Oldest supported PostgreSQL version (15.0), in the format of the setting `server_version_num`.
const MIN_SERVER: i32 = 150_000;
/// Maximum number of attempts to create the tables while other processes create them too.
const MAX_ATTEMPTS: u32 = 20;

/// State of an import into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImportState {
    /// All rows are complete: no import is unfinished.
    Complete,
    /// The rows belong to an import that has not finished.
    Unfinished,
}

/// Names of the tables in a schema.
#[derive(Clone, Debug)]
pub(super) struct TableNames {
    schema: String,
}

impl TableNames {
    pub(super) fn new(schema: &str) -> TableNames {
        TableNames { schema: schema.to_owned() }
    }

    /// Returns the name of the schema.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the qualified name of a table of rows.
    pub(super) fn row_table(&self, table: StoreTable) -> String {
        format!("{}.{}", self.schema, table.name())
    }

    /// Returns the qualified name of the table of incarnations, the process starts.
    pub(super) fn incarnation_table(&self) -> String {
        format!("{}.strands", self.schema)
    }

    fn version_table(&self) -> String {
        format!("{}.schema_version", self.schema)
    }

    /// Returns the statements that create version 1.
    fn create_statements(&self) -> String {
        let mut statements = format!(
            "create schema if not exists {schema};
             create table if not exists {version} (
                 version int not null, min_reader int not null, import_unfinished bool not null default false);
             create table if not exists {incarnations} (
                 id int primary key generated always as identity, token text not null unique, name text not null,
                 beat bigint not null, live bool not null, seq bigint not null, version text not null);
             alter table {incarnations} add column if not exists shared bool not null default false;",
            schema = self.schema,
            version = self.version_table(),
            incarnations = self.incarnation_table(),
        );
        for table in StoreTable::ALL {
            statements += &format!(
                "create table if not exists {} (key bytea primary key, value bytea not null, sum int not null);",
                self.row_table(table)
            );
        }
        statements
    }
}

/// Checks the server, and creates the tables if they are missing. Several processes may call it at the same time.
pub(super) async fn prepare_tables(
    client: &mut Client,
    names: &TableNames,
) -> Result<ImportState, DatabaseError> {
    check_server(client).await?;
    for _ in 1..MAX_ATTEMPTS {
        match ensure_tables(client, names).await {
            // A conflict means that another process has committed the same tables in the meantime.
            Err(DatabaseError::Conflict) => {}
            result => return result,
        }
    }
    ensure_tables(client, names).await
}

async fn ensure_tables(client: &mut Client, names: &TableNames) -> Result<ImportState, DatabaseError> {
    if let Some(state) = read_version(client, names).await?
        && !is_table_missing(client, names).await?
    {
        return Ok(state);
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(&names.create_statements()).await.map_err(creation_error)?;
    let fill = format!(
        "lock table {0} in share row exclusive mode;
         insert into {0} (version, min_reader) select {VERSION}, {VERSION} where not exists (select from {0})",
        names.version_table()
    );
    transaction.batch_execute(&fill).await?;
    transaction.commit().await?;
    read_version(client, names).await.map(|state| state.unwrap_or(ImportState::Complete))
}

/// Classifies an error of the statements that create tables. Even with `if not exists` they fail if another
/// transaction creates the same object at the same time; such an error is a conflict.
fn creation_error(error: tokio_postgres::Error) -> DatabaseError {
    let exists_now = [
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
        SqlState::DUPLICATE_COLUMN,
    ];
    if error.code().is_some_and(|code| exists_now.contains(code)) {
        return DatabaseError::Conflict;
    }
    error.into()
}

/// Returns true if a table or column that this program uses does not exist: an older version may have created the
/// tables.
async fn is_table_missing(client: &Client, names: &TableNames) -> Result<bool, DatabaseError> {
    let tables: Vec<String> = StoreTable::ALL.iter().map(|table| names.row_table(*table)).collect();
    let missing = "select exists(select from unnest($1::text[]) as name where to_regclass(name) is null)
         or not exists(select from pg_attribute where attrelid = to_regclass($2) and attname = 'shared')";
    let names: (&Vec<String>, String) = (&tables, names.incarnation_table());
    let row = client.query_typed_one(missing, &[(names.0, Type::TEXT_ARRAY), (&names.1, Type::TEXT)]).await?;
    Ok(row.try_get(0)?)
}

/// Checks the version of the server and of existing tables, and creates nothing. Returns `None` for a database without
/// tables.
pub(super) async fn check_versions(
    client: &Client,
    names: &TableNames,
) -> Result<Option<ImportState>, DatabaseError> {
    check_server(client).await?;
    read_version(client, names).await
}

async fn check_server(client: &Client) -> Result<(), DatabaseError> {
    let number = server_setting(client, "server_version_num").await?.parse().unwrap_or(0);
    if number >= MIN_SERVER {
        return Ok(());
    }
    let what = format!("PostgreSQL {} is too old, 15 or newer is needed", number / 10_000);
    Err(DatabaseError::Permanent(option_error(&what)))
}

/// Reads the value of the PostgreSQL setting `name` from the server.
pub(super) async fn server_setting(client: &Client, name: &str) -> Result<String, DatabaseError> {
    let row = client.query_typed_one("select current_setting($1)", &[(&name, Type::TEXT)]).await?;
    Ok(row.try_get(0)?)
}

async fn read_version(client: &Client, names: &TableNames) -> Result<Option<ImportState>, DatabaseError> {
    let table = names.version_table();
    let there = client
        .query_typed_one("select to_regclass($1) is not null", &[(&table, Type::TEXT)])
        .await?
        .try_get::<_, bool>(0)?;
    if !there {
        return Ok(None);
    }
    let rows = client
        .query_typed(&format!("select version, min_reader, import_unfinished from {table}"), &[])
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (version, min_reader): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    if min_reader > VERSION {
        let what = format!(
            "its tables are of version {version}, and this program reads versions up to {VERSION}: start the newer \
             program that wrote them"
        );
        return Err(DatabaseError::Permanent(option_error(&what)));
    }
    Ok(Some(if row.try_get(2)? { ImportState::Unfinished } else { ImportState::Complete }))
}

/// Records the state of an import.
pub(super) async fn set_import_state(
    client: &impl GenericClient,
    names: &TableNames,
    state: ImportState,
) -> Result<(), DatabaseError> {
    let unfinished = state == ImportState::Unfinished;
    let statement = format!("update {} set import_unfinished = {unfinished}", names.version_table());
    Ok(client.batch_execute(&statement).await?)
}

/// Deletes the rows of all tables of the store.
pub(super) async fn delete_all_rows(
    client: &impl GenericClient,
    names: &TableNames,
) -> Result<(), DatabaseError> {
    let tables: Vec<String> = StoreTable::ALL.iter().map(|table| names.row_table(*table)).collect();
    Ok(client.batch_execute(&format!("truncate {}", tables.join(", "))).await?)
}
