//! Spending of keys and accounts. It is written to the store regularly and handed over at an upgrade. Charges of a
//! draining process, and charges replayed from the journal, are added to it.

use super::AppState;
use crate::billing::handover::BudgetCharge;
use penstock_core::MicroCredits;
use penstock_ledger::Wallet;

impl AppState {
    /// Writes the spending since the last call to the store; blocks. Returns false if some of it is still unwritten,
    /// or if another process has the store open and counts the spending itself.
    pub fn flush_spends(&self) -> bool {
        let _guard = self.spend_flush_lock.lock();
        !self.is_store_handed_over() && self.key_cache.flush_spends(&self.stores.spends)
    }

    /// Writes the spending for the process that takes over; blocks. Returns the number of the last ledger operation
    /// whose charge is included in the written spending; 0 if the spending could not be written. The new process
    /// counts the charges of later operations.
    pub fn flush_final_spends(&self) -> u64 {
        let _guard = self.spend_flush_lock.lock();
        let (spent, upto) = {
            let _still = self.charge_lock.write();
            (self.key_cache.take_spends(), self.ledger.last_pushed_ticket())
        };
        if self.key_cache.write_spends(spent, &self.stores.spends) { upto } else { 0 }
    }

    /// Counts a charge of a draining process, or one that was replayed from the journal, in the budgets of this
    /// process.
    pub fn apply_charge_of_other_process(&self, charged: &BudgetCharge) {
        let Some(principal) = self.key_cache.find_principal(&charged.key) else { return };
        let money = match charged.wallet {
            Wallet::Credits => MicroCredits(charged.amount),
            Wallet::Energy => {
                let rate = self.config_snapshot().settings.billing.eur_per_credit;
                let credits = charged.eur.checked_div(rate).and_then(MicroCredits::from_credits);
                credits.unwrap_or_default()
            }
        };
        crate::limits::rate_limit::apply_charge_of_other_process(&principal, money, self.clock);
        self.key_cache.mark_spend_dirty(&principal);
    }
}
