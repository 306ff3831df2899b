//! Charges of the past that are recorded in a new ledger, so that the demo has a history.

use super::write_op::{BatchOutcomes, LedgerAction, WriteOp};
use super::{Ledger, MAX_OUTCOMES, Settlement};
use penstock_ledger::{EntryKind, Wallet};
use std::sync::Arc;

/// Charge with a time in the past, paid with credits, that is written to a new ledger.
pub struct BackdatedCharge {
    /// Time of the charge, Unix seconds.
    pub at: u64,
    /// Id of the request.
    pub request: Arc<str>,
    /// Amounts, terms and footprint.
    pub settlement: Settlement,
}

impl Ledger {
    /// Records charges of the past if the ledger has no entries. `charges` are in ascending order of their times.
    /// Returns true once they are on the disk. Returns false if `charges` is empty, if the ledger has entries, or if
    /// its writer ends.
    pub async fn import_backdated_charges(
        &self,
        account: &str,
        key: &Arc<str>,
        charges: Vec<BackdatedCharge>,
    ) -> bool {
        if self.queue.entry_count() > 0 || charges.is_empty() {
            return false;
        }
        let balance = self.account_balance(account);
        let mut actions = Vec::new();
        for BackdatedCharge { at, request, settlement } in charges {
            let Settlement { amount, eur, sale, terms, footprint } = settlement;
            let wallet = Wallet::Credits;
            balance.release_and_charge(wallet, 0, amount);
            self.queue.add_exposed_amount(eur);
            let reserve = EntryKind::Reserve { request: request.clone(), key: key.clone(), wallet, amount };
            let sale = Box::new(sale);
            let settle = EntryKind::Settle {
                request,
                key: key.clone(),
                wallet,
                amount,
                held: amount,
                sale,
                footprint,
            };
            let account = &balance.name;
            let action = |act, terms, exposed| LedgerAction {
                at,
                account: account.clone(),
                act,
                terms,
                exposed_eur: exposed,
                number: 0,
            };
            actions.push(action(reserve, None, 0));
            actions.push(action(settle, Some(terms), eur));
        }
        let mut ticket = 0;
        while !actions.is_empty() {
            let rest = actions.split_off(actions.len().min(MAX_OUTCOMES));
            ticket = self.queue.push(WriteOp::Outcomes(BatchOutcomes { actions, rows: Vec::new() }));
            actions = rest;
        }
        self.wait_durable(ticket).await
    }
}
