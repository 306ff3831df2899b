//! Incarnation: the row of a process start in the database, and the proof that no other process writes.
//!
//! An incarnation is live until its process closes the store or another process marks it as dead. It raises its
//! `beat` with every commit and heartbeat, and its `seq` with every commit, in the same transaction: so a commit of
//! an incarnation that is no longer live fails. If the answer to a commit is lost, `seq` shows if the commit was
//! applied. At most one incarnation is live at a time, unless all live ones share the database. No clocks are
//! compared: an incarnation counts as dead if the observer saw its beat unchanged for `takeover_after` by its own
//! monotonic clock, or if the observer holds the lock of the folder that the incarnation's process held.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::connection::DatabaseError;
use super::options::StoreSharing;
use super::schema::TableNames;
use crate::export::encode_hex;
use crate::{StoreError, permissions};

/// Maximum interval between two reads of the beats of other incarnations.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Locked identity file in the process's folder, with the token of the last incarnation of this folder.
pub(super) struct IdentityFile {
    file: File,
    /// Token of the previous process of this folder; `None` for the first one.
    pub(super) previous: Option<String>,
}

impl IdentityFile {
    /// Locks the folder.
    ///
    /// # Errors
    /// Returns `Locked` if another process of this machine has it, `Io` if it cannot be written.
    pub(super) fn lock(folder: &Path) -> Result<IdentityFile, StoreError> {
        let failed = |error: &std::io::Error| StoreError::io("lock its folder", error);
        permissions::create_private_dir_all(folder).map_err(|error| failed(&error))?;
        let mut file = permissions::open_options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join("strand"))
            .map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| failed(&error))?;
        let previous = Some(text.trim().to_owned()).filter(|token| !token.is_empty());
        Ok(IdentityFile { file, previous })
    }

    /// Writes the token of a new incarnation. Without the token, the next process of this folder must wait until the
    /// incarnation counts as dead, as a process of another folder must.
    pub(super) fn write(&mut self, token: &str) -> Result<(), StoreError> {
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all(token.as_bytes()))
            .and_then(|()| self.file.sync_all());
        written.map_err(|error| StoreError::io("write its identity", &error))
    }
}

/// Incarnation of this process: the row that represents the process in the database, by its random token.
#[derive(Clone, Debug)]
pub(super) struct WriterIncarnation {
    pub(super) token: String,
}

/// Outcome of one attempt of this process to join the processes that write to the database.
enum JoinAttempt {
    Joined,
    /// Other live incarnations prevent the process from joining: their beats and process names, by incarnation id.
    Occupied(HashMap<i32, (i64, String)>),
}

/// Joins the processes that write to the database. Unless all of them share it, waits until the other incarnations are
/// dead: their beats are unchanged for `takeover_after`. `previous` is the token of an incarnation known to be dead.
///
/// # Errors
/// Returns `InUse` if the beat of such an incarnation changes during the wait.
pub(super) async fn join(
    client: &mut Client,
    names: &TableNames,
    previous: Option<&str>,
    sharing: StoreSharing,
    takeover_after: Duration,
) -> Result<WriterIncarnation, DatabaseError> {
    let incarnation = WriterIncarnation { token: encode_hex(&rand::random::<[u8; 16]>()) };
    let mut seen: HashMap<i32, (i64, Instant)> = HashMap::new();
    loop {
        let now = Instant::now();
        let dead: Vec<(i32, i64)> = seen
            .iter()
            .filter(|(_, (_, since))| now.duration_since(*since) >= takeover_after)
            .map(|(id, (beat, _))| (*id, *beat))
            .collect();
        let live = match try_join(client, names, &incarnation, previous, sharing, &dead).await? {
            JoinAttempt::Joined => return Ok(incarnation),
            JoinAttempt::Occupied(live) => live,
        };
        for (id, (beat, holder)) in live {
            match seen.get(&id) {
                Some((known, _)) if *known != beat => {
                    return Err(DatabaseError::Permanent(StoreError::InUse { holder }));
                }
                Some(_) => {}
                None => drop(seen.insert(id, (beat, Instant::now()))),
            }
        }
        tokio::time::sleep(WATCH_INTERVAL.min(takeover_after / 5)).await;
    }
}

async fn try_join(
    client: &mut Client,
    names: &TableNames,
    incarnation: &WriterIncarnation,
    previous: Option<&str>,
    sharing: StoreSharing,
    dead: &[(i32, i64)],
) -> Result<JoinAttempt, DatabaseError> {
    let table = names.incarnation_table();
    let transaction = client.transaction().await?;
    // This lock makes two processes that start at the same time join one after the other.
    let lock = format!(
        "set local idle_in_transaction_session_timeout = '5s';
         lock table {table} in share row exclusive mode"
    );
    transaction.batch_execute(&lock).await?;
    let rows = transaction
        .query_typed(&format!("select id, token, beat, name, shared from {table} where live"), &[])
        .await?;
    let mut others = HashMap::new();
    for row in rows {
        let (id, token, beat): (i32, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if previous == Some(token.as_str()) || dead.contains(&(id, beat)) {
            transaction
                .execute_typed(
                    &format!("update {table} set live = false where id = $1"),
                    &[(&id, Type::INT4)],
                )
                .await?;
        } else if !(sharing == StoreSharing::Shared && row.try_get(4)?) {
            others.insert(id, (beat, row.try_get(3)?));
        }
    }
    if others.is_empty() {
        let name = process_name();
        transaction
            .execute_typed(
                &format!(
                    "insert into {table} (token, name, beat, live, seq, version, shared)
                     values ($1, $2, 0, true, 0, $3, $4)"
                ),
                &[
                    (&incarnation.token, Type::TEXT),
                    (&name, Type::TEXT),
                    (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                    (&(sharing == StoreSharing::Shared), Type::BOOL),
                ],
            )
            .await?;
        transaction.commit().await?;
        return Ok(JoinAttempt::Joined);
    }
    transaction.rollback().await?;
    Ok(JoinAttempt::Occupied(others))
}

/// Returns a name for operators: host and process id.
fn process_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}

impl WriterIncarnation {
    /// Returns the number of the last commit; `None` if the incarnation is no longer live. If a commit is still in
    /// flight on a lost connection, waits until it ends.
    pub(super) async fn last_commit(
        &self,
        client: &Client,
        names: &TableNames,
    ) -> Result<Option<i64>, DatabaseError> {
        let statement =
            format!("select seq, live from {} where token = $1 for no key update", names.incarnation_table());
        let row = client.query_typed_opt(&statement, &[(&self.token, Type::TEXT)]).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(if row.try_get(1)? { Some(row.try_get(0)?) } else { None })
    }

    /// Raises the beat; returns false if the incarnation is no longer live, or its last commit has another number.
    pub(super) async fn record_heartbeat(
        &self,
        client: &Client,
        names: &TableNames,
        last_commit: i64,
    ) -> Result<bool, DatabaseError> {
        let statement = format!(
            "update {} set beat = beat + 1 where token = $1 and live and seq = $2",
            names.incarnation_table()
        );
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&self.token, Type::TEXT), (&last_commit, Type::INT8)];
        Ok(client.execute_typed(&statement, &values).await? == 1)
    }

    /// Ends the incarnation, so that the next process joins at once.
    pub(super) async fn leave(&self, client: &Client, names: &TableNames) -> Result<(), DatabaseError> {
        let statement = format!("update {} set live = false where token = $1", names.incarnation_table());
        client.execute_typed(&statement, &[(&self.token, Type::TEXT)]).await?;
        Ok(())
    }

    /// Returns the process name of the live incarnation that joined last. If this incarnation is dead, the name is that
    /// of another process.
    pub(super) async fn active_process_name(
        client: &Client,
        names: &TableNames,
    ) -> Result<String, DatabaseError> {
        let statement =
            format!("select name from {} where live order by id desc limit 1", names.incarnation_table());
        let row = client.query_typed_opt(&statement, &[]).await?;
        Ok(row.map_or_else(|| Ok("a process that ended since".to_owned()), |row| row.try_get(0))?)
    }
}
