//! Tables of the store: one flat key space per kind of row, distinguished by a one-byte tag.
//!
//! Tags are permanent on disk: a tag is never reused for another table, and a retired tag stays unused.

/// Table of the store, with rows of one kind. Keys of different tables never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum StoreTable {
    /// Metadata of the store itself, such as its format and counters.
    Meta = 1,
    /// API keys by public id.
    Keys = 2,
    /// Index of the keys of an account: `account \0 public id`, with empty rows.
    AccountKeys = 3,
    /// Accounts.
    Accounts = 4,
    /// Blocks of ledger entries, append-only.
    Ledger = 5,
    /// Reservations of amounts for requests that have not ended yet.
    Reserves = 6,
    /// Metadata of uploaded files; the contents are plain files outside the store.
    Files = 7,
    /// Batches and their state.
    Batches = 8,
    /// Lines of unfinished batches: a bit for each line that has its result.
    Lines = 9,
    /// Idempotency keys: names of ledger entries, by which a repeated request is recognised.
    Idempotency = 10,
    /// Balances by account: the sum of the ledger's entries.
    Balances = 11,
    /// Audit log of administrative changes, append-only.
    Audit = 16,
    /// Spending of keys and accounts in the current day and month.
    Spend = 17,
    /// Measured speeds of offers and models, restored after a restart.
    Measurements = 18,
    /// Hourly sums of the ledger's entries.
    Usage = 19,
    /// Persons who may sign in to the console, and their invitations.
    Users = 20,
    /// Sessions of signed-in persons.
    Sessions = 21,
    /// Issued invoices and the counters of their numbers.
    Invoices = 22,
}

impl StoreTable {
    /// All tables of a store, by ascending tag.
    pub const ALL: [StoreTable; 18] = [
        StoreTable::Meta,
        StoreTable::Keys,
        StoreTable::AccountKeys,
        StoreTable::Accounts,
        StoreTable::Ledger,
        StoreTable::Reserves,
        StoreTable::Files,
        StoreTable::Batches,
        StoreTable::Lines,
        StoreTable::Idempotency,
        StoreTable::Balances,
        StoreTable::Audit,
        StoreTable::Spend,
        StoreTable::Measurements,
        StoreTable::Usage,
        StoreTable::Users,
        StoreTable::Sessions,
        StoreTable::Invoices,
    ];

    /// Returns the byte that identifies the table on disk.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// Returns the table of a tag; `None` for a tag unknown to this version.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<StoreTable> {
        StoreTable::ALL.into_iter().find(|space| space.tag() == tag)
    }

    /// Returns the table name used in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StoreTable::Meta => "meta",
            StoreTable::Keys => "keys",
            StoreTable::AccountKeys => "account_keys",
            StoreTable::Accounts => "accounts",
            StoreTable::Ledger => "ledger",
            StoreTable::Reserves => "reserves",
            StoreTable::Files => "files",
            StoreTable::Batches => "batches",
            StoreTable::Lines => "lines",
            StoreTable::Idempotency => "idempotency",
            StoreTable::Balances => "balances",
            StoreTable::Audit => "audit",
            StoreTable::Spend => "spend",
            StoreTable::Measurements => "figures",
            StoreTable::Usage => "usage",
            StoreTable::Users => "users",
            StoreTable::Sessions => "sessions",
            StoreTable::Invoices => "invoices",
        }
    }

    /// Returns the table of a name used in exports.
    #[must_use]
    pub fn from_name(name: &str) -> Option<StoreTable> {
        StoreTable::ALL.into_iter().find(|space| space.name() == name)
    }
}
