//! Double entry: the movements of an entry between the four books of a wallet.

use crate::entry::{CorrectedKind, EntryKind, Wallet};

/// Book of a wallet in the double-entry system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletBook {
    /// Source of grants: minus the sum of all grants.
    Issued,
    /// Funds of customers that are neither held nor spent.
    Customer,
    /// Amounts held by open reserves.
    Held,
    /// Charged amounts.
    Revenue,
}

/// Change of one book by an amount; negative if the book loses the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookPosting {
    /// Changed book.
    pub book: WalletBook,
    /// Amount added to the book, in the unit of the wallet; negative if the book loses the amount.
    pub amount: i128,
}

/// Returns the wallet of an entry and its postings, which add up to zero; `None` for pricing terms.
#[must_use]
pub fn entry_postings(act: &EntryKind) -> Option<(Wallet, [BookPosting; 3])> {
    use WalletBook::{Customer, Held, Issued, Revenue};
    let wide = i128::from;
    let (wallet, moves) = match act {
        EntryKind::Terms { .. } => return None,
        EntryKind::Grant { wallet, amount, .. } => {
            (wallet, [(Issued, -wide(*amount)), (Customer, wide(*amount)), (Held, 0)])
        }
        EntryKind::Reserve { wallet, amount, .. } => {
            (wallet, [(Customer, -wide(*amount)), (Held, wide(*amount)), (Revenue, 0)])
        }
        EntryKind::Settle { wallet, amount, held, .. } => (
            wallet,
            [(Held, -wide(*held)), (Revenue, wide(*amount)), (Customer, wide(*held) - wide(*amount))],
        ),
        EntryKind::Void { wallet, held, .. } => {
            (wallet, [(Held, -wide(*held)), (Customer, wide(*held)), (Revenue, 0)])
        }
        EntryKind::Correct { what, wallet, previous_amount: was, new_amount: instead, .. } => {
            let back = wide(*was) - wide(*instead);
            match what {
                CorrectedKind::Settle => (wallet, [(Revenue, -back), (Customer, back), (Held, 0)]),
                CorrectedKind::Grant => (wallet, [(Customer, -back), (Issued, back), (Held, 0)]),
            }
        }
    };
    Some((*wallet, moves.map(|(book, amount)| BookPosting { book, amount })))
}

/// Sums of the four books of one wallet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookTotals {
    /// Sum of [`WalletBook::Issued`].
    pub issued: i128,
    /// Sum of [`WalletBook::Customer`].
    pub customer: i128,
    /// Sum of [`WalletBook::Held`].
    pub held: i128,
    /// Sum of [`WalletBook::Revenue`].
    pub revenue: i128,
}

impl BookTotals {
    /// Adds a posting.
    pub fn post(&mut self, posting: BookPosting) {
        let book = match posting.book {
            WalletBook::Issued => &mut self.issued,
            WalletBook::Customer => &mut self.customer,
            WalletBook::Held => &mut self.held,
            WalletBook::Revenue => &mut self.revenue,
        };
        *book = book.saturating_add(posting.amount);
    }

    /// Returns the sum of the four books; any other value than zero is an error.
    #[must_use]
    pub const fn sum(&self) -> i128 {
        self.issued + self.customer + self.held + self.revenue
    }
}
