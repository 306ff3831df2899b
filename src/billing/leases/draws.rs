//! Draws for requests whose price the lease does not cover.

use super::super::current_balance::database_unavailable;
use super::super::reserve::insufficient_credits;
use super::super::{Hold, Ledger, ReserveAmounts};
use super::Leases;
use super::pool::LeasedBalance;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::Wallet;
use penstock_storage::StoreError;
use penstock_storage::fleet::FleetError;
use penstock_storage::ledger::BalanceRecord;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time;

/// Longest wait of a request for its draws. A busy database may need more than 300 ms for a commit, and a request can
/// wait longer than that. During an outage, the store detects the outage within 5 s, and draws then fail at once.
pub(super) const DRAW_TIMEOUT: Duration = Duration::from_secs(3);
/// Multiple of a request's price that its draw asks for.
const DRAW_PRICE_MULTIPLE: i64 = 16;
/// Maximum number of attempts to reserve an amount that other requests have just reserved.
pub(super) const MAX_RESERVE_ATTEMPTS: usize = 16;

/// Outcome of a draw that was made by this request or by another request of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrawOutcome {
    /// Draw after which the lease covers the request.
    Drawn,
    /// Draw that got too little for the request, because the pool has no more.
    PoolEmpty,
    /// Draw that got nothing, because other members changed the pool at the same time.
    Contended,
}

/// Result of the check that a lease covers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseCoverage {
    Covered,
    /// The pool has too little.
    PoolEmpty,
    /// Another member receives the pool at the moment.
    LeftToPeer,
}

impl Leases {
    /// Refuses a request if this member may not spend its leases any more.
    pub(in super::super) fn ensure_spendable(&self) -> Result<(), ApiError> {
        match self.member.may_spend_leases(Instant::now()) {
            true => Ok(()),
            false => Err(database_unavailable()),
        }
    }
}

impl Ledger {
    /// Reserves the highest possible cost of a prepaid request; a member of a fleet draws for it if its lease does not
    /// cover it.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::reserve`] and of [`Ledger::ensure_funded`].
    pub async fn reserve_prepaid(
        self: &Arc<Self>,
        account: &str,
        key: &Arc<str>,
        request: &str,
        need: ReserveAmounts,
    ) -> Result<Hold, ApiError> {
        let deadline = time::Instant::now() + DRAW_TIMEOUT;
        for _ in 1..MAX_RESERVE_ATTEMPTS {
            self.ensure_funded(account, need, deadline).await?;
            match self.reserve(account, key, request, need, true) {
                // Another request has reserved the drawn amount meanwhile, so the loop draws again.
                Err(refusal) if self.leases.is_some() && refusal.code == ErrorCode::InsufficientCredits => {}
                reserved => return reserved,
            }
        }
        self.reserve(account, key, request, need, true)
    }

    /// Draws for a prepaid request, until the lease of one of its wallets covers its highest price or the deadline has
    /// passed. Returns at once if the price is covered, or without a fleet.
    ///
    /// # Errors
    /// Returns 402 if the pools have too little, or if another member receives them. Returns 503 if this member may not
    /// spend its leases any more, or the database does not answer in time.
    pub async fn ensure_funded(
        self: &Arc<Self>,
        account: &str,
        need: ReserveAmounts,
        deadline: time::Instant,
    ) -> Result<(), ApiError> {
        let Some(leases) = &self.leases else { return Ok(()) };
        leases.ensure_spendable()?;
        let account = self.account_balance(account);
        let credits = LeasedBalance::Wallet(account.clone(), Wallet::Credits);
        let energy = LeasedBalance::Wallet(account, Wallet::Energy);
        let energy_amount = need.energy.map(|amount| (&energy, amount.max(1)));
        let mut is_left_to_peer = false;
        for (balance, amount) in energy_amount.into_iter().chain([(&credits, need.credits)]) {
            match self.draw_until_covered(leases, balance, amount, deadline).await? {
                LeaseCoverage::Covered => return Ok(()),
                LeaseCoverage::PoolEmpty => {}
                LeaseCoverage::LeftToPeer => is_left_to_peer = true,
            }
        }
        let needed_energy = need.energy.filter(|need| *need > 0);
        leases.note_refused(&credits, need.credits);
        if let Some(price) = needed_energy {
            leases.note_refused(&energy, price);
        }
        let (credits, energy) = (leases.recorded_total(&credits), leases.recorded_total(&energy));
        let held_energy = needed_energy.is_some_and(|need| energy >= need);
        let is_held = is_left_to_peer || credits >= need.credits || held_energy;
        Err(insufficient_credits(need, BalanceRecord { credits, energy }, is_held))
    }

    /// Draws until the lease covers an amount, the pool has too little, or another member receives the pool.
    ///
    /// # Errors
    /// Returns 503 if the database does not answer in time.
    pub(super) async fn draw_until_covered(
        self: &Arc<Self>,
        leases: &Leases,
        balance: &LeasedBalance,
        amount: i64,
        deadline: time::Instant,
    ) -> Result<LeaseCoverage, ApiError> {
        let covered_or = |otherwise| if balance.covers(amount) { LeaseCoverage::Covered } else { otherwise };
        loop {
            if balance.covers(amount) {
                return Ok(LeaseCoverage::Covered);
            }
            if leases.is_left_to_peer(balance) {
                return Ok(covered_or(LeaseCoverage::LeftToPeer));
            }
            if leases.cancel_pending_return(balance) {
                continue;
            }
            if leases.is_pool_known_insufficient(balance, amount) {
                return Ok(LeaseCoverage::PoolEmpty);
            }
            let drawing = self.draw_for_request(leases, balance, amount);
            match time::timeout_at(deadline, drawing).await.ok().flatten() {
                // Other requests may reserve the drawn amount first, so the pool is asked again.
                Some(DrawOutcome::Drawn | DrawOutcome::Contended) => {}
                // Another request may have ended meanwhile, and released what it had reserved.
                Some(DrawOutcome::PoolEmpty) => return Ok(covered_or(LeaseCoverage::PoolEmpty)),
                None => return Err(database_unavailable()),
            }
        }
    }

    /// Draws on a blocking thread, since the store blocks; `None` if the store fails. One request draws for all that
    /// wait for the same pool.
    async fn draw_for_request(
        self: &Arc<Self>,
        leases: &Leases,
        balance: &LeasedBalance,
        amount: i64,
    ) -> Option<DrawOutcome> {
        let guard = leases.drawing(balance).lock_owned().await;
        if balance.covers(amount) {
            return Some(DrawOutcome::Drawn);
        }
        if leases.is_pool_known_insufficient(balance, amount) {
            return Some(DrawOutcome::PoolEmpty);
        }
        let permit = leases.draw_permits.clone().acquire_owned().await.ok()?;
        let (ledger, balance) = (self.clone(), balance.clone());
        let work = tokio::task::spawn_blocking(move || {
            let drawn = ledger.draw_now(&balance, amount);
            drop((guard, permit));
            drawn
        });
        work.await.ok()?
    }

    /// Draws for a request, and records the balance of the account if its pool has too little; `None` if the store
    /// fails.
    fn draw_now(&self, balance: &LeasedBalance, amount: i64) -> Option<DrawOutcome> {
        let leases = self.leases.as_ref()?;
        leases.blocking_draws.fetch_add(1, Ordering::Relaxed);
        match leases.draw(balance, amount.saturating_mul(DRAW_PRICE_MULTIPLE), amount) {
            Ok(true) => return Some(DrawOutcome::Drawn),
            Ok(false) => {}
            Err(FleetError::Store(StoreError::Guard { .. })) => return Some(DrawOutcome::Contended),
            Err(_) => return None,
        }
        if let LeasedBalance::Wallet(account, wallet) = balance {
            let total = self.store.balance(&account.name).ok()?.unwrap_or_default();
            let total = if *wallet == Wallet::Credits { total.credits } else { total.energy };
            leases.record_total(balance, total);
        }
        Some(DrawOutcome::PoolEmpty)
    }
}
