//! Claims of batches by the members of a fleet, and requests to end a batch that another member runs.
//!
//! ```text
//! batches  `c/` id       →  incarnation (4 bytes BE), number (8 bytes BE), commits (8 bytes BE), state (1 byte)
//! batches  `x/` id       →  reason to end the batch (1 byte)
//! batches  `n/` account  →  counter: number of the batches that the account has ever created in the fleet
//! ```
//! A member takes a claim by compare-and-set with the next number. Each commit of the holder requires the claim row
//! as its previous commit wrote it, and increments the number of commits in this row. So the commit of a former
//! holder is refused, and a retried commit whose outcome is unknown is applied only once. The rows are removed with
//! the last commit of the batch.

use super::slices::{parent_batch_id, slice_row_key};
use super::{BatchRecord, BatchStore, account_key, open_key, record_key};
use crate::ledger::{RowFence, RowWrite};
use crate::{StoreError, StoreTable, Transaction, parse_counter, versioned_json};

const CLAIM_PREFIX: &[u8] = b"c/";
const END_PREFIX: &[u8] = b"x/";
const CREATED_PREFIX: &[u8] = b"n/";
/// Maximum number of attempts to insert a batch while other members insert batches of the same account.
const MAX_ATTEMPTS: usize = 8;

/// State of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// Claim whose holder runs the batch while it is alive.
    Held,
    /// Claim whose holder has stopped and will write no more.
    Released,
}

/// Claim of a batch: the right of one gateway of the fleet to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchClaim {
    /// Incarnation of the member that took the claim.
    pub incarnation: u32,
    /// Number of the claim, from 1; each later claim of the same batch has the next number.
    pub number: u64,
    /// Number of commits that the holder of the claim has made under it.
    pub commits: u64,
    /// State of the claim: held or released.
    pub state: ClaimState,
}

impl BatchClaim {
    /// Returns the row of the claim.
    #[must_use]
    pub fn to_row(&self) -> Vec<u8> {
        let state = match self.state {
            ClaimState::Held => 0,
            ClaimState::Released => 1,
        };
        [
            &self.incarnation.to_be_bytes()[..],
            &self.number.to_be_bytes(),
            &self.commits.to_be_bytes(),
            &[state],
        ]
        .concat()
    }

    fn from_row(row: &[u8]) -> Result<BatchClaim, StoreError> {
        let claim = || {
            let (incarnation, rest) = row.split_first_chunk::<4>()?;
            let (number, rest) = rest.split_first_chunk::<8>()?;
            let (commits, state) = rest.split_first_chunk::<8>()?;
            let state = match state {
                [0] => ClaimState::Held,
                [1] => ClaimState::Released,
                _ => return None,
            };
            let (number, commits) = (u64::from_be_bytes(*number), u64::from_be_bytes(*commits));
            Some(BatchClaim { incarnation: u32::from_be_bytes(*incarnation), number, commits, state })
        };
        claim().ok_or_else(|| StoreError::corrupt("the claim of a batch"))
    }

    /// Returns true if `row` is the same or a later state of this claim: taken by the same incarnation with the same
    /// number, and still held.
    #[must_use]
    pub fn is_continued_by(&self, row: &BatchClaim) -> bool {
        (self.incarnation, self.number) == (row.incarnation, row.number) && row.state == ClaimState::Held
    }

    /// Returns the claim after one more commit.
    #[must_use]
    pub const fn after_commit(self) -> BatchClaim {
        BatchClaim { commits: self.commits.wrapping_add(1), ..self }
    }

    /// Returns the fence by which a commit succeeds only if the stored claim of the batch equals this claim.
    #[must_use]
    pub fn fence(&self, id: &str) -> RowFence {
        RowFence { table: StoreTable::Batches, key: claim_key(id), value: Some(self.to_row()) }
    }

    /// Returns the write of the claim's row, to include in a larger commit.
    #[must_use]
    pub fn row_write(&self, id: &str) -> RowWrite {
        RowWrite { table: StoreTable::Batches, key: claim_key(id), value: Some(self.to_row()) }
    }
}

/// Reason for which a member asks the holder of a claim to end a batch or its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndRequest {
    /// Cancellation by the client.
    Cancelled,
    /// Deletion of the input file.
    InputDeleted,
    /// Input file that cannot be processed. Used only for the slices of a batch.
    InvalidInput,
    /// Output file whose bytes differ from those written. Used only for the slices of a batch.
    OutputDamaged,
    /// End of the completion window. Used only for the slices of a batch.
    Expired,
    /// API key that is no longer valid. Used only for the slices of a batch.
    KeyRevoked,
}

impl EndRequest {
    /// Returns the byte by which a row identifies the reason.
    pub(super) const fn to_byte(self) -> u8 {
        match self {
            EndRequest::Cancelled => b'c',
            EndRequest::InputDeleted => b'd',
            EndRequest::InvalidInput => b'i',
            EndRequest::OutputDamaged => b'o',
            EndRequest::Expired => b'e',
            EndRequest::KeyRevoked => b'k',
        }
    }

    fn from_row(row: &[u8]) -> Result<EndRequest, StoreError> {
        match row {
            [b'c'] => Ok(EndRequest::Cancelled),
            [b'd'] => Ok(EndRequest::InputDeleted),
            [b'i'] => Ok(EndRequest::InvalidInput),
            [b'o'] => Ok(EndRequest::OutputDamaged),
            [b'e'] => Ok(EndRequest::Expired),
            [b'k'] => Ok(EndRequest::KeyRevoked),
            _ => Err(StoreError::corrupt("the request to end a batch")),
        }
    }
}

/// Rows of a batch that members of a fleet read to coordinate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCoordination {
    /// Claim of the batch, if one was ever taken.
    pub claim: Option<BatchClaim>,
    /// Request to the holder of the claim to end the batch, if there is one.
    pub end: Option<EndRequest>,
}

/// Result of an insertion in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchInsertOutcome {
    /// Batch that was inserted.
    Inserted,
    /// Refused insertion: the account already has the maximum number of unfinished batches.
    TooManyOpen,
    /// Refused insertion: a guard of the caller failed, or a batch with this id exists.
    Refused,
}

impl BatchStore {
    /// Returns the records of several batches; those that do not exist are left out.
    ///
    /// # Errors
    /// Same as [`crate::Store::get_many`].
    pub fn get_many(&self, ids: &[String]) -> Result<Vec<BatchRecord>, StoreError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| record_key(id)).collect();
        let rows = self.rows(&keys)?;
        rows.into_iter().flatten().map(|row| versioned_json::decode(super::WHAT, &row)).collect()
    }

    /// Returns, for each of several batches or slices, the claim and the request to end it. For a slice, the request
    /// is that of its batch.
    ///
    /// # Errors
    /// Same as [`crate::Store::get_many`].
    pub fn coordination(&self, ids: &[String]) -> Result<Vec<BatchCoordination>, StoreError> {
        let keys: Vec<Vec<u8>> =
            ids.iter().flat_map(|id| [claim_key(id), end_request_key(parent_batch_id(id))]).collect();
        let rows = self.rows(&keys)?;
        rows.chunks(2)
            .map(|pair| {
                let row = |index: usize| pair.get(index).and_then(Option::as_deref);
                let claim = row(0).map(BatchClaim::from_row).transpose()?;
                Ok(BatchCoordination { claim, end: row(1).map(EndRequest::from_row).transpose()? })
            })
            .collect()
    }

    /// Returns the rows of many keys, read in pages of at most [`crate::MAX_PAGE_ROWS`].
    fn rows(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut rows = Vec::with_capacity(keys.len());
        for page in keys.chunks(crate::MAX_PAGE_ROWS) {
            let page: Vec<&[u8]> = page.iter().map(Vec::as_slice).collect();
            rows.extend(self.store.get_many(StoreTable::Batches, &page)?);
        }
        Ok(rows)
    }

    /// Takes the claim of a batch for an incarnation, in place of `observed_claim`; `alive` is the row that
    /// exists while the incarnation may write. Returns `None` if the claim has changed, the batch has ended, or the
    /// incarnation may no longer write. The caller must already have observed that the former holder released the claim
    /// or is dead.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn take_claim(
        &self,
        id: &str,
        observed_claim: Option<&BatchClaim>,
        incarnation: u32,
        alive: Option<&RowFence>,
    ) -> Result<Option<BatchClaim>, StoreError> {
        let open = match observed_claim {
            // The observed claim suffices as a guard, because an ended batch has no claim row. Without a claim, the
            // row of the unfinished batch is the guard.
            Some(_) => Transaction::new(),
            None => Transaction::new().require_present(StoreTable::Batches, open_key(id)),
        };
        self.take_claim_if(id, observed_claim, incarnation, open.append_operations(fence_guards(alive)))
    }

    /// Takes a claim in place of `observed_claim` if the guards of `conditions` hold; returns `None` if one
    /// of them fails or the claim has changed.
    pub(super) fn take_claim_if(
        &self,
        id: &str,
        observed_claim: Option<&BatchClaim>,
        incarnation: u32,
        conditions: Transaction,
    ) -> Result<Option<BatchClaim>, StoreError> {
        let number = observed_claim.map_or(0, |former| former.number).wrapping_add(1);
        let claim = BatchClaim { incarnation, number, commits: 0, state: ClaimState::Held };
        let (table, key) = (StoreTable::Batches, claim_key(id));
        let guards = match observed_claim {
            Some(former) => Transaction::new().require_value(table, key.as_slice(), former.to_row()),
            None => Transaction::new().require_absent(table, key.as_slice()),
        };
        match self.store.apply(guards.append_operations(conditions).put(table, key, claim.to_row())) {
            Ok(()) => Ok(Some(claim)),
            Err(StoreError::Guard { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Releases a claim, so that another member continues the batch. Does nothing if the stored claim is no longer this
    /// one.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn release_claim(&self, id: &str, claim: &BatchClaim) -> Result<(), StoreError> {
        let (key, released) = (claim_key(id), BatchClaim { state: ClaimState::Released, ..*claim });
        let held = Transaction::new().require_value(StoreTable::Batches, key.as_slice(), claim.to_row());
        match self.store.apply(held.put(StoreTable::Batches, key, released.to_row())) {
            Ok(()) | Err(StoreError::Guard { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks the holder of a batch to end it. Only the first request has an effect. Does nothing if the batch has ended.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn request_end(&self, id: &str, request: EndRequest) -> Result<(), StoreError> {
        // The batch may be divided into slices in the meantime; then it has the second row instead of the first.
        for open in [open_key(id), slice_row_key(id)] {
            let open = Transaction::new().require_present(StoreTable::Batches, open);
            let first = open.require_absent(StoreTable::Batches, end_request_key(id));
            match self.store.apply(first.put(
                StoreTable::Batches,
                end_request_key(id),
                vec![request.to_byte()],
            )) {
                Ok(()) | Err(StoreError::Guard { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds a batch in one transaction with `operations` if the account has fewer than `max_unfinished` unfinished
    /// batches of the same kind: background responses, or batches with files. The limit holds even if other members add
    /// batches at the same time.
    ///
    /// # Errors
    /// Returns `Guard` if all attempts failed because other members added batches of the account, and the errors of
    /// [`crate::Store::apply`].
    pub fn insert_within_limit(
        &self,
        record: &BatchRecord,
        operations: &Transaction,
        max_unfinished: usize,
    ) -> Result<BatchInsertOutcome, StoreError> {
        let created = [CREATED_PREFIX, record.account.as_bytes()].concat();
        let mut last_error = StoreError::Guard { step: 0 };
        for _ in 0..MAX_ATTEMPTS {
            let row = self.store.get(StoreTable::Batches, &created)?;
            let open = self.get_many(&self.unfinished_ids()?)?;
            let is_rival = |other: &&BatchRecord| {
                other.account == record.account && other.background.is_some() == record.background.is_some()
            };
            if open.iter().filter(is_rival).count() >= max_unfinished {
                return Ok(BatchInsertOutcome::TooManyOpen);
            }
            let number = parse_counter(row.as_deref())?.wrapping_add(1);
            let first = match row {
                Some(row) => Transaction::new().require_value(StoreTable::Batches, created.as_slice(), row),
                None => Transaction::new().require_absent(StoreTable::Batches, created.as_slice()),
            };
            let batch = first
                .put(StoreTable::Batches, created.as_slice(), crate::counter_row(number))
                .append_operations(self.insert_operations(record)?)
                .append_operations(operations.clone());
            match self.store.apply(batch) {
                Ok(()) => return Ok(BatchInsertOutcome::Inserted),
                // A failed first guard means that another batch of the account was added after the unfinished batches
                // were counted.
                Err(error @ StoreError::Guard { step: 0 }) => last_error = error,
                Err(StoreError::Guard { .. }) => return Ok(BatchInsertOutcome::Refused),
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// Returns the operations that add a batch and its index rows; the first guard fails if its id exists.
    pub(super) fn insert_operations(&self, record: &BatchRecord) -> Result<Transaction, StoreError> {
        let key = record_key(&record.id);
        let own = Transaction::new().require_absent(StoreTable::Batches, key.as_slice()).put(
            StoreTable::Batches,
            key,
            versioned_json::encode(super::WHAT, record)?,
        );
        let listed = match record.background {
            None => own.put(StoreTable::Batches, account_key(record), Vec::new()),
            Some(_) => own,
        };
        Ok(listed.put(StoreTable::Batches, open_key(&record.id), Vec::new()))
    }
}

/// Returns the claim with which an incarnation inserts a batch that it will run itself, and the operations that write
/// this claim; `alive` is the row that exists while the incarnation may write.
#[must_use]
pub fn claim_for_insert(id: &str, incarnation: u32, alive: Option<&RowFence>) -> (BatchClaim, Transaction) {
    let claim = BatchClaim { incarnation, number: 1, commits: 0, state: ClaimState::Held };
    let key = claim_key(id);
    let taken = Transaction::new()
        .require_absent(StoreTable::Batches, key.as_slice())
        .append_operations(fence_guards(alive))
        .put(StoreTable::Batches, key, claim.to_row());
    (claim, taken)
}

/// Returns the removals of the claim of a batch or slice and of the request to end it, for its last commit.
pub(super) fn coordination_row_removals(id: &str) -> [RowWrite; 2] {
    [claim_key(id), end_request_key(id)].map(|key| RowWrite { table: StoreTable::Batches, key, value: None })
}

/// Returns the guard that requires the state of a fence; no guard for `None`.
pub(super) fn fence_guards(fence: Option<&RowFence>) -> Transaction {
    let guards = Transaction::new();
    match fence {
        None => guards,
        Some(RowFence { table, key, value: Some(value) }) => {
            guards.require_value(*table, key.as_slice(), value.as_slice())
        }
        Some(RowFence { table, key, value: None }) => guards.require_absent(*table, key.as_slice()),
    }
}

/// Returns the key of the claim of a batch or slice.
pub(super) fn claim_key(id: &str) -> Vec<u8> {
    [CLAIM_PREFIX, id.as_bytes()].concat()
}

/// Returns the key of the request to end a batch.
pub(super) fn end_request_key(id: &str) -> Vec<u8> {
    [END_PREFIX, id.as_bytes()].concat()
}
