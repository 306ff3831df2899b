//! Hold: the reservation of one request. It ends exactly once: immediately, or as an [`Ending`] that is recorded
//! together with others.

use super::Ledger;
use super::balance::Purse;
use super::op::{Deed, Op, TermsText};
use penstock_ledger::{EntryKind, RequestFootprint, SaleDetails, Wallet};
use std::sync::Arc;

/// Charge of a request.
pub struct Settlement {
    /// Amount in micro-credits or nano-kWh, by the hold's wallet.
    pub amount: i64,
    /// Amount in 1e-8 EUR.
    pub eur: i64,
    /// Billed work.
    pub sale: SaleDetails,
    /// Terms of the sale.
    pub terms: Arc<TermsText>,
    /// Footprint of the request.
    pub drawn: RequestFootprint,
}

/// Open reservation. It is voided if it is dropped without an end.
pub struct Hold {
    ledger: Arc<Ledger>,
    purse: Arc<Purse>,
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
        purse: Arc<Purse>,
        request: Arc<str>,
        key: Arc<str>,
        wallet: Wallet,
        amount: i64,
        exposed: i64,
    ) -> Self {
        Self { ledger, purse, request, key, wallet, amount, exposed, ended: false }
    }

    /// Records the reservation.
    pub(super) fn reserved(&self) {
        let (request, key) = (self.request.clone(), self.key.clone());
        let act = EntryKind::Reserve { request, key, wallet: self.wallet, amount: self.amount };
        self.ledger.queue.push(Op::Act(self.deed(act, None, 0)));
    }

    /// Wallet that pays.
    #[must_use]
    pub const fn wallet(&self) -> Wallet {
        self.wallet
    }

    /// Settles the reservation with a charge; returns the ticket to wait for if the charge must be on the disk.
    pub fn settle(mut self, charge: Settlement) -> u64 {
        let deed = self.settled(charge);
        self.ledger.queue.push(Op::Act(deed))
    }

    /// Voids the reservation without a charge.
    pub fn void(mut self, why: &str, drawn: RequestFootprint) {
        self.end(why, drawn);
    }

    /// Ends the hold without an entry, because another process ends the reservation.
    pub(super) fn leave(mut self) {
        self.ended = true;
    }

    /// Settles the reservation with a charge that is recorded later.
    #[must_use]
    pub fn settling(self, charge: Settlement) -> Ending {
        Ending { hold: self, how: How::Settled(Box::new(charge)) }
    }

    /// Voids the reservation with an entry that is recorded later.
    #[must_use]
    pub const fn voiding(self, why: &'static str, drawn: RequestFootprint) -> Ending {
        Ending { hold: self, how: How::Voided(why, drawn) }
    }

    fn settled(&mut self, charge: Settlement) -> Deed {
        self.ended = true;
        self.purse.end(self.wallet, self.amount, charge.amount);
        self.ledger.queue.expose(charge.eur.saturating_sub(self.exposed));
        let act = EntryKind::Settle {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            amount: charge.amount,
            held: self.amount,
            sale: Box::new(charge.sale),
            drawn: charge.drawn,
        };
        self.deed(act, Some(charge.terms), charge.eur)
    }

    fn end(&mut self, why: &str, drawn: RequestFootprint) {
        let deed = self.voided(why, drawn);
        self.ledger.queue.push(Op::Act(deed));
    }

    fn voided(&mut self, why: &str, drawn: RequestFootprint) -> Deed {
        self.ended = true;
        self.purse.end(self.wallet, self.amount, 0);
        self.ledger.queue.expose(-self.exposed);
        let act = EntryKind::Void {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            held: self.amount,
            why: why.into(),
            drawn,
        };
        self.deed(act, None, 0)
    }

    fn deed(&self, act: EntryKind, terms: Option<Arc<TermsText>>, exposed: i64) -> Deed {
        Deed { at: self.ledger.clock.unix(), account: self.purse.name.clone(), act, terms, exposed }
    }
}

/// End of a reservation, to be recorded by [`Ledger::enter`]; if it is dropped before that, the
/// reservation is voided.
pub struct Ending {
    hold: Hold,
    how: How,
}

enum How {
    Settled(Box<Settlement>),
    Voided(&'static str, RequestFootprint),
}

impl Ending {
    /// Returns true if there is a charge.
    #[must_use]
    pub const fn is_charge(&self) -> bool {
        matches!(self.how, How::Settled(_))
    }

    pub(super) fn deed(self) -> Deed {
        let Self { mut hold, how } = self;
        match how {
            How::Settled(charge) => hold.settled(*charge),
            How::Voided(why, drawn) => hold.voided(why, drawn),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.end("dropped", RequestFootprint::default());
        }
    }
}
