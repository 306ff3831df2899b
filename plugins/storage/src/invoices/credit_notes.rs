//! Issued credit notes: corrections of charges on an issued invoice. They are numbered in the same series as invoices.
//!
//! | row | key | value |
//! |---|---|---|
//! | credit note | `k` account, year and number, series | [`CreditNoteRecord`] |
//! | document | `e` account, year and number, series, part | compressed bytes |
//!
//! Keys of earlier versions have no series. These rows stay as they are.

use serde::{Deserialize, Serialize};

use super::numbers::{Counters, NumberedDraft, number_key};
use super::{InvoiceStore, TABLE, compress, key};
use crate::audit::{AuditLog, ChangeDescription};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{StoreError, Transaction};

const WHAT: &str = "a credit note";
/// Maximum number of corrections of one credit note, so that its row stays within the size limits of the store.
pub const MAX_CORRECTIONS_PER_NOTE: usize = 2_000;

/// Issued credit note. Amounts are exact decimal numbers as text, negative if the customer gets money back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditNoteRecord {
    /// Number as printed on the document.
    pub number: String,
    /// Name of the series of numbers, the same as that of the corrected invoice.
    pub series: String,
    /// Year of the number.
    pub year: u16,
    /// Number in its series and year, from 1.
    pub sequence: u64,
    /// Id of the account.
    pub account: String,
    /// Number of the invoice that is corrected.
    pub invoice: String,
    /// Time of issue, Unix seconds.
    pub issued: u64,
    /// Net amount, EUR.
    pub net_eur: String,
    /// VAT, EUR.
    pub vat_eur: String,
    /// Sum of both, EUR.
    pub total_eur: String,
    /// Numbers of the ledger entries of the corrections.
    pub entries: Vec<u64>,
    /// Number of rows into which the stored document is split.
    pub parts: usize,
}

/// Result of [`InvoiceStore::issue_credit_note`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreditNoteOutcome {
    /// New credit note.
    Issued(Box<CreditNoteRecord>),
    /// No credit note was issued, because another document of the account was issued meanwhile. The caller must read
    /// the corrections again.
    Changed,
    /// No credit note was issued, because the document is too large to be stored.
    TooLarge,
}

/// Form of the keys of a credit note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyForm {
    /// With the series: series of an account may have the same numbers.
    WithSeries,
    /// Without the series, as earlier versions wrote it.
    WithoutSeries,
}

impl CreditNoteRecord {
    /// Returns the key of the row of the credit note (`kind` is `k`), or the key prefix of its document (`e`).
    fn row_key(&self, kind: u8, form: KeyForm) -> Vec<u8> {
        let number = format!("{:04}-{:012}", self.year, self.sequence);
        match form {
            KeyForm::WithSeries => key(kind, &[&self.account, &number, &self.series]),
            KeyForm::WithoutSeries => key(kind, &[&self.account, &number]),
        }
    }

    fn document_key(&self, part: usize, form: KeyForm) -> Vec<u8> {
        let mut key = self.row_key(b'e', form);
        key.extend_from_slice(&u16::try_from(part).unwrap_or(u16::MAX).to_be_bytes());
        key
    }
}

impl InvoiceStore {
    /// Returns the credit notes of all accounts.
    pub(super) fn all_credit_notes(&self) -> Result<Vec<CreditNoteRecord>, StoreError> {
        self.rows(b"k")?.iter().map(|row| versioned_json::decode(WHAT, &row.value)).collect()
    }

    /// Returns the credit notes of an account in the order of their numbers.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn credit_notes(&self, account: &str) -> Result<Vec<CreditNoteRecord>, StoreError> {
        let rows = self.rows(&key(b'k', &[account]))?;
        rows.iter().map(|row| versioned_json::decode(WHAT, &row.value)).collect()
    }

    /// Returns the document of a credit note, as it was issued.
    ///
    /// # Errors
    /// Same as [`InvoiceStore::document`].
    pub fn credit_note_document(&self, record: &CreditNoteRecord) -> Result<Vec<u8>, StoreError> {
        let row = self.store.get(TABLE, &record.row_key(b'k', KeyForm::WithSeries))?;
        let form = row.map_or(KeyForm::WithoutSeries, |_| KeyForm::WithSeries);
        self.read_document(record.parts, |part| record.document_key(part, form))
    }

    /// Issues a credit note with the next number of its series. `draft` has every field except the number; `documents`
    /// is the number of documents of the account before its corrections were read, see
    /// [`InvoiceStore::document_count`]. The other arguments are as in [`InvoiceStore::issue`].
    ///
    /// # Errors
    /// Same as [`Store::apply`](crate::Store::apply).
    pub fn issue_credit_note(
        &self,
        (draft, documents): (&CreditNoteRecord, u64),
        prefix: &str,
        document: impl Fn(&CreditNoteRecord) -> Vec<u8>,
        change: impl Fn(&CreditNoteRecord) -> ChangeDescription,
    ) -> Result<CreditNoteOutcome, StoreError> {
        let log = AuditLog::new(self.store.clone());
        let mut left = MAX_ATTEMPTS;
        loop {
            let numbered =
                NumberedDraft { account: &draft.account, series: &draft.series, prefix, year: draft.year };
            let counters = Counters::read(self, numbered)?;
            if counters.documents()? != documents {
                return Ok(CreditNoteOutcome::Changed);
            }
            let (sequence, number) = (counters.next_sequence(), counters.next_number());
            let mut record = CreditNoteRecord { sequence, number, ..draft.clone() };
            let Some(parts) = compress(&document(&record)) else { return Ok(CreditNoteOutcome::TooLarge) };
            record.parts = parts.len();
            let batch = put_credit_note(counters.advance()?, &record, parts)?;
            left -= 1;
            match self.store.apply(batch.append_operations(log.entry_operations(&change(&record))?)) {
                Err(StoreError::Guard { .. }) if left > 0 => {}
                applied => return applied.map(|()| CreditNoteOutcome::Issued(Box::new(record))),
            }
        }
    }
}

/// Adds the operations that write a credit note, its number and its document.
fn put_credit_note(
    batch: Transaction,
    record: &CreditNoteRecord,
    parts: Vec<Vec<u8>>,
) -> Result<Transaction, StoreError> {
    let own = record.row_key(b'k', KeyForm::WithSeries);
    let number = number_key(&record.series, record.year, record.sequence);
    let mut batch = batch
        .require_absent(TABLE, own.as_slice())
        .require_absent(TABLE, number.as_slice())
        .put(TABLE, number, own.as_slice())
        .put(TABLE, own, versioned_json::encode(WHAT, record)?);
    for (index, part) in parts.into_iter().enumerate() {
        batch = batch.put(TABLE, record.document_key(index, KeyForm::WithSeries), part);
    }
    Ok(batch)
}
