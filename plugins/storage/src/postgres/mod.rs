//! Store in a PostgreSQL database, version 15 or newer.
//!
//! Every [`StoreTable`] is a table `(key, value, sum)`, so all engines store the same rows, and one engine can import
//! the export of another. One connection writes, see `writer.rs`; another reads. Statements are unnamed and sent with
//! their types, which works behind a pooler in transaction mode. One process at a time uses a database unless
//! [`StoreSharing::Shared`] is set, see `incarnation.rs`.
//!
//! Every call blocks its thread, while the connections run on a runtime of their own.

mod connection;
mod incarnation;
mod locked_rows;
mod open;
mod options;
mod reader;
mod rows;
mod schema;
mod snapshot;
mod status;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;

use self::reader::Reader;
use self::rows::ScanStart;
use self::status::DatabaseStatus;
use self::writer::WriteJob;
use crate::{
    RowPage, RowScan, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, StoredRow, Transaction,
    VerifyOutcome,
};

pub use self::open::{
    DatabaseReport, begin_import, check_postgres, check_postgres_options, describe_database, finish_import,
    open_postgres,
};
pub use self::options::{PasswordSource, PostgresOptions, StoreSharing};

struct PostgresStore {
    reader: Arc<Reader>,
    status: Arc<DatabaseStatus>,
    timeout: Duration,
    fail_fast_after: Duration,
    /// Sender of transactions to the writer thread; `None` while closing.
    jobs: Option<SyncSender<WriteJob>>,
    writer: Option<JoinHandle<()>>,
    /// Runtime of the connections; `None` while closing.
    runtime: Option<Runtime>,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        // The runtime shuts down in the background, because it must not be dropped on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Returns an error if the database has not answered for `fail_fast_after`, so that calls fail immediately.
    fn check_reachable(&self) -> Result<(), StoreError> {
        match self.status.outage_or_stall_duration() {
            Some(outage) if outage >= self.fail_fast_after => {
                Err(StoreError::Unreachable { what: format!("no answer for {} s", outage.as_secs()) })
            }
            _ => Ok(()),
        }
    }

    /// Runs a read on the runtime and waits for it.
    fn read<T: Send + 'static, F>(
        &self,
        query: impl FnMut(Arc<tokio_postgres::Client>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, connection::DatabaseError>> + Send,
    {
        self.check_reachable()?;
        let runtime = self.runtime.as_ref().ok_or_else(|| closing("read, because it is closing"))?;
        let (reply, answered) = sync_channel(1);
        let reader = Arc::clone(&self.reader);
        runtime.spawn(async move { drop(reply.send(reader.read_with_retry(query).await)) });
        answered
            .recv_timeout(self.timeout)
            .map_err(|_| StoreError::Unreachable { what: "no answer in time".to_owned() })?
    }

    fn scan_from(
        &self,
        table: StoreTable,
        prefix: &[u8],
        from: ScanStart,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let (names, prefix) = (self.reader.names.clone(), prefix.to_vec());
        self.read(move |client| {
            let (names, prefix, from) = (names.clone(), prefix.clone(), from.clone());
            async move { rows::scan(&client, &names, table, &prefix, from, limit).await }
        })
    }

    /// Passes all rows of one snapshot to `each`, page by page: the table, and each row or its error. One page has rows
    /// of one table.
    fn for_each_page(
        &self,
        mut each: impl FnMut(StoreTable, Vec<Result<StoredRow, StoreError>>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.check_reachable()?;
        let runtime = self.runtime.as_ref().ok_or_else(|| closing("read, because it is closing"))?;
        let (pages, received) = sync_channel(1);
        let reader = Arc::clone(&self.reader);
        runtime.spawn(async move { snapshot::send_pages(&reader, &pages).await });
        loop {
            match received.recv_timeout(self.timeout) {
                Ok(Ok(Some((table, rows)))) => each(table, rows)?,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(StoreError::Unreachable { what: "no answer in time".to_owned() }),
            }
        }
    }
}

const fn closing(operation: &'static str) -> StoreError {
    StoreError::Io { what: operation, kind: std::io::ErrorKind::BrokenPipe }
}

impl Store for PostgresStore {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let (names, key) = (self.reader.names.clone(), key.to_vec());
        self.read(move |client| {
            let (names, key) = (names.clone(), key.clone());
            async move { rows::get(&client, &names, space, &key).await }
        })
    }

    fn get_many(&self, space: StoreTable, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = self.reader.names.clone();
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        self.read(move |client| {
            let (names, keys) = (names.clone(), keys.clone());
            async move { rows::get_many(&client, &names, space, &keys).await }
        })
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.scan_from(space, prefix, ScanStart::After(after.map(<[u8]>::to_vec)), limit)
    }

    fn scan_many(&self, scans: &[RowScan]) -> Result<Vec<RowPage>, StoreError> {
        let (names, scans) = (self.reader.names.clone(), scans.to_vec());
        self.read(move |client| {
            let (names, scans) = (names.clone(), scans.clone());
            async move { rows::scan_many(&client, &names, &scans).await }
        })
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.scan_from(space, prefix, ScanStart::Before(before.map(<[u8]>::to_vec)), limit)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        batch.check_limits()?;
        self.check_reachable()?;
        let (reply, answered) = sync_channel(1);
        let gone = || closing("write, because it is closing");
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(WriteJob { transaction: batch, reply }).map_err(|_| gone())?;
        match answered.recv_timeout(self.timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(StoreError::Stuck),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.for_each_page(|table, rows| {
            rows.into_iter().try_for_each(|row| {
                let row = row?;
                sink(SnapshotRow { table, key: &row.key, value: Some(&row.value) })
            })
        })
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        let mut outcome = VerifyOutcome::default();
        self.for_each_page(|_, rows| {
            on_rows_read(rows.len() as u64);
            for row in rows {
                match row {
                    Ok(row) => {
                        outcome.rows += 1;
                        outcome.bytes += (row.key.len() + row.value.len()) as u64;
                    }
                    Err(error) => {
                        outcome.damaged += 1;
                        if outcome.findings.len() < snapshot::MAX_FINDINGS {
                            outcome.findings.push(format!("{error}."));
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(outcome)
    }

    fn health(&self) -> StoreHealth {
        self.status.health(self.fail_fast_after)
    }
}
