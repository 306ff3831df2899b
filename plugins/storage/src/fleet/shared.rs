//! Fleet whose processes share a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::rows::{self, INCARNATION_PREFIX, LAST_INCARNATION_KEY, PEER_REPORT_PREFIX, PROCESS_NAME_PREFIX};
use super::{
    Fleet, FleetError, HeartbeatReport, Incarnation, MAX_ATTEMPTS, MAX_HEARTBEAT_POOLS, PeerIncarnation,
    PoolAmount, PoolRequest, amount_to_draw,
};
use crate::{
    MAX_PAGE_ROWS, RowAddition, RowPage, RowScan, Store, StoreError, StoreTable, StoredRow, Transaction,
    counter_row, parse_counter,
};

/// Table with the rows of a fleet.
pub(super) const META_TABLE: StoreTable = StoreTable::Meta;
/// Maximum number of attempts to get an incarnation number. With [`MAX_JOIN_PAUSE`], it suffices for a hundred members
/// that join at the same time.
const MAX_JOIN_ATTEMPTS: usize = 256;
/// Maximum pause between two attempts to get an incarnation number.
const MAX_JOIN_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of parts of pools that one transaction returns when a dead incarnation is evicted.
const MAX_RETURNED_PARTS: usize = 500;

/// Report of an incarnation to its peers, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Number of the incarnation that wrote the report.
    pub incarnation: u32,
    /// Rows of the report, in order. Extra rows at the end may remain from an earlier, longer report.
    pub rows: Vec<Vec<u8>>,
}

/// Incarnations of a fleet as read at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedFleet {
    /// All incarnations, the reader's own included.
    pub peers: Vec<PeerIncarnation>,
    /// Rows of the latest report of each incarnation that has one.
    pub reports: Vec<PeerReport>,
    /// Pages of the further scans that the caller asked for, in the order of the scans.
    pub further_pages: Vec<RowPage>,
}

/// Fleet in a store that other processes use too.
#[derive(Clone, Debug)]
pub struct SharedFleet {
    store: Arc<dyn Store>,
}

impl SharedFleet {
    /// Creates a view of the fleet in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> SharedFleet {
        SharedFleet { store }
    }

    /// Returns the operations that add an amount to a pool: a grant or a correction. A sum beyond 64 bits stays at the
    /// limit, so that the operations do not fail.
    #[must_use]
    pub fn credit_pool_operations(change: &PoolAmount) -> Transaction {
        Transaction::new().add_amounts(
            META_TABLE,
            rows::pool_key(&change.pool),
            RowAddition::Counter(change.amount),
        )
    }

    /// Returns the rest of a pool.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn available_amount(&self, pool: &str) -> Result<i64, StoreError> {
        self.counter(&rows::pool_key(pool))
    }

    /// Returns the operations that charge an incarnation's part of a pool, which may become negative. Like those of
    /// [`SharedFleet::credit_pool_operations`], they never fail.
    #[must_use]
    pub fn charge_part_operations(incarnation: u32, change: &PoolAmount) -> Transaction {
        let key = rows::pool_part_key(incarnation, &change.pool);
        Transaction::new().add_amounts(META_TABLE, key, RowAddition::Counter(change.amount.saturating_neg()))
    }

    /// Returns the table and the key of the row that exists while an incarnation (one process start of a fleet
    /// member) counts as alive. The value of the row is the name of the incarnation.
    #[must_use]
    pub fn liveness_row(incarnation: u32) -> (StoreTable, Vec<u8>) {
        (META_TABLE, rows::process_name_key(incarnation))
    }

    /// Continues the incarnation of an ended process under a new name. Returns `None` if the incarnation was evicted,
    /// or if its name is not one of `expected`: a database that lost commits may have given the same number to
    /// another process. An empty `expected` accepts any name. The beat is incremented too, so peers that were about
    /// to evict the incarnation see that it is alive again.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn resume_incarnation(
        &self,
        id: u32,
        expected: &[String],
        name: &str,
    ) -> Result<Option<Incarnation>, StoreError> {
        let key = rows::process_name_key(id);
        let mut last_error = StoreError::Guard { step: 0 };
        for _ in 0..MAX_ATTEMPTS {
            let Some(live) = self.store.get(META_TABLE, &key)? else { return Ok(None) };
            if !expected.is_empty() && !expected.iter().any(|name| name.as_bytes() == live) {
                return Ok(None);
            }
            let beat = self.counter(&rows::incarnation_key(id))?;
            let next = Incarnation { id, beat: beat.wrapping_add(1) };
            let adopted = Transaction::new()
                .require_value(META_TABLE, key.as_slice(), live)
                .require_value(META_TABLE, rows::incarnation_key(id), counter_row(beat))
                .put(META_TABLE, rows::incarnation_key(id), counter_row(next.beat))
                .put(META_TABLE, key.as_slice(), name);
            match self.store.apply(adopted) {
                Ok(()) => return Ok(Some(next)),
                // A failed guard means that another process evicted this incarnation, or that another commit changed
                // its rows.
                Err(error @ StoreError::Guard { .. }) => last_error = error,
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// Returns the operations that write an incarnation's report to its peers over its earlier report. If the earlier
    /// report was longer, its last rows remain.
    #[must_use]
    pub fn peer_report_operations(incarnation: u32, report: Vec<Vec<u8>>) -> Transaction {
        let rows = (0_u16..).zip(report);
        rows.fold(Transaction::new(), |batch, (n, row)| {
            batch.put(META_TABLE, rows::peer_report_key(incarnation, n), row)
        })
    }

    /// Reads all incarnations with the rows of their latest reports, and the pages of further scans, with a single
    /// call of the store unless a page is full.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn read_incarnations(&self, further: &[RowScan]) -> Result<ObservedFleet, StoreError> {
        let own = [INCARNATION_PREFIX, PROCESS_NAME_PREFIX, PEER_REPORT_PREFIX]
            .map(|prefix| RowScan::of_prefix(META_TABLE, prefix));
        let mut pages = self.store.scan_many(&[&own, further].concat())?.into_iter();
        let mut next_page = || pages.next().unwrap_or_default();
        let (incarnations, mut live, reports) = (next_page(), next_page(), next_page());
        if incarnations.more {
            // The names must be read again, after the last page of beats, see `parse_peers`.
            live = RowPage { rows: Vec::new(), more: true };
        }
        let incarnations = self.complete_rows(INCARNATION_PREFIX, incarnations)?;
        let live = self.complete_rows(PROCESS_NAME_PREFIX, live)?;
        let reports = self.complete_rows(PEER_REPORT_PREFIX, reports)?;
        Ok(ObservedFleet {
            peers: parse_peers(incarnations, live)?,
            reports: parse_reports(reports)?,
            further_pages: pages.collect(),
        })
    }

    /// Returns all rows under a prefix; `first` is the first page, read before.
    fn complete_rows(&self, prefix: &[u8], first: RowPage) -> Result<Vec<StoredRow>, StoreError> {
        let RowPage { mut rows, mut more } = first;
        while more {
            let after = rows.last().map(|row| row.key.clone());
            let page = self.store.scan(META_TABLE, prefix, after.as_deref(), MAX_PAGE_ROWS)?;
            rows.extend(page.rows);
            more = page.more;
        }
        Ok(rows)
    }

    pub(super) const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn counter(&self, key: &[u8]) -> Result<i64, StoreError> {
        parse_counter(self.store.get(META_TABLE, key)?.as_deref())
    }

    /// Returns true if the incarnation counts as alive, see [`SharedFleet::liveness_row`]. An incarnation that sends no
    /// heartbeats counts as alive until it is evicted.
    pub(super) fn is_alive(&self, id: u32) -> Result<bool, StoreError> {
        Ok(self.store.get(META_TABLE, &rows::process_name_key(id))?.is_some())
    }

    /// Passes each row under a prefix to `each`.
    pub(super) fn for_each_row(
        &self,
        prefix: &[u8],
        mut each: impl FnMut(StoredRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(META_TABLE, prefix, after.as_deref(), MAX_PAGE_ROWS)?;
            after = page.rows.last().map(|row| row.key.clone());
            page.rows.into_iter().try_for_each(&mut each)?;
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Returns some parts of an evicted incarnation to their pools; false if there is none.
    fn return_parts(&self, id: u32) -> Result<bool, StoreError> {
        let page =
            self.store.scan(META_TABLE, &rows::incarnation_parts_prefix(id), None, MAX_RETURNED_PARTS)?;
        if page.rows.is_empty() {
            return Ok(false);
        }
        let mut batch = Transaction::new();
        for row in page.rows {
            let (pool, amount) = (rows::parse_pool_part_key(id, &row.key)?, parse_counter(Some(&row.value))?);
            batch =
                batch.require_value(META_TABLE, row.key.as_slice(), row.value).delete(META_TABLE, row.key);
            batch =
                batch.append_operations(SharedFleet::credit_pool_operations(&PoolAmount { pool, amount }));
        }
        match self.store.apply(batch) {
            // A failed guard means that another process has already returned the parts.
            Ok(()) | Err(StoreError::Guard { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Parses the rows of the beats and those of the names. The names were read together with the beats or after them. So
/// an incarnation with a beat but without a name was evicted; it is not one that joined between the two reads.
fn parse_peers(
    incarnations: Vec<StoredRow>,
    live: Vec<StoredRow>,
) -> Result<Vec<PeerIncarnation>, StoreError> {
    let mut names = HashMap::with_capacity(live.len());
    for row in live {
        let name = String::from_utf8_lossy(&row.value).into_owned();
        names.insert(rows::parse_incarnation_key(PROCESS_NAME_PREFIX, &row.key)?, name);
    }
    let incarnations = incarnations.into_iter().map(|row| {
        let id = rows::parse_incarnation_key(INCARNATION_PREFIX, &row.key)?;
        Ok(PeerIncarnation { id, beat: parse_counter(Some(&row.value))?, name: names.remove(&id) })
    });
    incarnations.collect()
}

/// Groups the rows of reports, in the order of their keys, by incarnation.
fn parse_reports(rows: Vec<StoredRow>) -> Result<Vec<PeerReport>, StoreError> {
    let mut reports: Vec<PeerReport> = Vec::new();
    for row in rows {
        let incarnation = rows::parse_peer_report_key(&row.key)?;
        match reports.last_mut() {
            Some(last) if last.incarnation == incarnation => last.rows.push(row.value),
            _ => reports.push(PeerReport { incarnation, rows: vec![row.value] }),
        }
    }
    Ok(reports)
}

/// Returns the guard by which an incarnation proves that it is alive.
pub(crate) fn require_alive(id: u32) -> Transaction {
    Transaction::new().require_present(META_TABLE, rows::process_name_key(id))
}

impl Fleet for SharedFleet {
    fn join(&self, name: &str) -> Result<Incarnation, FleetError> {
        let mut last_error = StoreError::Guard { step: 0 };
        for attempt in 0..MAX_JOIN_ATTEMPTS {
            // A random pause keeps gateways that start together from conflicting again.
            let pause = MAX_JOIN_PAUSE.mul_f64(rand::random_range(0.0..1.0));
            std::thread::sleep(if attempt == 0 { Duration::ZERO } else { pause });
            let row = self.store.get(META_TABLE, LAST_INCARNATION_KEY)?;
            let id = parse_counter(row.as_deref())?.checked_add(1).and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| StoreError::corrupt("the number of the last incarnation"))?;
            let batch = match row {
                Some(row) => Transaction::new().require_value(META_TABLE, LAST_INCARNATION_KEY, row),
                None => Transaction::new().require_absent(META_TABLE, LAST_INCARNATION_KEY),
            };
            let batch = batch
                .put(META_TABLE, LAST_INCARNATION_KEY, counter_row(i64::from(id)))
                .put(META_TABLE, rows::incarnation_key(id), counter_row(0))
                .put(META_TABLE, rows::process_name_key(id), name.as_bytes());
            match self.store.apply(batch) {
                Ok(()) => return Ok(Incarnation { id, beat: 0 }),
                Err(error @ StoreError::Guard { .. }) => last_error = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last_error.into())
    }

    fn heartbeat(
        &self,
        incarnation: Incarnation,
        report: &HeartbeatReport,
    ) -> Result<Incarnation, FleetError> {
        let pools = report.spent.len() + report.returned.len();
        if pools > MAX_HEARTBEAT_POOLS {
            let (what, cap) = ("the number of pools of a heartbeat", MAX_HEARTBEAT_POOLS);
            return Err(StoreError::TooLarge { what, bytes: pools, cap }.into());
        }
        let Incarnation { id, beat } = incarnation;
        let next = Incarnation { id, beat: beat.wrapping_add(1) };
        let key = rows::incarnation_key(id);
        let mut batch = report.with.clone().append_operations(require_alive(id));
        batch = batch.require_value(META_TABLE, key.as_slice(), counter_row(beat));
        batch = batch.put(META_TABLE, key, counter_row(next.beat));
        for PoolAmount { pool, amount } in &report.spent {
            batch = batch.add_to_counter(
                META_TABLE,
                rows::pool_part_key(id, pool),
                amount.saturating_neg(),
                None,
                None,
            );
        }
        for PoolAmount { pool, amount } in &report.returned {
            // The lower bound makes the transaction fail if the part of the process would become negative.
            batch = batch.add_to_counter(
                META_TABLE,
                rows::pool_part_key(id, pool),
                amount.saturating_neg(),
                Some(0),
                None,
            );
            batch = batch.add_to_counter(META_TABLE, rows::pool_key(pool), *amount, None, None);
        }
        match self.store.apply(batch) {
            Ok(()) => Ok(next),
            Err(StoreError::Guard { .. }) if !self.is_alive(id)? => Err(FleetError::Evicted),
            // The stored beat shows that an earlier attempt of the same heartbeat was applied.
            Err(StoreError::Guard { .. }) if self.counter(&rows::incarnation_key(id))? == next.beat => {
                Ok(next)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn draw_from_pool(&self, incarnation: Incarnation, request: &PoolRequest) -> Result<i64, FleetError> {
        let PoolRequest { pool, wanted, least } = request;
        let mut last_error = StoreError::Guard { step: 0 };
        for _ in 0..MAX_ATTEMPTS {
            let amount = amount_to_draw(self.available_amount(pool)?, *wanted, *least);
            if amount == 0 {
                return if self.is_alive(incarnation.id)? { Ok(0) } else { Err(FleetError::Evicted) };
            }
            let batch = require_alive(incarnation.id)
                .add_to_counter(META_TABLE, rows::pool_key(pool), -amount, Some(0), None)
                .add_to_counter(META_TABLE, rows::pool_part_key(incarnation.id, pool), amount, None, None);
            match self.store.apply(batch) {
                Ok(()) => return Ok(amount),
                Err(StoreError::Guard { step: 0 }) => return Err(FleetError::Evicted),
                // Any other failed guard means that another process took from the pool in the meantime.
                Err(error @ StoreError::Guard { .. }) => last_error = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last_error.into())
    }

    fn pool_parts(&self, incarnation: Incarnation) -> Result<Vec<PoolAmount>, FleetError> {
        let mut parts = Vec::new();
        self.for_each_row(&rows::incarnation_parts_prefix(incarnation.id), |row| {
            let amount = parse_counter(Some(&row.value))?;
            parts.push(PoolAmount { pool: rows::parse_pool_part_key(incarnation.id, &row.key)?, amount });
            Ok(())
        })?;
        Ok(parts)
    }

    fn incarnations(&self) -> Result<Vec<PeerIncarnation>, FleetError> {
        Ok(self.read_incarnations(&[])?.peers)
    }

    fn evict(&self, peer: &PeerIncarnation) -> Result<bool, FleetError> {
        let (id, live) = (peer.id, rows::process_name_key(peer.id));
        let beat =
            Transaction::new().require_value(META_TABLE, rows::incarnation_key(id), counter_row(peer.beat));
        match self.store.apply(beat.delete(META_TABLE, live)) {
            Ok(()) => {}
            Err(StoreError::Guard { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        #[cfg(feature = "inject")]
        fail::fail_point!("eviction_begun", |_| std::process::abort());
        while self.return_parts(id)? {}
        #[cfg(feature = "inject")]
        fail::fail_point!("leases_returned", |_| std::process::abort());
        // The row of the beat is removed after all parts: while it exists, an interrupted eviction is found and
        // continued.
        self.delete_rows(&rows::peer_report_prefix(id), Transaction::new)?;
        self.store.apply(Transaction::new().delete(META_TABLE, rows::incarnation_key(id)))?;
        Ok(true)
    }
}
