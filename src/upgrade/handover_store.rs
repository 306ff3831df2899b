//! Store that is open in this process, or in the process that took it over. Calls during the handover wait until the
//! handover has ended.

use crate::upgrade::control_channel::ControlChannel;
use parking_lot::RwLock;
use penstock_storage::{
    RowAddition, RowOperation, RowPage, RowScan, SnapshotRow, Store, StoreError, StoreHealth, StoreTable,
    StoredRow, Transaction, TransactionOp, VerifyOutcome,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Location of the store: in this process, in the successor, or lost.
enum StoreLocation {
    Local(Arc<dyn Store>),
    Remote(Arc<ControlChannel>),
    /// Store that could not be opened again after a failed handover.
    Lost,
}

/// Store that can be handed over to another process.
pub struct HandoverStore(RwLock<StoreLocation>);

/// Request to the store that the other process has open.
#[derive(Serialize, Deserialize)]
pub enum StoreRequest {
    /// Arguments of [`Store::get`].
    Get(u8, Vec<u8>),
    /// Arguments of [`Store::scan`].
    Scan(u8, Vec<u8>, Option<Vec<u8>>, usize),
    /// Arguments of [`Store::scan_back`].
    ScanBack(u8, Vec<u8>, Option<Vec<u8>>, usize),
    /// Arguments of [`Store::apply`].
    Apply(Vec<StoreOp>),
}

/// Operation of a transaction: tag of the table, key of the row, and kind of the operation.
#[derive(Serialize, Deserialize)]
pub struct StoreOp(u8, Vec<u8>, StoreOpKind);

#[derive(Serialize, Deserialize)]
enum StoreOpKind {
    Absent,
    Present,
    Is(Vec<u8>),
    Put(Vec<u8>),
    Delete,
    Add(i64, Option<i64>, Option<i64>),
    Sum(RowAddition),
}

/// Response of the store that the other process has open.
#[derive(Serialize, Deserialize)]
pub enum StoreResponse {
    /// Value of a row, if the row exists.
    Row(Option<Vec<u8>>),
    /// Page of rows, each with its key and value; true if there are more.
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    /// Success of a transaction.
    Done,
    /// Failed precondition of a transaction, with the index of its operation.
    Guard(usize),
    /// Error because the disk is full.
    Full,
    /// Error because stored data is damaged.
    Corrupt(String),
    /// Any other error; the result of a transaction is then unknown.
    Failed,
}

impl HandoverStore {
    /// Creates the handle of a store that this process has open.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(RwLock::new(StoreLocation::Local(store)))
    }

    /// Closes the store and waits for `taken`, which returns the connection to the process that opened it. If `taken`
    /// fails, `back` opens the store again. This call blocks, and all other calls wait meanwhile.
    ///
    /// # Errors
    /// Returns the reason of the failure, and the error of `back` if the store could not be opened again.
    pub fn hand_over_store(
        &self,
        taken: impl FnOnce() -> Result<Arc<ControlChannel>, String>,
        back: impl FnOnce() -> Result<Arc<dyn Store>, String>,
    ) -> Result<Arc<ControlChannel>, String> {
        let mut location = self.0.write();
        *location = StoreLocation::Lost;
        let why = match taken() {
            Ok(link) => {
                *location = StoreLocation::Remote(link.clone());
                return Ok(link);
            }
            Err(why) => why,
        };
        match back() {
            Ok(store) => {
                *location = StoreLocation::Local(store);
                Err(why)
            }
            Err(worse) => Err(format!("{why} {worse}")),
        }
    }

    fn dispatch<T>(
        &self,
        here: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
        there: impl FnOnce() -> StoreRequest,
        parse_response: impl FnOnce(StoreResponse) -> Option<T>,
    ) -> Result<T, StoreError> {
        let location = self.0.read();
        match &*location {
            StoreLocation::Local(store) => here(&**store),
            StoreLocation::Remote(link) => {
                let link = link.clone();
                drop(location);
                match link.call_remote_store(there()).ok_or(NO_ANSWER)? {
                    StoreResponse::Guard(step) => Err(StoreError::Guard { step }),
                    StoreResponse::Full => Err(StoreError::Full),
                    StoreResponse::Corrupt(what) => Err(StoreError::Corrupt { what }),
                    StoreResponse::Failed => Err(FAILED),
                    answer => parse_response(answer).ok_or(FAILED),
                }
            }
            StoreLocation::Lost => Err(LOST),
        }
    }
}

const NO_ANSWER: StoreError =
    StoreError::HandedOver { what: "the process that took over the store does not answer any more" };
const FAILED: StoreError =
    StoreError::HandedOver { what: "the process that took over the store could not execute the request" };
const LOST: StoreError =
    StoreError::HandedOver { what: "the store could not be opened again after an upgrade that failed" };
const REMOTE: StoreError =
    StoreError::HandedOver { what: "the store is open in the process that took it over" };

impl std::fmt::Debug for HandoverStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl Store for HandoverStore {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = |answer| if let StoreResponse::Row(row) = answer { Some(row) } else { None };
        self.dispatch(|store| store.get(space, key), || StoreRequest::Get(space.tag(), key.to_vec()), row)
    }

    fn get_many(&self, space: StoreTable, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        if let StoreLocation::Local(store) = &*self.0.read() {
            return store.get_many(space, keys);
        }
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let call = || StoreRequest::Scan(space.tag(), prefix.to_vec(), after.map(<[u8]>::to_vec), limit);
        self.dispatch(|store| store.scan(space, prefix, after, limit), call, to_page)
    }

    fn scan_many(&self, scans: &[RowScan]) -> Result<Vec<RowPage>, StoreError> {
        if let StoreLocation::Local(store) = &*self.0.read() {
            return store.scan_many(scans);
        }
        let page = |scan: &RowScan| self.scan(scan.table, &scan.prefix, scan.after.as_deref(), scan.limit);
        scans.iter().map(page).collect()
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let call = || StoreRequest::ScanBack(space.tag(), prefix.to_vec(), before.map(<[u8]>::to_vec), limit);
        self.dispatch(|store| store.scan_back(space, prefix, before, limit), call, to_page)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        let location = self.0.read();
        if let StoreLocation::Local(store) = &*location {
            return store.apply(batch);
        }
        drop(location);
        let changes =
            || StoreRequest::Apply(batch.operations().iter().map(StoreOp::from_operation).collect());
        self.dispatch(
            |store| store.apply(batch.clone()),
            changes,
            |answer| matches!(answer, StoreResponse::Done).then_some(()),
        )
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match &*self.0.read() {
            StoreLocation::Local(store) => store.copy_rows(sink),
            StoreLocation::Remote(_) => Err(REMOTE),
            StoreLocation::Lost => Err(LOST),
        }
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        match &*self.0.read() {
            StoreLocation::Local(store) => store.verify_with_progress(on_rows_read),
            StoreLocation::Remote(_) => Err(REMOTE),
            StoreLocation::Lost => Err(LOST),
        }
    }

    /// Returns the health of the store. Never blocks, because it is called from async tasks.
    fn health(&self) -> StoreHealth {
        match self.0.try_read().as_deref() {
            Some(StoreLocation::Local(store)) => store.health(),
            Some(StoreLocation::Remote(link)) if link.is_lost() => StoreHealth::Failed,
            Some(StoreLocation::Lost) => StoreHealth::Failed,
            Some(StoreLocation::Remote(_)) | None => StoreHealth::Ready,
        }
    }
}

fn to_page(answer: StoreResponse) -> Option<RowPage> {
    let StoreResponse::Page(rows, more) = answer else { return None };
    Some(RowPage { rows: rows.into_iter().map(|(key, value)| StoredRow { key, value }).collect(), more })
}

impl StoreOp {
    fn from_operation(operation: &RowOperation) -> Self {
        let kind = match &operation.op {
            TransactionOp::Absent => StoreOpKind::Absent,
            TransactionOp::Present => StoreOpKind::Present,
            TransactionOp::Equals(row) => StoreOpKind::Is(row.clone()),
            TransactionOp::Put(row) => StoreOpKind::Put(row.clone()),
            TransactionOp::Delete => StoreOpKind::Delete,
            TransactionOp::Add { delta, min, max } => StoreOpKind::Add(*delta, *min, *max),
            TransactionOp::AddAmounts(amounts) => StoreOpKind::Sum(amounts.clone()),
        };
        Self(operation.table.tag(), operation.key.clone(), kind)
    }

    fn add_to(self, batch: Transaction) -> Option<Transaction> {
        let Self(tag, key, kind) = self;
        let space = table_of_tag(tag)?;
        Some(match kind {
            StoreOpKind::Absent => batch.require_absent(space, key),
            StoreOpKind::Present => batch.require_present(space, key),
            StoreOpKind::Is(row) => batch.require_value(space, key, row),
            StoreOpKind::Put(row) => batch.put(space, key, row),
            StoreOpKind::Delete => batch.delete(space, key),
            StoreOpKind::Add(by, min, max) => batch.add_to_counter(space, key, by, min, max),
            StoreOpKind::Sum(amounts) => batch.add_amounts(space, key, amounts),
        })
    }
}

fn table_of_tag(tag: u8) -> Option<StoreTable> {
    StoreTable::ALL.into_iter().find(|space| space.tag() == tag)
}

impl StoreRequest {
    /// Returns true if the request writes the record of a batch. The process that has the store open has to run this
    /// batch.
    #[must_use]
    pub fn is_batch_write(&self) -> bool {
        let batches = |change: &StoreOp| {
            change.0 == StoreTable::Batches.tag() && matches!(change.2, StoreOpKind::Put(_))
        };
        matches!(self, Self::Apply(changes) if changes.iter().any(batches))
    }

    /// Executes the request on a store, and returns the response.
    #[must_use]
    pub fn execute(self, store: &dyn Store) -> StoreResponse {
        self.try_execute(store).unwrap_or_else(|error| match error {
            Some(StoreError::Guard { step }) => StoreResponse::Guard(step),
            Some(StoreError::Full) => StoreResponse::Full,
            Some(StoreError::Corrupt { what }) => StoreResponse::Corrupt(what),
            _ => StoreResponse::Failed,
        })
    }

    fn try_execute(self, store: &dyn Store) -> Result<StoreResponse, Option<StoreError>> {
        let page_response = |page: RowPage| {
            StoreResponse::Page(page.rows.into_iter().map(|row| (row.key, row.value)).collect(), page.more)
        };
        Ok(match self {
            Self::Get(tag, key) => StoreResponse::Row(store.get(table_of_tag(tag).ok_or(None)?, &key)?),
            Self::Scan(tag, prefix, after, limit) => {
                page_response(store.scan(table_of_tag(tag).ok_or(None)?, &prefix, after.as_deref(), limit)?)
            }
            Self::ScanBack(tag, prefix, before, limit) => page_response(store.scan_back(
                table_of_tag(tag).ok_or(None)?,
                &prefix,
                before.as_deref(),
                limit,
            )?),
            Self::Apply(changes) => {
                let added =
                    changes.into_iter().try_fold(Transaction::new(), |batch, change| change.add_to(batch));
                store.apply(added.ok_or(None)?)?;
                StoreResponse::Done
            }
        })
    }
}

#[cfg(test)]
mod tests;
