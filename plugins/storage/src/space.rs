//! The spaces of the store: one flat key space per kind of row, told apart by a one-byte tag.
//!
//! Tags are on disk for ever: a tag is never given to another space, and a retired one stays unused.

/// A kind of row. Keys of different spaces never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Space {
    /// Facts of the store itself: its format, counters.
    Meta = 1,
    /// API keys by public id.
    Keys = 2,
    /// Which keys an account has: `account \0 public id`, empty rows.
    AccountKeys = 3,
    /// Accounts.
    Accounts = 4,
    /// Sheets of ledger entries, append-only.
    Ledger = 5,
    /// Open reserves.
    Reserves = 6,
    /// What is known of uploaded files (their contents are plain files elsewhere).
    Files = 7,
    /// Batches and their state.
    Batches = 8,
    /// Lines of batches that are not settled yet.
    Lines = 9,
    /// Answers kept for repeated requests.
    Idempotency = 10,
    /// Balances by account: what the ledger's entries add up to.
    Balances = 11,
    /// Who changed what and when, append-only.
    Audit = 16,
    /// What keys and accounts spent in the running day and month.
    Spend = 17,
    /// Speeds as they were measured: what offers and models were like before a restart.
    Figures = 18,
}

impl Space {
    /// Every space, by rising tag.
    pub const ALL: [Space; 14] = [
        Space::Meta,
        Space::Keys,
        Space::AccountKeys,
        Space::Accounts,
        Space::Ledger,
        Space::Reserves,
        Space::Files,
        Space::Batches,
        Space::Lines,
        Space::Idempotency,
        Space::Balances,
        Space::Audit,
        Space::Spend,
        Space::Figures,
    ];

    /// The byte that stands for this space on disk.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The space of a tag; `None` for a tag this version does not know.
    #[must_use]
    pub fn of_tag(tag: u8) -> Option<Space> {
        Space::ALL.into_iter().find(|space| space.tag() == tag)
    }

    /// The name used in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Space::Meta => "meta",
            Space::Keys => "keys",
            Space::AccountKeys => "account_keys",
            Space::Accounts => "accounts",
            Space::Ledger => "ledger",
            Space::Reserves => "reserves",
            Space::Files => "files",
            Space::Batches => "batches",
            Space::Lines => "lines",
            Space::Idempotency => "idempotency",
            Space::Balances => "balances",
            Space::Audit => "audit",
            Space::Spend => "spend",
            Space::Figures => "figures",
        }
    }

    /// The space of a name used in exports.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Space> {
        Space::ALL.into_iter().find(|space| space.name() == name)
    }
}
