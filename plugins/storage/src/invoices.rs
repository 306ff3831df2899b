//! Issued invoices: consecutive numbers per series and year, and the documents as they were issued.
//!
//! A number and its document are written in one transaction, which replaces the counters of the series and of the
//! prefix only if they have not changed since they were read. So no number is skipped or used twice, whatever fails, and
//! series with the same prefix share their numbers. Documents never change.
//!
//! | row | key | value |
//! |---|---|---|
//! | counter of the series | `c` series, year | last number |
//! | counter of the prefix | `p` prefix, year | last number of all series with this prefix |
//! | invoice | `a` account, first day | [`InvoiceRecord`] |
//! | document | `d` account, first day, part | compressed bytes |
//! | number | `n` series, year, number | key of the document |
//! | account | `v` account | number of its documents; serializes the checks of its periods and corrections |
//!
//! Credit notes are rows of their own, see [`credit_notes`].

pub mod credit_notes;
mod numbers;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, ChangeDescription};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{MAX_VALUE_BYTES, Store, StoreError, StoreTable, StoredRow, Transaction};
use numbers::{Counters, NumberedDraft, number_key, prefix_of, read_document_count};

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
    /// Returns the text before the year in the number of the invoice.
    #[must_use]
    pub fn number_prefix(&self) -> Option<&str> {
        prefix_of(&self.number, self.year, self.sequence)
    }

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
        read_document_count(&*self.store, account)
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

    /// Issues an invoice with the next number of its series that no document with the same prefix and year has. `draft`
    /// has every field except the number; `documents` is the number of documents of the account before the figures were
    /// read, see [`InvoiceStore::document_count`]; `prefix` is the text before the year in the number; `document` renders
    /// the document of the invoice with its number; `change` describes the issued invoice for the audit log.
    ///
    /// # Errors
    /// Same as [`Store::apply`]. After an error of the disk or the database, a further call returns the invoice if it
    /// was written.
    pub fn issue(
        &self,
        (draft, documents): (&InvoiceRecord, u64),
        prefix: &str,
        document: impl Fn(&InvoiceRecord) -> Vec<u8>,
        change: impl Fn(&InvoiceRecord) -> ChangeDescription,
    ) -> Result<IssueOutcome, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let mut left = MAX_ATTEMPTS;
        loop {
            // The counters are read before the issued invoices. If another invoice is written between the two reads,
            // the guards on the counters fail.
            let numbered =
                NumberedDraft { account: &draft.account, series: &draft.series, prefix, year: draft.year };
            let counters = Counters::read(self, numbered)?;
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
            let (sequence, number) = (counters.next_sequence(), counters.next_number());
            let mut record = InvoiceRecord { sequence, number, ..draft.clone() };
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

/// Compresses an invoice document into parts; `None` if it is too large.
fn compress(document: &[u8]) -> Option<Vec<Vec<u8>>> {
    let size = u32::try_from(document.len()).ok().filter(|_| document.len() <= MAX_DOCUMENT_BYTES)?;
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend_from_slice(&lz4_flex::block::compress(document));
    let parts: Vec<Vec<u8>> = bytes.chunks(PART_BYTES).map(<[u8]>::to_vec).collect();
    (parts.len() <= MAX_PARTS).then_some(parts)
}
