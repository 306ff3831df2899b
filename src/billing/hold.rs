//! Hold: the reservation of one request. It ends exactly once: at once by a method of the hold, or as a [`HoldEnd`]
//! that is recorded together with others.

use super::Ledger;
use super::balance::AccountBalance;
use super::write_op::{LedgerAction, SaleTerms, WriteOp};
use penstock_ledger::{EntryKind, RequestFootprint, SaleDetails, Wallet};
use std::sync::Arc;

/// Charge of a request.
pub struct Settlement {
    /// Amount in micro-credits or nano-kWh, by the hold's wallet.
    pub amount: i64,
    /// Amount in 1e-8 EUR.
    pub eur: i64,
    /// Sold work, such as the model, the provider and the number of tokens.
    pub sale: SaleDetails,
    /// Terms of the sale.
    pub terms: Arc<SaleTerms>,
    /// Footprint of the request.
    pub footprint: RequestFootprint,
}

/// Open reservation. It is voided if it is dropped without an end.
pub struct Hold {
    ledger: Arc<Ledger>,
    balance: Arc<AccountBalance>,
    request: Arc<str>,
    key: Arc<str>,
    wallet: Wallet,
    amount: i64,
    exposed: i64,
    ended: bool,
}

impl Hold {
    pub(super) fn new(
        ledger: Arc<Ledger>,
        balance: Arc<AccountBalance>,
        request: Arc<str>,
        key: Arc<str>,
        wallet: Wallet,
        amount: i64,
        exposed: i64,
    ) -> Self {
        Self { ledger, balance, request, key, wallet, amount, exposed, ended: false }
    }

    /// Adds the reservation to the write queue of the ledger.
    pub(super) fn queue_reservation(&self) {
        let (request, key) = (self.request.clone(), self.key.clone());
        let act = EntryKind::Reserve { request, key, wallet: self.wallet, amount: self.amount };
        self.ledger.queue.push(WriteOp::Action(self.action(act, None, 0)));
    }

    /// Returns the wallet that pays for the request.
    #[must_use]
    pub const fn wallet(&self) -> Wallet {
        self.wallet
    }

    /// Settles the reservation with a charge; returns the number of the operation, for a caller that has to wait until
    /// the charge is on the disk.
    pub fn settle(mut self, charge: Settlement) -> u64 {
        let action = self.settle_action(charge);
        self.ledger.queue.push(WriteOp::Action(action))
    }

    /// Voids the reservation without a charge.
    pub fn void(mut self, why: &str, footprint: RequestFootprint) {
        self.push_void(why, footprint);
    }

    /// Ends the hold without an entry, and without releasing its amount, because another process ends the reservation.
    pub(super) fn disarm(mut self) {
        self.ended = true;
    }

    /// Returns the end of the reservation by a charge, which the caller records later.
    #[must_use]
    pub fn into_settled_end(self, charge: Settlement) -> HoldEnd {
        HoldEnd { hold: self, kind: HoldEndKind::Settled(Box::new(charge)) }
    }

    /// Returns the end of the reservation by a void, which the caller records later.
    #[must_use]
    pub const fn into_voided_end(self, why: &'static str, footprint: RequestFootprint) -> HoldEnd {
        HoldEnd { hold: self, kind: HoldEndKind::Voided(why, footprint) }
    }

    fn settle_action(&mut self, charge: Settlement) -> LedgerAction {
        self.ended = true;
        self.balance.release_and_charge(self.wallet, self.amount, charge.amount);
        self.ledger.queue.add_exposed_amount(charge.eur.saturating_sub(self.exposed));
        let act = EntryKind::Settle {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            amount: charge.amount,
            held: self.amount,
            sale: Box::new(charge.sale),
            footprint: charge.footprint,
        };
        self.action(act, Some(charge.terms), charge.eur)
    }

    fn push_void(&mut self, why: &str, footprint: RequestFootprint) {
        let action = self.void_action(why, footprint);
        self.ledger.queue.push(WriteOp::Action(action));
    }

    fn void_action(&mut self, why: &str, footprint: RequestFootprint) -> LedgerAction {
        self.ended = true;
        self.balance.release_and_charge(self.wallet, self.amount, 0);
        self.ledger.queue.add_exposed_amount(-self.exposed);
        let act = EntryKind::Void {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            held: self.amount,
            why: why.into(),
            footprint,
        };
        self.action(act, None, 0)
    }

    fn action(&self, act: EntryKind, terms: Option<Arc<SaleTerms>>, exposed: i64) -> LedgerAction {
        LedgerAction {
            at: self.ledger.clock.unix_seconds(),
            account: self.balance.name.clone(),
            act,
            terms,
            exposed_eur: exposed,
            number: 0,
        }
    }
}

/// End of a reservation, to be recorded by [`Ledger::record_outcomes`] or [`Ledger::record_fenced_outcomes`]; if it is
/// dropped before that, the reservation is voided.
pub struct HoldEnd {
    hold: Hold,
    kind: HoldEndKind,
}

enum HoldEndKind {
    Settled(Box<Settlement>),
    Voided(&'static str, RequestFootprint),
}

impl HoldEnd {
    /// Returns true if there is a charge.
    #[must_use]
    pub const fn is_charge(&self) -> bool {
        matches!(self.kind, HoldEndKind::Settled(_))
    }

    /// Returns the account, the wallet and the amount of the charge; `None` for a void.
    pub(super) fn charge(&self) -> Option<(Arc<AccountBalance>, Wallet, i64)> {
        let HoldEndKind::Settled(charge) = &self.kind else { return None };
        Some((self.hold.balance.clone(), self.hold.wallet, charge.amount))
    }

    /// Converts the end to the ledger action that records it.
    pub(super) fn into_action(self) -> LedgerAction {
        let Self { mut hold, kind: how } = self;
        match how {
            HoldEndKind::Settled(charge) => hold.settle_action(*charge),
            HoldEndKind::Voided(why, footprint) => hold.void_action(why, footprint),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.push_void("dropped", RequestFootprint::default());
        }
    }
}
