//! Numbers of invoices and credit notes: a prefix, a year, and a sequence number that no other document with this
//! prefix and year has.

use super::{InvoiceStore, TABLE, key};
use crate::{Store, StoreError, Transaction};

/// Formats the number of a document.
fn format_number(prefix: &str, year: u16, sequence: u64) -> String {
    format!("{prefix}{year}-{sequence:06}")
}

/// Returns the prefix of a document's number; `None` if the number does not have the form of this module.
pub(super) fn prefix_of(number: &str, year: u16, sequence: u64) -> Option<&str> {
    number.strip_suffix(&format_number("", year, sequence))
}

/// Returns the key of the row of a number.
pub(super) fn number_key(series: &str, year: u16, sequence: u64) -> Vec<u8> {
    let mut key = key(b'n', &[series, &year.to_string()]);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

/// Account and numbers of a document that is about to be issued.
pub(super) struct NumberedDraft<'d> {
    pub account: &'d str,
    pub series: &'d str,
    pub prefix: &'d str,
    pub year: u16,
}

/// Counters that the issue of a document changes: the last number of its series, the last number with its prefix, and
/// the number of documents of its account. Each is the key of the row and its value as read.
pub(super) struct Counters<'d> {
    draft: NumberedDraft<'d>,
    series: (Vec<u8>, Option<Vec<u8>>),
    prefix: (Vec<u8>, Option<Vec<u8>>),
    account: (Vec<u8>, Option<Vec<u8>>),
    sequence: u64,
}

impl<'d> Counters<'d> {
    /// Reads the counters. If no number with the prefix was counted yet, reads the numbers of all documents: an earlier
    /// version of the gateway counted by series only.
    pub(super) fn read(store: &InvoiceStore, draft: NumberedDraft<'d>) -> Result<Self, StoreError> {
        let row = |key: Vec<u8>| store.store.get(TABLE, &key).map(|row| (key, row));
        let year = draft.year.to_string();
        let series = row(key(b'c', &[draft.series, &year]))?;
        let prefix = row(key(b'p', &[draft.prefix, &year]))?;
        let account = row(account_key(draft.account))?;
        let of_prefix = match &prefix.1 {
            Some(count) => parse_count(Some(count))?,
            None => store.last_number_with_prefix(draft.prefix, draft.year)?,
        };
        let last = parse_count(series.1.as_deref())?.max(of_prefix);
        Ok(Self { draft, series, prefix, account, sequence: last.saturating_add(1) })
    }

    /// Returns the number of documents of the account.
    pub(super) fn documents(&self) -> Result<u64, StoreError> {
        parse_count(self.account.1.as_deref())
    }

    /// Returns the next number of the series: one more than the last number of the series or with the prefix.
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the next number as it is printed on the document.
    pub(super) fn next_number(&self) -> String {
        format_number(self.draft.prefix, self.draft.year, self.sequence)
    }

    /// Returns the operations that count the document. Their guards fail if a counter has changed since it was read.
    pub(super) fn advance(self) -> Result<Transaction, StoreError> {
        let documents = self.documents()?.saturating_add(1);
        let rows = [(self.series, self.sequence), (self.prefix, self.sequence), (self.account, documents)];
        Ok(rows.into_iter().fold(Transaction::new(), |batch, ((key, row), count)| {
            let batch = match row {
                None => batch.require_absent(TABLE, key.as_slice()),
                Some(row) => batch.require_value(TABLE, key.as_slice(), row),
            };
            batch.put(TABLE, key.as_slice(), count.to_be_bytes())
        }))
    }
}

/// Returns the number of documents of an account.
pub(super) fn read_document_count(store: &dyn Store, account: &str) -> Result<u64, StoreError> {
    parse_count(store.get(TABLE, &account_key(account))?.as_deref())
}

fn account_key(account: &str) -> Vec<u8> {
    key(b'v', &[account])
}

impl InvoiceStore {
    /// Returns the last sequence number of all documents with a prefix and a year; 0 if there is none.
    fn last_number_with_prefix(&self, prefix: &str, year: u16) -> Result<u64, StoreError> {
        let invoices = self.list(None)?.into_iter().map(|one| (one.number, one.year, one.sequence));
        let notes = self.all_credit_notes()?.into_iter().map(|one| (one.number, one.year, one.sequence));
        let with_prefix = invoices.chain(notes).filter(|(number, of_year, sequence)| {
            *of_year == year && prefix_of(number, year, *sequence) == Some(prefix)
        });
        Ok(with_prefix.map(|(_, _, sequence)| sequence).max().unwrap_or_default())
    }
}

/// Parses a counter row; 0 if there is none.
fn parse_count(row: Option<&[u8]>) -> Result<u64, StoreError> {
    let Some(row) = row else { return Ok(0) };
    let bytes: [u8; 8] =
        row.try_into().map_err(|_| StoreError::corrupt("a counter of invoices is damaged".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}
