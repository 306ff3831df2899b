//! Fleet: several processes on one store, and the amounts that each process may spend without a call of the store.
//!
//! Each start of a process is an incarnation. A pool is an amount that all incarnations share, such as the available
//! credits of an account. An incarnation draws parts of the pool, spends them without a call of the store, and
//! reports the spent amounts with its next heartbeat. So the sum of all parts and the rest of the pool never exceeds
//! the granted amount, and no request waits for the store until the part is used up.
//!
//! ```text
//! balance = rest of the pool + Σ parts,   reported spending ≤ balance + overdraft of parts
//! ```
//! An incarnation raises its beat with each heartbeat. Another process counts the incarnation as dead after it has seen
//! the beat unchanged for a time by its own clock, see [`PeerWatch`]; [`Fleet::evict`] then ends the incarnation if the
//! beat is still the same, and returns its parts to their pools. Every transaction of an incarnation requires that the
//! incarnation is alive, so an evicted incarnation can neither draw nor report. The clocks of two machines are never
//! compared.
//!
//! The rows are those of any [`Store`](crate::Store); [`SoloFleet`] is the fleet of a process that uses its store
//! alone; it grants every requested amount.

mod alone;
mod budgets;
mod pools;
mod rows;
mod shared;
mod watch;

use crate::{StoreError, Transaction};

pub use alone::SoloFleet;
pub use budgets::{BudgetDraw, BudgetPoolId, BudgetRequest};
pub use pools::{PoolOpeningState, credit_pool_name, energy_pool_name};
pub(crate) use shared::require_alive;
pub use shared::{ObservedFleet, PeerReport, SharedFleet};
pub use watch::{LeaseTerm, PeerWatch};

/// Maximum number of pools in one heartbeat.
pub const MAX_HEARTBEAT_POOLS: usize = 1_000;

/// Maximum number of attempts of a transaction if concurrent changes make it fail.
const MAX_ATTEMPTS: usize = 32;

/// Incarnation of this process, with the beat of its last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Number of the incarnation, from 1; never used again.
    pub id: u32,
    /// Number of heartbeats that the incarnation has sent.
    pub beat: i64,
}

/// Incarnation (one run of a process) of any process of the fleet, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIncarnation {
    /// Number of the incarnation, from 1; never used again.
    pub id: u32,
    /// Number of heartbeats that the incarnation has sent.
    pub beat: i64,
    /// Name for operators; `None` if the incarnation was evicted and some of its parts are not yet returned to their
    /// pools.
    pub name: Option<String>,
}

/// Amount of a pool, such as the amount spent from it, with the name of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolAmount {
    /// Name of the pool.
    pub pool: String,
    /// Amount in the unit of the pool.
    pub amount: i64,
}

/// Report of an incarnation, which a heartbeat applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReport {
    /// Amounts that were spent from the incarnation's parts since its last heartbeat, one for each pool. A part may
    /// become negative: work whose cost was not known in advance may cost more than the rest of the part.
    pub spent: Vec<PoolAmount>,
    /// Amounts of the incarnation's parts that go back to their pools, one for each pool.
    pub returned: Vec<PoolAmount>,
    /// Operations that belong to the report, such as the operations of ledger entries.
    pub with: Transaction,
}

/// Request of a process for a part of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRequest {
    /// Name of the pool.
    pub pool: String,
    /// Amount that the process asks for.
    pub wanted: i64,
    /// Minimum amount that is useful to the caller.
    pub least: i64,
}

/// Error of a call for an incarnation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The incarnation was evicted. Nothing of this call was applied, and the process has to join again. If an
    /// earlier attempt of the same heartbeat had an unknown outcome, the rows of [`HeartbeatReport::with`] show
    /// whether it was applied.
    #[error("another gateway took this one for dead")]
    Evicted,
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FleetError {
    /// Returns true if it is certain that nothing of the call was applied. After any other error the outcome is
    /// unknown.
    #[must_use]
    pub const fn is_unapplied(&self) -> bool {
        matches!(
            self,
            Self::Evicted
                | Self::Store(
                    StoreError::Guard { .. }
                        | StoreError::TooLarge { .. }
                        | StoreError::InvalidArgument { .. }
                        | StoreError::Unreachable { .. }
                )
        )
    }
}

/// Processes that share a store. Every call blocks, except the calls of [`SoloFleet`].
pub trait Fleet: Send + Sync + std::fmt::Debug {
    /// Adds an incarnation for this process; `name` is for operators.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    fn join(&self, name: &str) -> Result<Incarnation, FleetError>;

    /// Applies a report completely or not at all, and returns the incarnation with its next beat. After an error, the
    /// same heartbeat of the same incarnation may be repeated: it is applied once.
    ///
    /// # Errors
    /// Returns `Evicted` if the incarnation is no longer alive, `TooLarge` above [`MAX_HEARTBEAT_POOLS`], and the
    /// errors of [`crate::Store::apply`]; `Guard` names a failed guard of [`HeartbeatReport::with`], or means that a
    /// returned amount exceeds its part.
    fn heartbeat(
        &self,
        incarnation: Incarnation,
        report: &HeartbeatReport,
    ) -> Result<Incarnation, FleetError>;

    /// Draws a part of a pool, as large as [`amount_to_draw`] says. Returns the drawn amount; 0 if the pool is empty.
    /// After an error the part has to be read again with [`Fleet::pool_parts`].
    ///
    /// # Errors
    /// Same as [`Fleet::heartbeat`].
    fn draw_from_pool(&self, incarnation: Incarnation, request: &PoolRequest) -> Result<i64, FleetError>;

    /// Returns the parts of pools that an incarnation holds, as stored: they still include the amounts that it spent
    /// after its last heartbeat.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    fn pool_parts(&self, incarnation: Incarnation) -> Result<Vec<PoolAmount>, FleetError>;

    /// Returns the incarnations of all processes, this one included.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    fn incarnations(&self) -> Result<Vec<PeerIncarnation>, FleetError>;

    /// Ends the incarnation of a dead process if its beat is still that of `peer`, and returns its parts to their
    /// pools; returns false if the beat has changed. A repetition continues an interrupted eviction.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    fn evict(&self, peer: &PeerIncarnation) -> Result<bool, FleetError>;
}

/// Returns the amount to draw from a pool that has `available` left: all of `wanted_amount` if the pool has at least
/// four times as much; otherwise a quarter of the pool or `min_amount`, whichever is greater, but never more than the
/// pool has. So the parts get smaller while the pool runs out, and its last amounts can be drawn too.
#[must_use]
pub fn amount_to_draw(available: i64, wanted_amount: i64, min_amount: i64) -> i64 {
    let (available, wanted_amount) = (available.max(0), wanted_amount.max(0));
    if available / 4 >= wanted_amount {
        return wanted_amount;
    }
    available.min(min_amount.max(0)).max(available / 4)
}

#[cfg(test)]
mod tests;
