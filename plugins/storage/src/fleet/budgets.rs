//! Pools of budgets, by the key or account and the period. A balance is filled by grants. A budget, in contrast, is a
//! limit that may change, and processes that hold no part also add to the row of its spending. So the pool of a
//! budget stores only the sum of the parts, as a negative number:
//!
//! ```text
//! pool `budget/<day | month>/<key | account>/<id>` = −Σ parts
//! rest of a budget                                 = limit − spent in the period − Σ parts
//! ```
//! A draw checks this sum against the limit that the drawing process knows, and checks in the same commit that the
//! row of the spending has not changed. Spending from a part moves the amount from the part to the row of the
//! spending, also in one commit, see [`SpendStore`](crate::spend::SpendStore). When a day or month begins, its
//! spending is 0, and existing parts count as parts of the new budget.
//!
//! A draw gets nothing if the process could not get its minimum amount even if all other processes returned their
//! parts. The request that needs the amount is refused in any case, so the rest stays available to others.

use super::rows;
use super::shared::{META_TABLE, SharedFleet, require_alive};
use super::{FleetError, Incarnation, MAX_ATTEMPTS, PoolAmount, amount_to_draw};
use crate::spend::{SpendOwner, SpendRecord, spend_key};
use crate::{StoreError, StoreTable, Transaction, parse_counter};
use penstock_core::calendar::BudgetPeriod;

const PREFIX: &str = "budget/";

/// Identity of the pool of a budget, from which the processes of a fleet draw parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetPoolId {
    /// Owner of the budget.
    pub owner: SpendOwner,
    /// Period of the budget, a day or a month.
    pub period: BudgetPeriod,
}

impl BudgetPoolId {
    /// Returns the name of the pool.
    #[must_use]
    pub fn name(&self) -> String {
        let (kind, id) = match &self.owner {
            SpendOwner::Key(id) => ("key", id),
            SpendOwner::Account(id) => ("account", id),
        };
        format!("{PREFIX}{}/{kind}/{id}", self.period.name())
    }

    /// Parses the name of a pool; `None` if the pool does not belong to a budget.
    #[must_use]
    pub fn parse(name: &str) -> Option<BudgetPoolId> {
        let (period, owner) = name.strip_prefix(PREFIX)?.split_once('/')?;
        let period = [BudgetPeriod::Day, BudgetPeriod::Month].into_iter().find(|one| one.name() == period)?;
        let owner = match owner.split_once('/')? {
            ("key", id) => SpendOwner::Key(id.to_owned()),
            ("account", id) => SpendOwner::Account(id.to_owned()),
            _ => return None,
        };
        Some(BudgetPoolId { owner, period })
    }
}

/// Request for a part of a budget, in micro-credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRequest {
    /// Pool of the budget from which the amount comes.
    pub pool: BudgetPoolId,
    /// Amount of the budget as the requesting process knows it.
    pub limit: i64,
    /// Amount that the process asks for.
    pub wanted: i64,
    /// Minimum amount that is useful to the process.
    pub least: i64,
    /// Amount of the process's own part that is returned to the budget together with the draw.
    pub returned: i64,
    /// Time of the request, Unix seconds.
    pub at: u64,
}

/// Result of a draw from a budget, in micro-credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetDraw {
    /// Amount that the process got from the budget.
    pub drawn: i64,
    /// Budget minus the spending in the store. The parts that processes hold are not subtracted.
    pub unspent: i64,
    /// Amount that can still be drawn; less than 0 if the spending and all parts together exceed the budget. It is more
    /// than 0 after a draw of 0 if the minimum amount exceeds this amount plus the parts of all other processes.
    pub rest: i64,
}

/// Stored amounts of the pool of a budget, in micro-credits.
struct StoredParts {
    /// Sum of all parts, as a negative number.
    pool: i64,
    /// Part that the incarnation itself holds.
    own: i64,
}

impl SharedFleet {
    /// Draws a part of a budget, as [`Fleet::draw_from_pool`](super::Fleet::draw_from_pool) draws a part of a pool. In
    /// the same commit, the amount `returned` of the part goes back to the budget.
    ///
    /// # Errors
    /// Same as [`Fleet::draw_from_pool`](super::Fleet::draw_from_pool).
    pub fn draw_from_budget(
        &self,
        incarnation: Incarnation,
        request: &BudgetRequest,
    ) -> Result<BudgetDraw, FleetError> {
        let BudgetRequest { pool, limit, wanted, least, returned, at } = request;
        let (name, spend_key) = (pool.name(), spend_key(&pool.owner));
        let mut last_error = StoreError::Guard { step: 0 };
        for _ in 0..MAX_ATTEMPTS {
            let spend = self.store().get(StoreTable::Spend, &spend_key)?;
            let record = spend.as_deref().map(SpendRecord::from_row).transpose()?.unwrap_or_default();
            let spent = i64::try_from(record.spent_in(pool.period, *at)).unwrap_or(i64::MAX);
            let unspent = limit.saturating_sub(spent);
            let parts = self.stored_parts(incarnation, &name)?;
            let rest = unspent.saturating_add(parts.pool).saturating_add(*returned);
            // The amount that would be available if the other members returned all of their parts.
            let reachable = unspent.saturating_sub(parts.own).saturating_add(*returned);
            let drawn = if *least > reachable { 0 } else { amount_to_draw(rest, *wanted, *least) };
            let draw = BudgetDraw { drawn, unspent, rest: rest.saturating_sub(drawn) };
            let change = drawn.saturating_sub(*returned);
            // A draw of more than 0 requires that all parts together stay within the unspent budget. A mere return
            // has no such bound.
            let bound = (drawn > 0).then_some(unspent.saturating_neg());
            if drawn == 0 && change == 0 {
                let is_alive = self.is_alive(incarnation.id)?;
                return if is_alive { Ok(draw) } else { Err(FleetError::Evicted) };
            }
            let unchanged = match spend {
                Some(row) => Transaction::new().require_value(StoreTable::Spend, spend_key.as_slice(), row),
                // A missing row is created, so that this transaction conflicts with any other that creates the row.
                None => Transaction::new().require_absent(StoreTable::Spend, spend_key.as_slice()).put(
                    StoreTable::Spend,
                    spend_key.as_slice(),
                    SpendRecord::default().to_row()?,
                ),
            };
            let batch = require_alive(incarnation.id)
                .append_operations(unchanged)
                .add_to_counter(META_TABLE, rows::pool_key(&name), change.saturating_neg(), bound, None)
                .add_to_counter(META_TABLE, rows::pool_part_key(incarnation.id, &name), change, None, None);
            match self.store().apply(batch) {
                Ok(()) => return Ok(draw),
                Err(StoreError::Guard { step: 0 }) => return Err(FleetError::Evicted),
                // Any other failed guard means that another process took from the pool or recorded spending in the
                // meantime.
                Err(error @ StoreError::Guard { .. }) => last_error = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last_error.into())
    }

    fn stored_parts(&self, incarnation: Incarnation, pool: &str) -> Result<StoredParts, StoreError> {
        let keys = [rows::pool_key(pool), rows::pool_part_key(incarnation.id, pool)];
        let rows = self.store().get_many(META_TABLE, &keys.each_ref().map(Vec::as_slice))?;
        let mut amounts = rows.iter().map(|row| parse_counter(row.as_deref()));
        let mut next_amount = || amounts.next().unwrap_or(Ok(0));
        Ok(StoredParts { pool: next_amount()?, own: next_amount()? })
    }

    /// Returns a value for each budget (its pool and its limit in micro-credits), in the same order: true if all its
    /// parts together exceed the amount that is unspent at `at` (Unix seconds). This happens if the budget was lowered
    /// after the parts were drawn.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn are_overleased(&self, budgets: &[(BudgetPoolId, i64)], at: u64) -> Result<Vec<bool>, StoreError> {
        if budgets.is_empty() {
            return Ok(Vec::new());
        }
        let read = |table, keys: Vec<Vec<u8>>| {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            self.store().get_many(table, &keys)
        };
        // The parts are read before the spending: an amount that another process moves from a part to the spending in
        // between is counted twice rather than not at all.
        let pools = read(META_TABLE, budgets.iter().map(|(pool, _)| rows::pool_key(&pool.name())).collect())?;
        let spends =
            read(StoreTable::Spend, budgets.iter().map(|(pool, _)| spend_key(&pool.owner)).collect())?;
        let rows = budgets.iter().zip(pools.into_iter().zip(spends));
        rows.map(|((pool, limit), (parts, spend))| {
            let record = spend.as_deref().map(SpendRecord::from_row).transpose()?.unwrap_or_default();
            let spent = i64::try_from(record.spent_in(pool.period, at)).unwrap_or(i64::MAX);
            let rest = limit.saturating_sub(spent).saturating_add(parse_counter(parts.as_deref())?);
            Ok(rest < 0)
        })
        .collect()
    }

    /// Returns the operations that take `amount` out of an incarnation's part of a budget. The caller adds it to the
    /// row of the spending in the same transaction.
    pub(crate) fn budget_spending_operations(
        incarnation: u32,
        pool: &BudgetPoolId,
        amount: i64,
    ) -> Transaction {
        let spent = PoolAmount { pool: pool.name(), amount };
        SharedFleet::charge_part_operations(incarnation, &spent)
            .append_operations(SharedFleet::credit_pool_operations(&spent))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::{Fleet, HeartbeatReport, PeerIncarnation, PoolAmount};
    use super::*;
    use crate::spend::{SpendAddition, SpendStore};
    use crate::{Store, open_in_memory};
    use std::sync::Arc;

    /// 2026-11-29T12:00:00Z.
    const NOON: u64 = 1_795_953_600;
    const DAY: u64 = 86_400;

    fn pool(period: BudgetPeriod) -> BudgetPoolId {
        BudgetPoolId { owner: SpendOwner::Key("k".to_owned()), period }
    }

    fn of_day(limit: i64, wanted: i64, at: u64) -> BudgetRequest {
        BudgetRequest { pool: pool(BudgetPeriod::Day), limit, wanted, least: wanted, returned: 0, at }
    }

    fn spend(amount: u64, at: u64, from_parts: (i64, i64)) -> SpendAddition {
        let spend = SpendRecord { day: amount, month: amount, at };
        SpendAddition { owner: pool(BudgetPeriod::Day).owner, spend, from_parts }
    }

    struct Members {
        store: Arc<dyn Store>,
        fleet: SharedFleet,
        incarnations: [Incarnation; 2],
    }

    impl Members {
        fn new() -> Self {
            let store = open_in_memory();
            let fleet = SharedFleet::new(store.clone());
            let incarnations = ["one", "two"].map(|name| fleet.join(name).unwrap());
            Self { store, fleet, incarnations }
        }

        fn draw(&self, incarnation: usize, request: &BudgetRequest) -> i64 {
            self.fleet.draw_from_budget(self.incarnations[incarnation], request).unwrap().drawn
        }

        fn spends(&self, incarnation: usize) -> SpendStore {
            SpendStore::with_incarnation(self.store.clone(), self.incarnations[incarnation].id)
        }
    }

    #[test]
    fn a_pool_has_a_name_by_owner_and_period() {
        for (owner, period, name) in [
            (SpendOwner::Key("0af3".to_owned()), BudgetPeriod::Day, "budget/day/key/0af3"),
            (SpendOwner::Account("a/b".to_owned()), BudgetPeriod::Month, "budget/month/account/a/b"),
        ] {
            let pool = BudgetPoolId { owner, period };
            assert_eq!((pool.name(), BudgetPoolId::parse(name)), (name.to_owned(), Some(pool)));
        }
        for other in ["credits/budget", "energy/day/key/a", "budget/", "budget/year/key/a", "budget/day/k/a"]
        {
            assert_eq!(BudgetPoolId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn parts_and_spending_never_exceed_the_budget() {
        let members = Members::new();
        assert_eq!(members.draw(0, &of_day(100, 60, NOON)), 60);
        assert_eq!(members.draw(1, &of_day(100, 60, NOON)), 40);
        assert_eq!(members.draw(1, &of_day(100, 1, NOON)), 0);
        // Spending reduces the part and the rest of the budget equally, so no amount becomes available.
        members.spends(0).add(&[spend(25, NOON, (25, 0))]).unwrap();
        assert_eq!(members.draw(1, &of_day(100, 1, NOON)), 0);
        let parts = |incarnation: usize| {
            members.fleet.pool_parts(members.incarnations[incarnation]).unwrap()[0].amount
        };
        assert_eq!((parts(0), parts(1)), (35, 40));
        let returned = vec![PoolAmount { pool: pool(BudgetPeriod::Day).name(), amount: 35 }];
        members
            .fleet
            .heartbeat(members.incarnations[0], &HeartbeatReport { returned, ..HeartbeatReport::default() })
            .unwrap();
        assert_eq!(members.draw(1, &of_day(100, 35, NOON)), 35);
        // After the budget is raised, an amount is left to draw; after it is lowered, none is left.
        assert_eq!(members.draw(0, &of_day(110, 50, NOON)), 10);
        assert_eq!(members.draw(0, &of_day(50, 1, NOON)), 0);
    }

    #[test]
    fn members_that_draw_and_spend_at_once_share_a_budget_exactly() {
        let store = open_in_memory();
        let spend_all = &|name: String| {
            let fleet = SharedFleet::new(store.clone());
            let incarnation = fleet.join(&name).unwrap();
            let (spends, mut spent) = (SpendStore::with_incarnation(store.clone(), incarnation.id), 0);
            loop {
                match fleet
                    .draw_from_budget(incarnation, &BudgetRequest { least: 1, ..of_day(2_000, 3, NOON) })
                {
                    Ok(BudgetDraw { drawn: 0, .. }) => return spent,
                    Ok(BudgetDraw { drawn, .. }) => {
                        let amount = u64::try_from(drawn).unwrap();
                        spends.add(&[spend(amount, NOON, (drawn, 0))]).unwrap();
                        spent += drawn;
                    }
                    // Other members changed the rows before each attempt of the commit.
                    Err(error) => assert!(matches!(error, FleetError::Store(StoreError::Guard { .. }))),
                }
            }
        };
        let spent: i64 = std::thread::scope(|scope| {
            let members = (0..4).map(|n| scope.spawn(move || spend_all(n.to_string())));
            members.collect::<Vec<_>>().into_iter().map(|member| member.join().unwrap()).sum()
        });
        let rest = SharedFleet::new(store.clone()).available_amount(&pool(BudgetPeriod::Day).name());
        assert_eq!((spent, rest), (2_000, Ok(0)));
    }

    #[test]
    fn spending_without_a_part_counts() {
        let members = Members::new();
        // Spending that is not taken from a part, as an earlier version or a single gateway writes it.
        SpendStore::new(members.store.clone()).add(&[spend(30, NOON, (0, 0))]).unwrap();
        members.spends(1).add(&[spend(10, NOON, (0, 0))]).unwrap();
        assert_eq!(members.draw(0, &of_day(100, 60, NOON)), 60);
        members.spends(1).add(&[spend(5, NOON, (0, 0))]).unwrap();
        assert_eq!(members.draw(0, &of_day(100, 1, NOON)), 0);
        assert_eq!(members.draw(0, &of_day(106, 1, NOON)), 1);
    }

    #[test]
    fn a_draw_that_the_parts_of_all_members_do_not_cover_gets_nothing() {
        let members = Members::new();
        let fleet = &members.fleet;
        let draw = |incarnation: usize, least| {
            let draw =
                fleet.draw_from_budget(members.incarnations[incarnation], &of_day(100, least, NOON)).unwrap();
            (draw.drawn, draw.rest)
        };
        members.spends(0).add(&[spend(30, NOON, (0, 0))]).unwrap();
        assert_eq!(draw(0, 71), (0, 70));
        assert_eq!((draw(0, 50), draw(1, 70)), ((50, 20), (20, 0)), "the other one can return 50");
        assert_eq!(draw(0, 21), (0, 0));
        let returned = BudgetRequest { returned: 50, ..of_day(100, 71, NOON) };
        let draw = fleet.draw_from_budget(members.incarnations[0], &returned).unwrap();
        assert_eq!(draw, BudgetDraw { drawn: 0, unspent: 70, rest: 50 }, "what goes back goes back");
    }

    #[test]
    fn parts_in_excess_of_a_lowered_budget_are_found() {
        let members = Members::new();
        assert_eq!(
            (members.draw(0, &of_day(100, 40, NOON)), members.draw(1, &of_day(100, 20, NOON))),
            (40, 20)
        );
        members.spends(0).add(&[spend(25, NOON, (10, 0))]).unwrap();
        let day = |limit| (pool(BudgetPeriod::Day), limit);
        let (unknown, month) = (
            BudgetPoolId { owner: SpendOwner::Key("unknown".to_owned()), period: BudgetPeriod::Day },
            pool(BudgetPeriod::Month),
        );
        let budgets = [day(75), day(74), (unknown, 0), (month, 24), (pool(BudgetPeriod::Month), 25)];
        let found = members.fleet.are_overleased(&budgets, NOON).unwrap();
        assert_eq!(found, [false, true, false, true, false]);
        assert_eq!(members.fleet.are_overleased(&[day(50)], NOON + DAY), Ok(vec![false]), "nothing is spent");
        assert_eq!(members.fleet.are_overleased(&[], NOON), Ok(Vec::new()));
    }

    #[test]
    fn a_day_begins_with_the_whole_budget_but_for_the_parts() {
        let members = Members::new();
        assert_eq!(members.draw(0, &of_day(100, 80, NOON)), 80);
        members.spends(0).add(&[spend(70, NOON, (70, 0))]).unwrap();
        assert_eq!(members.draw(1, &of_day(100, 20, NOON)), 20);
        members.spends(1).add(&[spend(20, NOON, (20, 0))]).unwrap();
        assert_eq!(members.draw(1, &of_day(100, 1, NOON + DAY / 2 - 1)), 0);
        assert_eq!(members.draw(1, &of_day(100, 100, NOON + DAY / 2)), 90, "10 are leased");
        // The monthly budget counts the spending of both days.
        let of_month =
            |amount, at| BudgetRequest { pool: pool(BudgetPeriod::Month), ..of_day(100, amount, at) };
        assert_eq!(members.draw(0, &of_month(10, NOON + DAY)), 10);
        assert_eq!(members.draw(1, &of_month(100, NOON + 2 * DAY)), 90, "of December");
    }

    #[test]
    fn a_lowered_budget_takes_parts_back_and_draws_again_in_one_commit() {
        let members = Members::new();
        assert_eq!(
            (members.draw(0, &of_day(100, 60, NOON)), members.draw(1, &of_day(100, 40, NOON))),
            (60, 40)
        );
        let lowered = |returned| BudgetRequest { returned, ..of_day(50, 20, NOON) };
        assert_eq!(members.draw(0, &lowered(60)), 10, "the other one has 40");
        assert_eq!(members.draw(1, &lowered(40)), 20);
        assert_eq!(members.draw(0, &lowered(10)), 20);
        assert_eq!(members.draw(0, &BudgetRequest { limit: 5, ..lowered(20) }), 0);
        assert_eq!(members.fleet.available_amount(&pool(BudgetPeriod::Day).name()), Ok(-20));
    }

    #[test]
    fn the_parts_of_a_buried_member_return_and_it_takes_nothing_from_them() {
        let members = Members::new();
        assert_eq!(members.draw(0, &of_day(100, 100, NOON)), 100);
        let Incarnation { id, beat } = members.incarnations[0];
        assert!(members.fleet.evict(&PeerIncarnation { id, beat, name: None }).unwrap());
        let late = members.spends(0);
        late.add(&[spend(40, NOON, (40, 0))]).unwrap();
        assert!(late.flush().is_err());
        let request = of_day(100, 100, NOON);
        assert_eq!(
            members.fleet.draw_from_budget(members.incarnations[0], &request),
            Err(FleetError::Evicted)
        );
        assert_eq!(members.draw(1, &request), 100);
    }
}
