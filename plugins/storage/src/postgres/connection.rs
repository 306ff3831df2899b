//! Connections to the server, and the classes of their errors.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::ConnectSettings;
use crate::StoreError;

/// Timeout of a connection attempt, including the TLS handshake and authentication.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of a statement or connection, classified by what the caller can do: reconnect, retry, or fail.
#[derive(Debug)]
pub(super) enum DatabaseError {
    /// The connection was lost, or the server is starting or stopping. A new connection may succeed.
    Lost(String),
    /// The transaction was rolled back because of a concurrent one. A retry of the same transaction may succeed.
    Conflict,
    /// Any other database error, after which a retry would not help.
    Permanent(StoreError),
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> DatabaseError {
        let Some(state) = error.code() else {
            return if error.is_closed() || is_io(&error) {
                DatabaseError::Lost("the connection failed".to_owned())
            } else {
                DatabaseError::Permanent(StoreError::Database { what: describe(&error) })
            };
        };
        let code = state.code();
        // A unique violation is a conflict too: another process created the same row.
        if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION]
            .contains(state)
        {
            return DatabaseError::Conflict;
        }
        // SQLSTATE codes. Class 08: connection; 57P01 to 57P05: shutdown, crash, start, idle session; 53300: too many
        // connections; 25006: read-only transaction, as on a standby; 25P03, 55P03, 57014: timeouts.
        if code.starts_with("08")
            || code.starts_with("57P")
            || ["53300", "25006", "25P03", "57014", "55P03"].contains(&code)
        {
            return DatabaseError::Lost(format!("SQLSTATE {code}"));
        }
        if *state == SqlState::DISK_FULL {
            return DatabaseError::Permanent(StoreError::Full);
        }
        DatabaseError::Permanent(StoreError::Database { what: describe(&error) })
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> StoreError {
        match error {
            DatabaseError::Lost(what) => StoreError::Unreachable { what },
            DatabaseError::Conflict => StoreError::Unreachable { what: "a conflict".to_owned() },
            DatabaseError::Permanent(error) => error,
        }
    }
}

/// Formats an error without its detail, which may quote row contents.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refusal) => format!("{} (SQLSTATE {})", refusal.message(), refusal.code().code()),
        None => error.to_string(),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.is::<std::io::Error>() {
            return true;
        }
        cause = current.source();
    }
    false
}

/// Connects like [`connect`], and names the address of the server in errors. Use it only at a start or a check, where
/// operators read the errors; errors of a running store may be shown to others.
pub(super) async fn connect_with_address_in_errors(
    settings: &ConnectSettings,
) -> Result<Client, DatabaseError> {
    let named = |what: String| format!("{}: {what}", settings.address());
    connect_once(settings).await.map_err(|error| match error {
        DatabaseError::Lost(what) => DatabaseError::Lost(named(what)),
        DatabaseError::Permanent(StoreError::Database { what }) => {
            DatabaseError::Permanent(StoreError::Database { what: named(what) })
        }
        other => other,
    })
}

/// Connects for a store that is open. A server that refuses the connection then counts as unreachable, because it may
/// accept a later one, for example when the role may log in again.
pub(super) async fn connect(settings: &ConnectSettings) -> Result<Client, DatabaseError> {
    connect_once(settings).await.map_err(|error| match error {
        DatabaseError::Permanent(StoreError::Database { what }) => DatabaseError::Lost(what),
        other => other,
    })
}

/// Connects to a server that accepts writes, which excludes standbys.
async fn connect_once(settings: &ConnectSettings) -> Result<Client, DatabaseError> {
    let config = settings.config().map_err(DatabaseError::Permanent)?;
    let connecting = async {
        match &settings.tls {
            Some(tls) => {
                let tls = MakeRustlsConnect::new((**tls).clone());
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
        }
    };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting).await {
        Ok(connected) => connected.map_err(connect_error),
        Err(_) => Err(DatabaseError::Lost("no answer to a connection attempt".to_owned())),
    }
}

/// Classifies the error of a connection attempt. The innermost cause tells the possible I/O errors apart: a host name
/// that does not resolve, a closed port, or a rejected certificate.
fn connect_error(error: tokio_postgres::Error) -> DatabaseError {
    let mut cause: &(dyn std::error::Error + 'static) = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let what = cause.to_string();
    let is_refusal = error.as_db_error().is_some();
    match DatabaseError::from(error) {
        DatabaseError::Lost(_) => DatabaseError::Lost(what),
        DatabaseError::Permanent(StoreError::Database { .. }) if !is_refusal => {
            DatabaseError::Permanent(StoreError::Database { what })
        }
        other => other,
    }
}
