//! Store that may be in this process or in the one that took it over. Calls during the handover wait.

use crate::upgrade::control_channel::Link;
use parking_lot::RwLock;
use penstock_storage::{
    RowOperation, RowPage, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, StoredRow, Transaction,
    TransactionOp, VerifyOutcome,
};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::sync::Arc;

/// Location of the store.
enum Whereabouts {
    Here(Arc<dyn Store>),
    There(Arc<Link>),
    /// State after a failed handover, if the store could not be opened again.
    Nowhere,
}

/// Store that can be handed over to another process.
pub struct Handed(RwLock<Whereabouts>);

/// Request to the store of the other process.
#[derive(Serialize, Deserialize)]
pub enum Call {
    /// See [`Store::get`].
    Get(u8, Vec<u8>),
    /// See [`Store::scan`].
    Scan(u8, Vec<u8>, Option<Vec<u8>>, usize),
    /// See [`Store::scan_back`].
    ScanBack(u8, Vec<u8>, Option<Vec<u8>>, usize),
    /// See [`Store::apply`].
    Apply(Vec<Change>),
}

/// Operation of a transaction.
#[derive(Serialize, Deserialize)]
pub struct Change(u8, Vec<u8>, Kind);

#[derive(Serialize, Deserialize)]
enum Kind {
    Absent,
    Present,
    Is(Vec<u8>),
    Put(Vec<u8>),
    Delete,
}

/// Response of the store in the other process.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// Row, if it exists.
    Row(Option<Vec<u8>>),
    /// Rows, and true if there are more.
    Page(Vec<(Vec<u8>, Vec<u8>)>, bool),
    /// Success.
    Done,
    /// Failed precondition, with the index of its operation.
    Guard(usize),
    /// Full disk.
    Full,
    /// Damaged data.
    Corrupt(String),
    /// Any other error; the result of a transaction is then unknown.
    Failed,
}

impl Handed {
    /// Returns a store of this process.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(RwLock::new(Whereabouts::Here(store)))
    }

    /// Closes the store and waits for `taken`, which returns the connection to its new process; if that fails, `back`
    /// opens it again. This call and all others block meanwhile.
    ///
    /// # Errors
    /// Returns the reason of the failure, and the error of `back` if the store could not be opened again.
    pub fn hand_over(
        &self,
        taken: impl FnOnce() -> Result<Arc<Link>, String>,
        back: impl FnOnce() -> Result<Arc<dyn Store>, String>,
    ) -> Result<Arc<Link>, String> {
        let mut place = self.0.write();
        *place = Whereabouts::Nowhere;
        let why = match taken() {
            Ok(link) => {
                *place = Whereabouts::There(link.clone());
                return Ok(link);
            }
            Err(why) => why,
        };
        match back() {
            Ok(store) => {
                *place = Whereabouts::Here(store);
                Err(why)
            }
            Err(worse) => Err(format!("{why} {worse}")),
        }
    }

    fn with<T>(
        &self,
        here: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
        there: impl FnOnce() -> Call,
        read: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, StoreError> {
        let place = self.0.read();
        match &*place {
            Whereabouts::Here(store) => here(&**store),
            Whereabouts::There(link) => {
                let link = link.clone();
                drop(place);
                match link.call(there()).ok_or_else(away)? {
                    Answer::Guard(step) => Err(StoreError::Guard { step }),
                    Answer::Full => Err(StoreError::Full),
                    Answer::Corrupt(what) => Err(StoreError::Corrupt { what }),
                    Answer::Failed => Err(away()),
                    answer => read(answer).ok_or_else(away),
                }
            }
            Whereabouts::Nowhere => Err(away()),
        }
    }
}

fn away() -> StoreError {
    StoreError::Io { what: "answer: it is in another process", kind: ErrorKind::BrokenPipe }
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl Store for Handed {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = |answer| if let Answer::Row(row) = answer { Some(row) } else { None };
        self.with(|store| store.get(space, key), || Call::Get(space.tag(), key.to_vec()), row)
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let call = || Call::Scan(space.tag(), prefix.to_vec(), after.map(<[u8]>::to_vec), limit);
        self.with(|store| store.scan(space, prefix, after, limit), call, page)
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let call = || Call::ScanBack(space.tag(), prefix.to_vec(), before.map(<[u8]>::to_vec), limit);
        self.with(|store| store.scan_back(space, prefix, before, limit), call, page)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        let place = self.0.read();
        if let Whereabouts::Here(store) = &*place {
            return store.apply(batch);
        }
        drop(place);
        let changes = || Call::Apply(batch.operations().iter().map(Change::of).collect());
        self.with(
            |store| store.apply(batch.clone()),
            changes,
            |answer| matches!(answer, Answer::Done).then_some(()),
        )
    }

    fn copy(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match &*self.0.read() {
            Whereabouts::Here(store) => store.copy(sink),
            _ => Err(away()),
        }
    }

    fn verify_with(&self, read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        match &*self.0.read() {
            Whereabouts::Here(store) => store.verify_with(read),
            _ => Err(away()),
        }
    }

    /// Health of the store. Never blocks, because it is called from async tasks.
    fn health(&self) -> StoreHealth {
        match self.0.try_read().as_deref() {
            Some(Whereabouts::Here(store)) => store.health(),
            Some(Whereabouts::There(link)) if link.is_lost() => StoreHealth::Failed,
            Some(Whereabouts::Nowhere) => StoreHealth::Failed,
            Some(Whereabouts::There(_)) | None => StoreHealth::Ready,
        }
    }
}

fn page(answer: Answer) -> Option<RowPage> {
    let Answer::Page(rows, more) = answer else { return None };
    Some(RowPage { rows: rows.into_iter().map(|(key, value)| StoredRow { key, value }).collect(), more })
}

impl Change {
    fn of(operation: &RowOperation) -> Self {
        let kind = match &operation.op {
            TransactionOp::Absent => Kind::Absent,
            TransactionOp::Present => Kind::Present,
            TransactionOp::Equals(row) => Kind::Is(row.clone()),
            TransactionOp::Put(row) => Kind::Put(row.clone()),
            TransactionOp::Delete => Kind::Delete,
        };
        Self(operation.table.tag(), operation.key.clone(), kind)
    }

    fn add_to(self, batch: Transaction) -> Option<Transaction> {
        let Self(tag, key, kind) = self;
        let space = space(tag)?;
        Some(match kind {
            Kind::Absent => batch.require_absent(space, key),
            Kind::Present => batch.require_present(space, key),
            Kind::Is(row) => batch.require_value(space, key, row),
            Kind::Put(row) => batch.put(space, key, row),
            Kind::Delete => batch.delete(space, key),
        })
    }
}

fn space(tag: u8) -> Option<StoreTable> {
    StoreTable::ALL.into_iter().find(|space| space.tag() == tag)
}

impl Call {
    /// Returns true if the request writes a batch, which this process then has to run.
    #[must_use]
    pub fn is_of_batches(&self) -> bool {
        let batches =
            |change: &Change| change.0 == StoreTable::Batches.tag() && matches!(change.2, Kind::Put(_));
        matches!(self, Self::Apply(changes) if changes.iter().any(batches))
    }

    /// Executes the request.
    #[must_use]
    pub fn answer(self, store: &dyn Store) -> Answer {
        self.ask(store).unwrap_or_else(|error| match error {
            Some(StoreError::Guard { step }) => Answer::Guard(step),
            Some(StoreError::Full) => Answer::Full,
            Some(StoreError::Corrupt { what }) => Answer::Corrupt(what),
            _ => Answer::Failed,
        })
    }

    fn ask(self, store: &dyn Store) -> Result<Answer, Option<StoreError>> {
        let told = |page: RowPage| {
            Answer::Page(page.rows.into_iter().map(|row| (row.key, row.value)).collect(), page.more)
        };
        Ok(match self {
            Self::Get(tag, key) => Answer::Row(store.get(space(tag).ok_or(None)?, &key)?),
            Self::Scan(tag, prefix, after, limit) => {
                told(store.scan(space(tag).ok_or(None)?, &prefix, after.as_deref(), limit)?)
            }
            Self::ScanBack(tag, prefix, before, limit) => {
                told(store.scan_back(space(tag).ok_or(None)?, &prefix, before.as_deref(), limit)?)
            }
            Self::Apply(changes) => {
                let added =
                    changes.into_iter().try_fold(Transaction::new(), |batch, change| change.add_to(batch));
                store.apply(added.ok_or(None)?)?;
                Answer::Done
            }
        })
    }
}
