//! Effects of ledger entries: the balance after an action, the refund of a correction, the replacement of a charge.

use penstock_ledger::{CorrectedKind, EntryKind, Wallet};
use penstock_storage::ledger::BalanceRecord;

/// Returns the void that replaces a charge that cannot be recorded; `None` for other actions.
pub(super) fn replacement_void(act: &EntryKind, why: &str) -> Option<EntryKind> {
    let EntryKind::Settle { request, key, wallet, held, footprint, .. } = act else { return None };
    let (request, key, why) = (request.clone(), key.clone(), why.into());
    Some(EntryKind::Void { request, key, wallet: *wallet, held: *held, why, footprint: *footprint })
}

/// Returns the change of an account's balance by an action: `Some(None)` if the action does not change it, `None` if
/// the action is invalid.
pub(super) fn balance_change(act: &EntryKind) -> Option<Option<BalanceRecord>> {
    let (wallet, change) = match act {
        EntryKind::Grant { wallet, amount, .. } => (wallet, Some(*amount).filter(|amount| *amount > 0)?),
        EntryKind::Settle { wallet, amount, .. } => (wallet, amount.checked_neg()?),
        EntryKind::Correct { wallet, .. } => (wallet, correction_balance_change(act)?),
        EntryKind::Reserve { .. } | EntryKind::Void { .. } | EntryKind::Terms { .. } => return Some(None),
    };
    Some(Some(match wallet {
        Wallet::Credits => BalanceRecord { credits: change, energy: 0 },
        Wallet::Energy => BalanceRecord { credits: 0, energy: change },
    }))
}

/// Returns a balance after a change; `None` if an amount would exceed 64 bits.
pub(super) fn apply_balance_change(balance: BalanceRecord, change: BalanceRecord) -> Option<BalanceRecord> {
    Some(BalanceRecord {
        credits: balance.credits.checked_add(change.credits)?,
        energy: balance.energy.checked_add(change.energy)?,
    })
}

/// Returns the amount that a correction adds to the balance; `None` for other entries, or on overflow.
pub(super) fn correction_balance_change(act: &EntryKind) -> Option<i64> {
    let EntryKind::Correct { what, previous_amount: was, new_amount: instead, .. } = act else { return None };
    match what {
        CorrectedKind::Settle => was.checked_sub(*instead),
        CorrectedKind::Grant => instead.checked_sub(*was),
    }
}
