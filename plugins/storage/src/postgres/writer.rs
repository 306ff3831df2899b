//! Writer thread: like the writer of the embedded engine, it commits the queued transactions in groups, each group as
//! one database transaction.
//!
//! A group is tried again after a conflict or a lost connection. If the answer to a commit is lost, the number of the
//! incarnation's last commit, read on the next connection, shows if the commit was applied. So no group is applied
//! twice.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::connection::{DatabaseError, connect};
use super::incarnation::{IdentityFile, WriterIncarnation};
use super::locked_rows::LockedRows;
use super::options::ConnectSettings;
use super::schema::TableNames;
use super::status::{DatabaseStatus, WritePermission};
use crate::transaction_group::evaluate_group;
use crate::{StoreError, Transaction};

/// Capacity of the queue; further callers block.
pub(super) const QUEUE_CAPACITY: usize = 1_024;
/// Maximum number of transactions in a group.
const MAX_GROUP: usize = 256;
/// Size in bytes from which a group takes no further transaction.
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;
/// Time from the first attempt of a group within which the group is retried.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Timeout of one attempt. It is longer than the time after which the server ends a transaction whose connection was
/// lost.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(12);
/// Timeout of a heartbeat, including connecting.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum pause before a retry. Each pause is random, from a tenth of this time to all of it; pauses do not grow.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Queued transaction with the reply channel of its caller.
pub(super) struct WriteJob {
    pub(super) transaction: Transaction,
    pub(super) reply: SyncSender<Result<(), StoreError>>,
}

type GroupResults = Vec<Result<(), StoreError>>;

/// Thread that writes transactions in groups, each as one transaction of the database.
pub(super) struct GroupWriter {
    pub(super) runtime: Handle,
    pub(super) settings: ConnectSettings,
    pub(super) names: TableNames,
    pub(super) incarnation: WriterIncarnation,
    pub(super) status: Arc<DatabaseStatus>,
    pub(super) heartbeat_interval: Duration,
    /// Open database connection; `None` while it is lost.
    pub(super) client: Option<Client>,
    /// Number of the last commit of this incarnation.
    pub(super) seq: i64,
    /// Number and results of a commit whose answer was lost; `None` if there is no such commit.
    pub(super) unanswered: Option<(i64, GroupResults)>,
    /// Lock of the folder, held while the thread runs.
    pub(super) identity: IdentityFile,
}

impl GroupWriter {
    /// Writes the queued transactions in groups and sends heartbeats, until every sender of `jobs` is dropped. Then
    /// ends the incarnation.
    pub(super) fn run(mut self, jobs: &Receiver<WriteJob>) {
        let (mut last_commit, mut last_beat) = (self.seq, Instant::now());
        loop {
            match jobs.recv_timeout(self.heartbeat_interval.saturating_sub(last_beat.elapsed())) {
                Ok(first) => self.write_group(first, jobs),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // A commit is a heartbeat; a group in which every transaction failed is rolled back and is none.
            if self.seq != last_commit {
                (last_commit, last_beat) = (self.seq, Instant::now());
            } else if last_beat.elapsed() >= self.heartbeat_interval {
                self.send_heartbeat();
                last_beat = Instant::now();
            }
        }
        let leaving = async {
            if let Some(client) = &self.client {
                let _ = self.incarnation.leave(client, &self.names).await;
            }
        };
        let _ = self.runtime.clone().block_on(async { tokio::time::timeout(RETRY_TIME, leaving).await });
        drop(self.identity);
    }

    fn write_group(&mut self, first: WriteJob, jobs: &Receiver<WriteJob>) {
        let mut bytes = first.transaction.byte_len();
        let mut group = vec![first];
        while group.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
            let Ok(job) = jobs.try_recv() else { break };
            bytes += job.transaction.byte_len();
            group.push(job);
        }
        let transactions: Vec<&Transaction> = group.iter().map(|job| &job.transaction).collect();
        self.status.mark_busy();
        let runtime = self.runtime.clone();
        let results = runtime.block_on(self.commit_with_retries(&transactions));
        self.status.mark_idle();
        let results = results.unwrap_or_else(|error| vec![Err(error); group.len()]);
        for (job, result) in group.into_iter().zip(results) {
            // An error is ignored: it means that the caller has timed out and dropped the receiver.
            let _ = job.reply.send(result);
        }
    }

    fn send_heartbeat(&mut self) {
        if self.status.write_permission() != WritePermission::Active {
            return;
        }
        let runtime = self.runtime.clone();
        let beaten = runtime.block_on(async {
            let beating = tokio::time::timeout(HEARTBEAT_TIMEOUT, self.beat());
            beating.await.unwrap_or_else(|_| Err(no_answer()))
        });
        self.note(beaten.as_ref().err());
    }

    async fn beat(&mut self) -> Result<(), DatabaseError> {
        self.ensure_connected().await?;
        let client = self.client.as_ref().ok_or_else(not_connected)?;
        if self.incarnation.record_heartbeat(client, &self.names, self.seq).await? {
            return Ok(());
        }
        // A connection pooler does not close this connection when a standby takes over. So a new connection is
        // opened, and the number of the last commit is read again.
        self.client = None;
        self.ensure_connected().await
    }

    async fn commit_with_retries(&mut self, group: &[&Transaction]) -> Result<GroupResults, StoreError> {
        let started = Instant::now();
        loop {
            let tried = tokio::time::timeout(ATTEMPT_TIMEOUT, self.commit(group)).await;
            let tried = tried.unwrap_or_else(|_| Err(no_answer()));
            self.note(tried.as_ref().err());
            match tried {
                Ok(results) => return Ok(results),
                Err(DatabaseError::Permanent(error)) => {
                    self.unanswered = None;
                    return Err(error);
                }
                Err(error) if started.elapsed() >= RETRY_TIME => {
                    let is_unknown = self.unanswered.take().is_some();
                    return Err(if is_unknown { StoreError::Stuck } else { error.into() });
                }
                Err(_) => {
                    tokio::time::sleep(MAX_PAUSE.mul_f64(rand::random_range(0.1..1.0))).await;
                }
            }
        }
    }

    /// Updates the shared status after an attempt, and closes the connection after an error.
    fn note(&mut self, error: Option<&DatabaseError>) {
        match error {
            None => self.status.mark_answered(),
            Some(error) => {
                // The connection is closed, so that the server rolls back its open transaction.
                self.client = None;
                if matches!(error, DatabaseError::Lost(_)) {
                    self.status.mark_lost();
                }
            }
        }
    }

    /// Connects if there is no connection, and reads the number of the last commit.
    async fn ensure_connected(&mut self) -> Result<(), DatabaseError> {
        if self.client.as_ref().is_some_and(|client| !client.is_closed()) {
            return Ok(());
        }
        self.client = None;
        let client = connect(&self.settings).await?;
        let last = self.incarnation.last_commit(&client, &self.names).await?;
        self.client = Some(client);
        match last {
            Some(seq) if seq < self.seq => {
                self.status.end_writes(WritePermission::Reverted);
                Err(DatabaseError::Permanent(StoreError::Reverted))
            }
            Some(seq) => {
                self.seq = seq;
                Ok(())
            }
            None => Err(self.fence().await),
        }
    }

    /// Records that another process has taken over; returns the error of all further writes.
    async fn fence(&mut self) -> DatabaseError {
        let holder = match &self.client {
            Some(client) => WriterIncarnation::active_process_name(client, &self.names).await.ok(),
            None => None,
        };
        self.status.end_writes(WritePermission::Fenced);
        let holder = holder.unwrap_or_else(|| "another process".to_owned());
        DatabaseError::Permanent(StoreError::Evicted { what: format!("{holder} has taken over") })
    }

    async fn commit(&mut self, group: &[&Transaction]) -> Result<GroupResults, DatabaseError> {
        match self.status.write_permission() {
            WritePermission::Active => {}
            WritePermission::Fenced => return Err(self.fence().await),
            WritePermission::Reverted => return Err(DatabaseError::Permanent(StoreError::Reverted)),
        }
        self.ensure_connected().await?;
        if let Some((_, results)) = self.unanswered.take_if(|(number, _)| *number == self.seq) {
            return Ok(results);
        }
        let client = self.client.as_ref().ok_or_else(not_connected)?;
        client
            .batch_execute("begin; set local idle_in_transaction_session_timeout = '10s'; set local statement_timeout = '10s'")
            .await?;
        let claim = format!(
            "update {} set seq = seq + 1, beat = beat + 1 where token = $1 and live and seq = $2",
            self.names.incarnation_table()
        );
        let claimed = client
            .execute_typed(&claim, &[(&self.incarnation.token, Type::TEXT), (&self.seq, Type::INT8)])
            .await?;
        if claimed != 1 {
            // The next attempt connects and reads the number again, or finds that the incarnation is dead. Reason: a
            // commit whose answer was lost may have been applied just now, because until then it held the lock on the
            // row.
            return Err(DatabaseError::Conflict);
        }
        // This transaction now has the lock on the incarnation's row and found the old number. So a commit whose
        // answer was lost was not applied, and can no longer be applied.
        self.unanswered = None;
        let rows = LockedRows::read_and_lock(client, &self.names, group).await?;
        let (results, writes) = evaluate_group(group.iter().copied(), |key| rows.stored_row(key));
        if writes.is_empty() {
            client.batch_execute("rollback").await?;
            return Ok(results);
        }
        rows.write(client, &self.names, writes).await?;
        self.unanswered = Some((self.seq + 1, results));
        let committed = client.batch_execute("commit").await.map_err(DatabaseError::from);
        #[cfg(feature = "inject")]
        fail::fail_point!("commit_answer", committed.is_ok(), |_| Err(no_answer()));
        match committed {
            Ok(()) => {
                self.seq += 1;
                Ok(self.unanswered.take().map(|(_, results)| results).unwrap_or_default())
            }
            Err(error @ DatabaseError::Lost(_)) => Err(error),
            Err(error) => {
                self.unanswered = None;
                Err(error)
            }
        }
    }
}

fn not_connected() -> DatabaseError {
    DatabaseError::Lost("there is no connection".to_owned())
}

fn no_answer() -> DatabaseError {
    DatabaseError::Lost("no answer in time".to_owned())
}
