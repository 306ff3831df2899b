//! Issued invoices: consecutive numbers per series and year, and the documents as they were issued.
//!
//! A number and its document are written in one transaction, which replaces the counter of the series only if the
//! counter has not changed since it was read. So no number is skipped or used twice, whatever fails. Documents never
//! change.
//!
//! | row | key | value |
//! |---|---|---|
//! | counter | `c` series, year | last number |
//! | invoice | `a` account, first day | [`InvoiceRecord`] |
//! | document | `d` account, first day, part | compressed bytes |
//! | number | `n` series, year, number | key of the invoice |
//! | account | `v` account | number of its documents; serializes the checks of its periods and corrections |
//!
//! Credit notes are rows of their own, see [`credit_notes`].

pub mod credit_notes;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, ChangeDescription};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{MAX_VALUE_BYTES, Store, StoreError, StoreTable, StoredRow, Transaction};

const WHAT: &str = "an invoice";
const TABLE: StoreTable = StoreTable::Invoices;
/// Maximum bytes of one stored part of an invoice document.
const PART_BYTES: usize = MAX_VALUE_BYTES - 1_024;
/// Maximum number of parts of a document, so that a transaction holds them.
const MAX_PARTS: usize = 64;
/// Maximum size of a document before its compression, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Issued invoice. Days are in ISO 8601; amounts are exact decimal numbers as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceRecord {
    /// Invoice number as printed on the document.
    pub number: String,
    /// Name of the series of invoice numbers, which the seller chose.
    pub series: String,
    /// Year of the invoice number; each series counts from 1 again in every year.
    pub year: u16,
    /// Number of the invoice in its series and year, from 1.
    pub sequence: u64,
    /// Id of the account.
    pub account: String,
    /// First day of the period.
    pub from: String,
    /// Last day of the period.
    pub to: String,
    /// Time of issue, Unix seconds.
    pub issued: u64,
    /// Net amount, EUR.
    pub net_eur: String,
    /// VAT, EUR.
    pub vat_eur: String,
    /// Amount to pay, EUR.
    pub total_eur: String,
    /// Number of rows into which the stored document is split.
    pub parts: usize,
}

impl InvoiceRecord {
    /// Returns true if the period of the invoice overlaps the given period.
    fn overlaps_period(&self, from: &str, to: &str) -> bool {
        &*self.from <= to && from <= &*self.to
    }
}

/// Result of [`InvoiceStore::issue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssueOutcome {
    /// New invoice.
    Issued(InvoiceRecord),
    /// No new invoice was issued: this earlier invoice is for the same account and period.
    Existing(InvoiceRecord),
    /// No new invoice was issued: this earlier invoice is for another period, which overlaps the requested one.
    Overlapping(InvoiceRecord),
    /// No invoice was issued, because another document of the account was issued meanwhile. The caller must read the
    /// figures again.
    Changed,
    /// No invoice was issued, because the document is too large to be stored.
    TooLarge,
}

/// Issued invoices of a store.
#[derive(Clone, Debug)]
pub struct InvoiceStore {
    store: Arc<dyn Store>,
}

fn key(kind: u8, parts: &[&str]) -> Vec<u8> {
    let mut key = vec![kind];
    for part in parts {
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    key
}

/// Returns the key of the row of an invoice number.
fn number_key(series: &str, year: u16, sequence: u64) -> Vec<u8> {
    let mut key = key(b'n', &[series, &year.to_string()]);
    key.extend_from_slice(&sequence.to_be_bytes());
    key
}

fn document_key(record: &InvoiceRecord, part: usize) -> Vec<u8> {
    let mut key = key(b'd', &[&record.account, &record.from]);
    key.extend_from_slice(&u16::try_from(part).unwrap_or(u16::MAX).to_be_bytes());
    key
}

impl InvoiceStore {
    /// Creates a view of the invoices in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> InvoiceStore {
        InvoiceStore { store }
    }

    /// Returns the invoices of an account by their first days, or those of all accounts.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list(&self, account: Option<&str>) -> Result<Vec<InvoiceRecord>, StoreError> {
        let prefix = account.map_or_else(|| vec![b'a'], |account| key(b'a', &[account]));
        self.rows(&prefix)?.iter().map(|row| versioned_json::decode(WHAT, &row.value)).collect()
    }

    /// Returns all rows whose keys start with `prefix`.
    fn rows(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StoreError> {
        let mut rows: Vec<StoredRow> = Vec::new();
        loop {
            let after = rows.last().map(|row| row.key.as_slice());
            let page = self.store.scan(TABLE, prefix, after, crate::MAX_PAGE_ROWS)?;
            let is_last = !page.more || page.rows.is_empty();
            rows.extend(page.rows);
            if is_last {
                return Ok(rows);
            }
        }
    }

    /// Returns the number of documents that were issued for an account. A document is issued only if this number has
    /// not changed since the figures of the document were read. So no correction appears on two documents.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn document_count(&self, account: &str) -> Result<u64, StoreError> {
        parse_count(self.store.get(TABLE, &key(b'v', &[account]))?.as_deref())
    }

    /// Returns the invoice of an account for exactly this period.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn find_by_period(
        &self,
        account: &str,
        from: &str,
        to: &str,
    ) -> Result<Option<InvoiceRecord>, StoreError> {
        let row = self.store.get(TABLE, &key(b'a', &[account, from]))?;
        let found = row.map(|row| versioned_json::decode::<InvoiceRecord>(WHAT, &row)).transpose()?;
        Ok(found.filter(|record| record.to == to))
    }

    /// Returns an invoice of an account whose period overlaps the given period.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn find_overlapping(
        &self,
        account: &str,
        from: &str,
        to: &str,
    ) -> Result<Option<InvoiceRecord>, StoreError> {
        let issued = self.list(Some(account))?;
        Ok(issued.into_iter().find(|one| one.overlaps_period(from, to)))
    }

    /// Returns the document of an invoice, as it was issued.
    ///
    /// # Errors
    /// Returns `Corrupt` if a part is missing or damaged, and the errors of [`Store::get_many`].
    pub fn document(&self, record: &InvoiceRecord) -> Result<Vec<u8>, StoreError> {
        self.read_document(record.parts, |part| document_key(record, part))
    }

    /// Reads a document from its parts, whose keys `part_key` returns.
    fn read_document(
        &self,
        parts: usize,
        part_key: impl Fn(usize) -> Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let corrupt = || StoreError::corrupt("the document of an invoice is incomplete".to_owned());
        let keys: Vec<Vec<u8>> = (0..parts.min(MAX_PARTS)).map(part_key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut compressed = Vec::new();
        for part in self.store.get_many(TABLE, &keys)? {
            compressed.extend_from_slice(&part.ok_or_else(corrupt)?);
        }
        let (size, block) = compressed.split_first_chunk::<4>().ok_or_else(corrupt)?;
        let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        if size > MAX_DOCUMENT_BYTES {
            return Err(corrupt());
        }
        lz4_flex::block::decompress(block, size).map_err(|_| corrupt())
    }

    /// Issues an invoice with the next number of its series. `draft` has every field except the number; `documents` is
    /// the number of documents of the account before the figures were read, see [`InvoiceStore::document_count`];
    /// `complete` formats a number of the series as it is printed; `document` renders the document of the invoice with
    /// its number; `change` describes the issued invoice for the audit log.
    ///
    /// # Errors
    /// Same as [`Store::apply`]. After an error of the disk or the database, a further call returns the invoice if it
    /// was written.
    pub fn issue(
        &self,
        (draft, documents): (&InvoiceRecord, u64),
        complete: impl Fn(u64) -> String,
        document: impl Fn(&InvoiceRecord) -> Vec<u8>,
        change: impl Fn(&InvoiceRecord) -> ChangeDescription,
    ) -> Result<IssueOutcome, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let mut left = MAX_ATTEMPTS;
        loop {
            // The counters are read before the issued invoices. If another invoice is written between the two reads,
            // the guards on the counters fail.
            let counters = Counters::read(&*self.store, (&draft.series, draft.year), &draft.account)?;
            let issued = self.list(Some(&draft.account))?;
            if let Some(same) = issued.iter().find(|one| one.from == draft.from && one.to == draft.to) {
                return Ok(IssueOutcome::Existing(same.clone()));
            }
            if let Some(other) = issued.iter().find(|one| one.overlaps_period(&draft.from, &draft.to)) {
                return Ok(IssueOutcome::Overlapping(other.clone()));
            }
            if counters.documents()? != documents {
                return Ok(IssueOutcome::Changed);
            }
            let sequence = counters.next_number()?;
            let mut record = InvoiceRecord { sequence, number: complete(sequence), ..draft.clone() };
            let Some(parts) = compress(&document(&record)) else { return Ok(IssueOutcome::TooLarge) };
            record.parts = parts.len();
            let batch = put_invoice(counters.advance()?, &record, parts)?;
            left -= 1;
            match self.store.apply(batch.append_operations(log.entry_operations(&change(&record))?)) {
                Err(StoreError::Guard { .. }) if left > 0 => {}
                applied => return applied.map(|()| IssueOutcome::Issued(record)),
            }
        }
    }
}

/// Counters that the issue of a document increments: the counter of its series and the counter of its account. Each
/// is the key of the row and its value as read.
struct Counters([(Vec<u8>, Option<Vec<u8>>); 2]);

impl Counters {
    fn read(store: &dyn Store, (series, year): (&str, u16), account: &str) -> Result<Self, StoreError> {
        let row = |key: Vec<u8>| store.get(TABLE, &key).map(|row| (key, row));
        let series = row(key(b'c', &[series, &year.to_string()]))?;
        Ok(Self([series, row(key(b'v', &[account]))?]))
    }

    /// Returns the number of documents of the account.
    fn documents(&self) -> Result<u64, StoreError> {
        let [_, (_, account)] = &self.0;
        parse_count(account.as_deref())
    }

    /// Returns the next invoice number of the series.
    fn next_number(&self) -> Result<u64, StoreError> {
        let [(_, series), _] = &self.0;
        Ok(parse_count(series.as_deref())?.saturating_add(1))
    }

    /// Returns the operations that add one to each counter. Their guards fail if a counter has changed since it was
    /// read.
    fn advance(self) -> Result<Transaction, StoreError> {
        let mut batch = Transaction::new();
        for (key, row) in self.0 {
            let next = parse_count(row.as_deref())?.saturating_add(1);
            batch = match row {
                None => batch.require_absent(TABLE, key.as_slice()),
                Some(row) => batch.require_value(TABLE, key.as_slice(), row),
            };
            batch = batch.put(TABLE, key.as_slice(), next.to_be_bytes());
        }
        Ok(batch)
    }
}

/// Adds the operations that write an invoice, its number and its document.
fn put_invoice(
    batch: Transaction,
    record: &InvoiceRecord,
    parts: Vec<Vec<u8>>,
) -> Result<Transaction, StoreError> {
    let invoice_key = key(b'a', &[&record.account, &record.from]);
    let number_key = number_key(&record.series, record.year, record.sequence);
    let mut batch = batch
        .require_absent(TABLE, invoice_key.as_slice())
        .require_absent(TABLE, number_key.as_slice())
        .put(TABLE, number_key.as_slice(), invoice_key.as_slice())
        .put(TABLE, invoice_key.as_slice(), versioned_json::encode(WHAT, record)?);
    for (index, part) in parts.into_iter().enumerate() {
        batch = batch.put(TABLE, document_key(record, index), part);
    }
    Ok(batch)
}

/// Parses a counter row; 0 if there is none.
fn parse_count(row: Option<&[u8]>) -> Result<u64, StoreError> {
    let Some(row) = row else { return Ok(0) };
    let bytes: [u8; 8] =
        row.try_into().map_err(|_| StoreError::corrupt("a counter of invoices is damaged".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Compresses an invoice document into parts; `None` if it is too large.
fn compress(document: &[u8]) -> Option<Vec<Vec<u8>>> {
    let size = u32::try_from(document.len()).ok().filter(|_| document.len() <= MAX_DOCUMENT_BYTES)?;
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend_from_slice(&lz4_flex::block::compress(document));
    let parts: Vec<Vec<u8>> = bytes.chunks(PART_BYTES).map(<[u8]>::to_vec).collect();
    (parts.len() <= MAX_PARTS).then_some(parts)
}
