//! A hold: what was set aside for one request. It ends once, whatever happens.

use super::Ledger;
use super::purse::Purse;
use super::queue::{Op, TermsText};
use penstock_ledger::{Act, Drawn, Sale, Wallet};
use std::sync::Arc;

/// A charge.
pub struct Settlement {
    /// Micro-credits or nano-kWh, by the hold's wallet.
    pub amount: i64,
    /// The same in 1e-8 EUR.
    pub eur: i64,
    /// What was sold.
    pub sale: Sale,
    /// The terms it was sold under.
    pub terms: Arc<TermsText>,
    /// What it drew.
    pub drawn: Drawn,
}

/// An open reserve. Dropped without an end it is voided.
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

    /// Writes the reserve down.
    pub(super) fn reserved(&self) {
        let (request, key) = (self.request.clone(), self.key.clone());
        self.push(Act::Reserve { request, key, wallet: self.wallet, amount: self.amount }, None, 0);
    }

    /// The wallet that pays.
    #[must_use]
    pub const fn wallet(&self) -> Wallet {
        self.wallet
    }

    /// The request was answered; returns what to wait for if its charge has to
    /// be on the disk.
    pub fn settle(mut self, charge: Settlement) -> u64 {
        self.ended = true;
        self.purse.end(self.wallet, self.amount, charge.amount);
        self.ledger.queue.expose(charge.eur.saturating_sub(self.exposed));
        let act = Act::Settle {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            amount: charge.amount,
            held: self.amount,
            sale: Box::new(charge.sale),
            drawn: charge.drawn,
        };
        self.push(act, Some(charge.terms), charge.eur)
    }

    /// The request ended without a charge.
    pub fn void(mut self, why: &'static str, drawn: Drawn) {
        self.end(why, drawn);
    }

    fn end(&mut self, why: &'static str, drawn: Drawn) {
        self.ended = true;
        self.purse.end(self.wallet, self.amount, 0);
        self.ledger.queue.expose(-self.exposed);
        let act = Act::Void {
            request: self.request.clone(),
            key: self.key.clone(),
            wallet: self.wallet,
            held: self.amount,
            why: why.into(),
            drawn,
        };
        self.push(act, None, 0);
    }

    fn push(&self, act: Act, terms: Option<Arc<TermsText>>, exposed: i64) -> u64 {
        let (at, account) = (self.ledger.clock.unix(), self.purse.name.clone());
        self.ledger.queue.push(Op::Act { at, account, act, terms, exposed })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            self.end("dropped", Drawn::default());
        }
    }
}
