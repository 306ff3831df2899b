//! Issued invoices: consecutive numbers per series and year, and the documents as they were issued.
//!
//! A number and its document are written in one transaction, so that no number is lost or given twice, whatever fails:
//! the counter of the series is replaced only if it has not changed since it was read. Documents never change.
//!
//! | row | key | value |
//! |---|---|---|
//! | counter | `c` series, year | last number |
//! | invoice | `a` account, first day | [`InvoiceRecord`] |
//! | document | `d` account, first day, part | compressed bytes |
//! | number | `n` series, year, number | key of the invoice |
//! | account | `v` account | number of its invoices; serializes the check of its periods |

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::audit::{AuditLog, AuditedChange};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{MAX_VALUE_BYTES, Store, StoreError, StoreTable, Transaction};

const WHAT: &str = "an invoice";
const TABLE: StoreTable = StoreTable::Invoices;
/// Maximum bytes of one part of a document.
const PART_BYTES: usize = MAX_VALUE_BYTES - 1_024;
/// Maximum number of parts of a document, so that a transaction holds them.
const MAX_PARTS: usize = 64;
/// Maximum size of a document before its compression, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Issued invoice. Days are ISO 8601, amounts exact text.
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
    /// Returns true if the invoice has days in common with a period.
    fn has_days_of(&self, from: &str, to: &str) -> bool {
        &*self.from <= to && from <= &*self.to
    }
}

/// Result of [`InvoiceStore::issue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssueOutcome {
    /// New invoice.
    Issued(InvoiceRecord),
    /// Invoice that was issued for the same period before.
    Existing(InvoiceRecord),
    /// Invoice of another period that has days in common.
    Overlapping(InvoiceRecord),
    /// Document that is too large to be stored.
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
        let (mut found, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let page = self.store.scan(TABLE, &prefix, after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                found.push(versioned_json::decode(WHAT, &row.value)?);
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(found),
            }
        }
    }

    /// Returns the invoice of an account for exactly this period.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn find(&self, account: &str, from: &str, to: &str) -> Result<Option<InvoiceRecord>, StoreError> {
        let row = self.store.get(TABLE, &key(b'a', &[account, from]))?;
        let found = row.map(|row| versioned_json::decode::<InvoiceRecord>(WHAT, &row)).transpose()?;
        Ok(found.filter(|record| record.to == to))
    }

    /// Returns an invoice of an account that has days in common with a period.
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
        Ok(issued.into_iter().find(|one| one.has_days_of(from, to)))
    }

    /// Returns the document of an invoice, as it was issued.
    ///
    /// # Errors
    /// Returns `Corrupt` if a part is missing or damaged, and the errors of [`Store::get_many`].
    pub fn document(&self, record: &InvoiceRecord) -> Result<Vec<u8>, StoreError> {
        let corrupt = || StoreError::corrupt("the document of an invoice is incomplete".to_owned());
        let keys: Vec<Vec<u8>> =
            (0..record.parts.min(MAX_PARTS)).map(|part| document_key(record, part)).collect();
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

    /// Issues an invoice with the next number of its series. `draft` has every field except the number; `complete`
    /// formats a number of the series as it is printed; `document` renders the document of the invoice with its number.
    ///
    /// # Errors
    /// Same as [`Store::apply`]. After an error of the disk or the database, a further call returns the invoice if it
    /// was written.
    pub fn issue(
        &self,
        draft: &InvoiceRecord,
        complete: impl Fn(u64) -> String,
        document: impl Fn(&InvoiceRecord) -> Vec<u8>,
        change: impl Fn(&InvoiceRecord) -> AuditedChange,
    ) -> Result<IssueOutcome, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let mut left = MAX_ATTEMPTS;
        loop {
            // Counters are read before the issued invoices: if another invoice is written in between, the guards on the
            // counters fail.
            let counters = Counters::read(&*self.store, draft)?;
            let issued = self.list(Some(&draft.account))?;
            if let Some(same) = issued.iter().find(|one| one.from == draft.from && one.to == draft.to) {
                return Ok(IssueOutcome::Existing(same.clone()));
            }
            if let Some(other) = issued.iter().find(|one| one.has_days_of(&draft.from, &draft.to)) {
                return Ok(IssueOutcome::Overlapping(other.clone()));
            }
            let sequence = counters.next_number()?;
            let mut record = InvoiceRecord { sequence, number: complete(sequence), ..draft.clone() };
            let Some(parts) = compress(&document(&record)) else { return Ok(IssueOutcome::TooLarge) };
            record.parts = parts.len();
            let batch = put_invoice(counters.advance()?, &record, parts)?;
            left -= 1;
            match self.store.apply(batch.append(log.entry_operations(&change(&record))?)) {
                Err(StoreError::Guard { .. }) if left > 0 => {}
                applied => return applied.map(|()| IssueOutcome::Issued(record)),
            }
        }
    }
}

/// Counters that an invoice advances: the counter of its series, and the counter of its account. Each is a key and the
/// row as read.
struct Counters([(Vec<u8>, Option<Vec<u8>>); 2]);

impl Counters {
    fn read(store: &dyn Store, draft: &InvoiceRecord) -> Result<Self, StoreError> {
        let row = |key: Vec<u8>| store.get(TABLE, &key).map(|row| (key, row));
        let series = row(key(b'c', &[&draft.series, &draft.year.to_string()]))?;
        Ok(Self([series, row(key(b'v', &[&draft.account]))?]))
    }

    /// Next number of the series.
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
    let mut number_key = key(b'n', &[&record.series, &record.year.to_string()]);
    number_key.extend_from_slice(&record.sequence.to_be_bytes());
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

/// Parses a counter; 0 if there is none.
fn parse_count(row: Option<&[u8]>) -> Result<u64, StoreError> {
    let Some(row) = row else { return Ok(0) };
    let bytes: [u8; 8] =
        row.try_into().map_err(|_| StoreError::corrupt("a counter of invoices is damaged".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Compresses a document into parts; `None` if it is too large.
fn compress(document: &[u8]) -> Option<Vec<Vec<u8>>> {
    let size = u32::try_from(document.len()).ok().filter(|_| document.len() <= MAX_DOCUMENT_BYTES)?;
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend_from_slice(&lz4_flex::block::compress(document));
    let parts: Vec<Vec<u8>> = bytes.chunks(PART_BYTES).map(<[u8]>::to_vec).collect();
    (parts.len() <= MAX_PARTS).then_some(parts)
}
