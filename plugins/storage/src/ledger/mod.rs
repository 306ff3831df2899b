//! The ledger in a store: sheets of entries, balances and the ledger's tip, written together; and a second
//! copy of the sheets in one file a month.
//!
//! A sheet is a part of what one commit adds, as lines of text that nothing here reads. Each commit is one guarded
//! batch (so no commit is ever made twice), and once the store has it durably its sheets are appended to the month's
//! file, before [`LedgerStore::append`] returns. The file is synced within a quarter of a second, see
//! [`LedgerStore::copy_due`].
//!
//! ```text
//! row of a sheet    `2026-11` | number of its last entry (8 bytes, big-endian)  →  its text, packed, see `pack.rs`
//! row of the tip    meta `ledger`                                              →  [`Tip`]
//! row of a month    meta `ledger/2026-11`                                      →  bytes of its file
//! file of a month   <folder>/2026-11.jsonl                                     =  its sheets in order
//! ```
//! Rows of others may go with a commit: what was charged for and its charge are there together, or neither.
//! The store is written first, so after a crash a file may lack its end, never have more than the store: that
//! is made up for when the ledger is opened. A file that has more is proof that the store lost entries, and
//! the ledger is not opened; see [`LedgerStore::clear`].

mod copy;
mod key;
mod pack;
mod record;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::copy::Copies;
use self::key::{NAMES, month_key, name_key, sheet_key, split_key};
pub use self::pack::unpack;
pub use self::record::{BalanceRecord, Tip};
use crate::{Batch, MAX_BATCH, MAX_KEY, MAX_STEPS, MAX_VALUE, Space, Store, StoreError};

const TIP: &[u8] = b"ledger";

/// Most bytes of one sheet.
pub const MAX_SHEET: usize = MAX_VALUE;
/// A sheet of so many bytes is long enough. sled keeps hundreds of the pages it wrote last, whatever its cache may
/// hold (it looks at a 256th of them after 64 accesses), and a page is up to seventeen rows. Packed it is a third.
pub const GOOD_SHEET: usize = 6 * 1024;
/// Most bytes of the sheets of one commit.
pub const MAX_GROUP: usize = MAX_BATCH / 2;
/// Most sheets, balances, names and further rows of one commit together.
pub const MAX_ROWS: usize = MAX_STEPS / 2;
/// Most bytes of the further rows of one commit.
pub const MAX_ROW_BYTES: usize = MAX_BATCH / 4;

/// Entries that are added together, all of one month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// `2026-11`.
    pub month: String,
    /// Number of the last entry in it.
    pub last: u64,
    /// Its lines.
    pub text: Vec<u8>,
}

/// A row that belongs to a commit and is none of the ledger's own: what became of the work that is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// Its space.
    pub space: Space,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl RowWrite {
    /// What it takes of [`MAX_ROW_BYTES`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    /// Whether it is within the store's caps for one row.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.key.len() <= MAX_KEY && self.value.as_ref().is_none_or(|value| value.len() <= MAX_VALUE)
    }
}

/// One commit. Without sheets the ledger stands where it stood, `before` and `after` being the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Where the ledger has to stand for it; `None` before the first.
    pub before: Option<Tip>,
    /// Where it stands afterwards.
    pub after: Tip,
    /// In order.
    pub sheets: Vec<Sheet>,
    /// Balances that changed, by account.
    pub balances: Vec<(String, BalanceRecord)>,
    /// Names that are used up, see [`LedgerStore::number_of`], with the number of their entry.
    pub names: Vec<(String, u64)>,
    /// Rows that are written with it, in order.
    pub rows: Vec<RowWrite>,
}

/// What became of a commit that is durable in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Whether the second copy has it too. If not, the next commit or opening makes up for it.
    pub copied: bool,
}

/// The ledger of a store.
#[derive(Debug)]
pub struct LedgerStore {
    store: Arc<dyn Store>,
    copies: Option<Mutex<Copies>>,
    folder: Option<PathBuf>,
}

impl LedgerStore {
    /// The ledger in `store`, its second copy in the folder `copies`, made if it is missing; `None` for a
    /// store that keeps nothing. Brings the copy up to the store.
    ///
    /// # Errors
    /// `Corrupt` if the copy has entries that the store lacks; as [`Store::scan`], and `Full` or `Io` if the
    /// files cannot be brought up.
    pub fn open(store: Arc<dyn Store>, copies: Option<&Path>) -> Result<LedgerStore, StoreError> {
        let folder = copies.map(Path::to_owned);
        let copies = copies.map(Copies::open).transpose()?;
        let ledger = LedgerStore { store, copies: copies.map(Mutex::new), folder };
        if let Some(copies) = &ledger.copies {
            copies.lock().catch_up(&ledger)?;
        }
        Ok(ledger)
    }

    /// The ledger in `store`, to be looked at: its second copy is neither made nor brought up.
    #[must_use]
    pub fn look(store: Arc<dyn Store>) -> LedgerStore {
        LedgerStore { store, copies: None, folder: None }
    }

    /// The same, with the folder `copies` to compare: nothing is written to either.
    #[must_use]
    pub fn inspect(store: Arc<dyn Store>, copies: &Path) -> LedgerStore {
        LedgerStore { store, copies: None, folder: Some(copies.to_owned()) }
    }

    /// What was wrong with the second copy and was written again from the store, since the last call: a sentence for
    /// each month.
    #[must_use]
    pub fn take_healed(&self) -> Vec<String> {
        self.copies.as_ref().map(|copies| copies.lock().take_healed()).unwrap_or_default()
    }

    /// Brings the second copy up to the store again, which another process may have written to.
    ///
    /// # Errors
    /// Same as [`LedgerStore::open`].
    pub fn catch_up(&self) -> Result<(), StoreError> {
        self.copies.as_ref().map_or(Ok(()), |copies| copies.lock().catch_up(self))
    }

    /// Where the ledger stands; `None` before its first entry.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn tip(&self) -> Result<Option<Tip>, StoreError> {
        self.store.get(Space::Meta, TIP)?.map(|row| Tip::from_row(&row)).transpose()
    }

    /// Adds a commit. When it returns `Ok` the commit survives a power cut. Asking again with the same group
    /// after any error is safe: a commit that was kept after all is found to be so, and one without sheets is
    /// the same rows once more.
    ///
    /// # Errors
    /// `Guard` if the ledger stands elsewhere, `TooLarge`, and what [`Store::apply`] fails with.
    pub fn append(&self, group: &Group) -> Result<Appended, StoreError> {
        let batch = self.batch(group)?;
        match self.store.apply(batch) {
            Err(StoreError::Guard { .. }) if self.tip()? == Some(group.after) => {}
            applied => applied?,
        }
        let copied = self.copies.as_ref().is_none_or(|copies| copies.lock().append(self, group));
        Ok(Appended { copied })
    }

    /// When the second copy wants [`LedgerStore::sync_copy`]; `None` while all of it is synced. Commits that follow
    /// sync it by themselves; this is for the time in which none does.
    #[must_use]
    pub fn copy_due(&self) -> Option<Duration> {
        self.copies.as_ref().and_then(|copies| copies.lock().due())
    }

    /// Makes durable what the second copy has; whether that worked. If not, the next commit or opening makes up
    /// for it.
    pub fn sync_copy(&self) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.lock().sync())
    }

    /// Why the second copy lacks something; `None` while it does not.
    #[must_use]
    pub fn why_behind(&self) -> Option<StoreError> {
        self.copies.as_ref().and_then(|copies| copies.lock().behind())
    }

    fn batch(&self, group: &Group) -> Result<Batch, StoreError> {
        let mut batch = match &group.before {
            None => Batch::new().absent(Space::Meta, TIP),
            Some(tip) => Batch::new().is(Space::Meta, TIP, tip.to_row()?),
        };
        if !group.sheets.is_empty() {
            batch = batch.put(Space::Meta, TIP, group.after.to_row()?);
        }
        let mut months: Vec<(&str, u64)> = Vec::new();
        for sheet in &group.sheets {
            batch = batch.put(Space::Ledger, sheet_key(&sheet.month, sheet.last)?, pack::pack(&sheet.text));
            let bytes = sheet.text.len() as u64;
            match months.iter_mut().find(|(month, _)| *month == sheet.month) {
                Some((_, length)) => *length += bytes,
                None => months.push((&sheet.month, self.length(&sheet.month)? + bytes)),
            }
        }
        for (month, length) in months {
            batch = batch.put(Space::Meta, month_key(month), length.to_le_bytes());
        }
        for (account, balance) in &group.balances {
            batch = batch.put(Space::Balances, account.as_bytes(), balance.to_row()?);
        }
        for (name, number) in &group.names {
            batch = batch.put(Space::Idempotency, name_key(name), number.to_le_bytes());
        }
        for row in &group.rows {
            batch = match &row.value {
                Some(value) => batch.put(row.space, row.key.as_slice(), value.as_slice()),
                None => batch.delete(row.space, row.key.as_slice()),
            };
        }
        Ok(batch)
    }

    /// Bytes of a month's sheets.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn length(&self, month: &str) -> Result<u64, StoreError> {
        match self.store.get(Space::Meta, &month_key(month))? {
            None => Ok(0),
            Some(row) => number(&row),
        }
    }

    /// The months that have sheets, in order.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn months(&self) -> Result<Vec<String>, StoreError> {
        let mut months = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(Space::Ledger, b"", after.as_deref(), 1)?;
            let Some(row) = page.rows.first() else { return Ok(months) };
            let (month, _) = split_key(&row.key)?;
            after = Some(sheet_key(&month, u64::MAX)?);
            months.push(month);
        }
    }

    /// The sheets of a month that end behind the entry `after`, in order, as one comes to need them: a page of
    /// them; and whether there are more.
    ///
    /// # Errors
    /// Same as [`Store::scan`]; of a sheet, `Corrupt` if it cannot be read.
    pub fn sheets(
        &self,
        month: &str,
        after: u64,
    ) -> Result<(impl Iterator<Item = Result<Sheet, StoreError>> + use<>, bool), StoreError> {
        let last = sheet_key(month, after)?;
        let page = self.store.scan(Space::Ledger, month.as_bytes(), Some(&last), crate::MAX_PAGE)?;
        let sheet = |row: crate::Row| {
            let (month, last) = split_key(&row.key)?;
            let unreadable = |_| {
                StoreError::corrupt(format!(
                    "the sheet of {month} that ends with entry {last} cannot be read"
                ))
            };
            let text = unpack(row.value).map_err(unreadable)?;
            Ok(Sheet { month, last, text })
        };
        Ok((page.rows.into_iter().map(sheet), page.more))
    }

    /// Gives every sheet that ends behind the entry `after` to `each`, in order.
    ///
    /// # Errors
    /// The first of `each`, or as [`Store::scan`].
    pub fn walk<E: From<StoreError>>(
        &self,
        after: u64,
        mut each: impl FnMut(&Sheet) -> Result<(), E>,
    ) -> Result<(), E> {
        for month in self.months()? {
            self.walk_month(&month, after, &mut each)?;
        }
        Ok(())
    }

    /// Same as [`LedgerStore::walk`], within one month.
    ///
    /// # Errors
    /// As there.
    pub fn walk_month<E: From<StoreError>>(
        &self,
        month: &str,
        mut after: u64,
        mut each: impl FnMut(&Sheet) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let (sheets, more) = self.sheets(month, after)?;
            let before = after;
            for sheet in sheets {
                let sheet = sheet?;
                each(&sheet)?;
                after = sheet.last;
            }
            if !more || after == before {
                return Ok(());
            }
        }
    }

    /// The balance of an account.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn balance(&self, account: &str) -> Result<Option<BalanceRecord>, StoreError> {
        let row = self.store.get(Space::Balances, account.as_bytes())?;
        row.map(|row| BalanceRecord::from_row(&row)).transpose()
    }

    /// Every balance, by account.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn balances(&self) -> Result<Vec<(String, BalanceRecord)>, StoreError> {
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(Space::Balances, b"", after.as_deref(), crate::MAX_PAGE)?;
            for row in &page.rows {
                let account = String::from_utf8(row.key.clone())
                    .map_err(|_| StoreError::corrupt("the name of an account is no text"))?;
                all.push((account, BalanceRecord::from_row(&row.value)?));
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(all),
            }
        }
    }

    /// The number of the entry that used a name up; `None` if none did.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn number_of(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.store.get(Space::Idempotency, &name_key(name))?.map(|row| number(&row)).transpose()
    }

    /// Compares the second copy with the store, byte by byte; a sentence for each month that differs. Nothing
    /// where there is no copy.
    ///
    /// # Errors
    /// Same as [`Store::scan`], `Io` if a file cannot be read.
    pub fn compare(&self) -> Result<Vec<String>, StoreError> {
        self.folder.as_ref().map_or_else(|| Ok(Vec::new()), |folder| copy::compare(folder, self))
    }

    /// Removes the ledger from the store, so that it can be written again from its second copy, which is not
    /// touched. A crash on the way leaves a ledger that is not opened; then this has to be done again.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn clear(store: &dyn Store) -> Result<(), StoreError> {
        let mut batch = Batch::new().delete(Space::Meta, TIP);
        for (space, prefix) in [
            (Space::Ledger, &b""[..]),
            (Space::Balances, b""),
            (Space::Meta, b"ledger/"),
            (Space::Idempotency, NAMES),
        ] {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = store.scan(space, prefix, after.as_deref(), MAX_STEPS / 2)?;
                for row in &page.rows {
                    batch = batch.delete(space, row.key.as_slice());
                }
                store.apply(std::mem::take(&mut batch))?;
                match page.rows.into_iter().next_back() {
                    Some(row) if page.more => after = Some(row.key),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

fn number(row: &[u8]) -> Result<u64, StoreError> {
    let bytes = row.try_into().map_err(|_| StoreError::corrupt("a number has a wrong length"))?;
    Ok(u64::from_le_bytes(bytes))
}
