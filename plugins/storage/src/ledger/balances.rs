//! Reading of balances, and lookup of entries by name.

use super::key::entry_name_key;
use super::{BalanceRecord, LedgerStore, parse_number};
use crate::{StoreError, StoreTable};

impl LedgerStore {
    /// Returns the balance of an account; `None` if no entry has changed it.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn balance(&self, account: &str) -> Result<Option<BalanceRecord>, StoreError> {
        let row = self.store.get(StoreTable::Balances, account.as_bytes())?;
        row.map(|row| BalanceRecord::from_row(&row)).transpose()
    }

    /// Returns all balances, by account.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn balances(&self) -> Result<Vec<(String, BalanceRecord)>, StoreError> {
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Balances, b"", after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let account = String::from_utf8(row.key.clone())
                    .map_err(|_| StoreError::corrupt("the name of an account is not UTF-8"))?;
                all.push((account, BalanceRecord::from_row(&row.value)?));
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(all),
            }
        }
    }

    /// Returns the number of the entry that used a name; `None` if no entry has used the name.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn entry_number_by_name(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.store
            .get(StoreTable::Idempotency, &entry_name_key(name))?
            .map(|row| parse_number(&row))
            .transpose()
    }
}
