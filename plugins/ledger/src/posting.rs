//! Double entry: what an act moves between the four books of a wallet.

use crate::entry::{Act, Ending, Wallet};

/// The books of one wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Book {
    /// Where grants come from: below zero by all that was ever granted.
    Issued,
    /// What customers may spend.
    Customer,
    /// Open reserves.
    Held,
    /// What was charged.
    Revenue,
}

/// An amount that one book gains, or loses below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// The book.
    pub book: Book,
    /// The change.
    pub amount: i128,
}

/// The wallet that an act moves, and its postings; they add up to zero.
#[must_use]
pub fn postings(act: &Act) -> Option<(Wallet, [Posting; 3])> {
    use Book::{Customer, Held, Issued, Revenue};
    let wide = i128::from;
    let (wallet, moves) = match act {
        Act::Terms { .. } => return None,
        Act::Grant { wallet, amount, .. } => {
            (wallet, [(Issued, -wide(*amount)), (Customer, wide(*amount)), (Held, 0)])
        }
        Act::Reserve { wallet, amount, .. } => {
            (wallet, [(Customer, -wide(*amount)), (Held, wide(*amount)), (Revenue, 0)])
        }
        Act::Settle { wallet, amount, held, .. } => (
            wallet,
            [(Held, -wide(*held)), (Revenue, wide(*amount)), (Customer, wide(*held) - wide(*amount))],
        ),
        Act::Void { wallet, held, .. } => {
            (wallet, [(Held, -wide(*held)), (Customer, wide(*held)), (Revenue, 0)])
        }
        Act::Correct { what, wallet, was, instead, .. } => {
            let back = wide(*was) - wide(*instead);
            match what {
                Ending::Settle => (wallet, [(Revenue, -back), (Customer, back), (Held, 0)]),
                Ending::Grant => (wallet, [(Customer, -back), (Issued, back), (Held, 0)]),
            }
        }
    };
    Some((*wallet, moves.map(|(book, amount)| Posting { book, amount })))
}

/// The sums of the four books of one wallet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// See [`Book::Issued`].
    pub issued: i128,
    /// See [`Book::Customer`].
    pub customer: i128,
    /// See [`Book::Held`].
    pub held: i128,
    /// See [`Book::Revenue`].
    pub revenue: i128,
}

impl Totals {
    /// Adds a posting.
    pub fn post(&mut self, posting: Posting) {
        let book = match posting.book {
            Book::Issued => &mut self.issued,
            Book::Customer => &mut self.customer,
            Book::Held => &mut self.held,
            Book::Revenue => &mut self.revenue,
        };
        *book = book.saturating_add(posting.amount);
    }

    /// Zero, or the books are wrong.
    #[must_use]
    pub const fn sum(&self) -> i128 {
        self.issued + self.customer + self.held + self.revenue
    }
}
