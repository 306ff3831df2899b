//! Draft of a credit note: the corrections of an issued invoice that no document has, and their amounts. The credit
//! notes of an invoice are rounded together, so that they never credit more than the charges of the invoice.

use super::invoice::{InvoiceIssueState, correction_json, invoice_of_day};
use super::issued_invoices::{read_document, year_of};
use super::request::{report_error_response, store_error_response};
use crate::billing::invoice_corrections::{CorrectionLine, read_corrections};
use crate::billing::invoice_totals::InvoiceTotals;
use crate::state::AppState;
use penstock_core::calendar::{UtcDay, format_rfc3339};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::invoices::InvoiceRecord;
use penstock_storage::invoices::credit_notes::{CreditNoteRecord, MAX_CORRECTIONS_PER_NOTE};
use penstock_usage::DayNumber;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const INVOICE_EXPECTED: &str = "invoice: expected the number of an issued invoice";
const FROM_EXPECTED: &str =
    "invoice_from: several invoices of this account have this number; expected the first day of one of them";
const SUM_NOTE: &str = "The amounts of all credit notes of this invoice are rounded together.";

/// Invoice that a request wants to correct.
pub(super) struct CorrectedInvoice {
    /// Id of the account.
    pub account: String,
    /// Number of the invoice.
    pub number: String,
    /// First day of the invoice. Necessary if an earlier version of the gateway gave one number to several invoices.
    pub from: Option<String>,
}

impl CorrectedInvoice {
    /// Returns the invoice among the issued ones of its account.
    ///
    /// # Errors
    /// Returns 400 if there is none, or if there are several.
    fn find<'i>(&self, issued: &'i [InvoiceRecord]) -> Result<&'i InvoiceRecord, ApiError> {
        let is_named = |one: &&InvoiceRecord| {
            one.number == self.number && self.from.as_ref().is_none_or(|from| one.from == *from)
        };
        let mut found = issued.iter().filter(is_named);
        match (found.next(), found.next()) {
            (Some(invoice), None) => Ok(invoice),
            (None, _) => Err(ApiError::invalid("invoice", INVOICE_EXPECTED)),
            (Some(_), Some(_)) => Err(ApiError::invalid("invoice_from", FROM_EXPECTED)),
        }
    }
}

/// Credit note before it has a number.
pub(super) struct Draft {
    /// Record without a number.
    pub record: CreditNoteRecord,
    /// Text before the year in its number, which is that of the invoice.
    pub prefix: String,
    /// State of the draft: ready, or empty.
    pub state: InvoiceIssueState,
    /// Document without a number.
    pub document: Value,
}

impl Draft {
    /// Builds the credit note of an invoice. Seller, customer and VAT are those of the invoice as it was issued. Blocks
    /// the thread.
    ///
    /// # Errors
    /// Returns 400 if the invoice is unknown, or the error of the store.
    pub(super) fn build(app: &AppState, corrected: &CorrectedInvoice, now: u64) -> Result<Self, ApiError> {
        let issued = app.stores.invoices.list(Some(&corrected.account)).map_err(store_error_response)?;
        let invoice = corrected.find(&issued)?;
        let original = read_document(app, invoice)?;
        let corrections = InvoiceCorrections::read(app, invoice, &issued, now)?;
        let vat_percent = original.get("vat_percent").and_then(Value::as_str).unwrap_or_default();
        let vat_percent = Decimal::from_str_exact(vat_percent).unwrap_or_default();
        let totals = corrections.totals(vat_percent);
        let record = CreditNoteRecord {
            number: String::new(),
            series: invoice.series.clone(),
            year: year_of(now)?,
            sequence: 0,
            account: invoice.account.clone(),
            invoice: invoice.number.clone(),
            issued: now,
            net_eur: totals.net.to_string(),
            vat_eur: totals.vat.to_string(),
            total_eur: totals.gross.to_string(),
            entries: corrections.open.iter().map(|line| line.entry).collect(),
            parts: 0,
        };
        let state = if totals.is_credit() { InvoiceIssueState::Ready } else { InvoiceIssueState::Empty };
        let prefix = invoice.number_prefix().ok_or_else(|| ApiError::new(ErrorCode::Internal))?.to_owned();
        let document = draft_json(&record, (invoice, &original), (&corrections, vat_percent), state);
        Ok(Self { record, prefix, state, document })
    }
}

/// Returns the document of a credit note without a number.
fn draft_json(
    record: &CreditNoteRecord,
    (invoice, original): (&InvoiceRecord, &Value),
    (corrections, vat_percent): (&InvoiceCorrections, Decimal),
    state: InvoiceIssueState,
) -> Value {
    let number = &invoice.number;
    let lines = corrections.open.iter().map(|line| correction_json(line, Some(number)));
    let mut notes = vec![format!(
        "This document corrects the invoice {number} of {}. A negative amount is credited to the customer.",
        format_rfc3339(invoice.issued).get(..10).unwrap_or_default()
    )];
    notes.extend(corrections.has_earlier_notes().then(|| SUM_NOTE.to_owned()));
    json!({
        "number": null,
        "is_draft": true,
        "account": record.account,
        "invoice": number,
        "from": invoice.from,
        "to": invoice.to,
        "created": format_rfc3339(record.issued),
        "issued": null,
        "can_issue": state == InvoiceIssueState::Ready,
        "issue_state": state.name(),
        "seller": original.get("seller"),
        "customer": original.get("customer"),
        "lines": lines.collect::<Vec<_>>(),
        "total": { "eur": sum_eur(&corrections.open).normalize().to_string() },
        "net_eur": record.net_eur,
        "vat_percent": vat_percent.normalize().to_string(),
        "vat_eur": record.vat_eur,
        "total_eur": record.total_eur,
        "notes": notes,
    })
}

/// Corrections that lower the charges of an invoice.
struct InvoiceCorrections {
    /// Corrections that are on no document yet, at most as many as fit on one credit note.
    open: Vec<CorrectionLine>,
    /// Corrections on earlier credit notes of the invoice.
    credited: Vec<CorrectionLine>,
    /// Sum of the earlier credit notes.
    stated: InvoiceTotals,
}

impl InvoiceCorrections {
    /// Reads the corrections of an invoice's charges. A correction that was made on a day of an issued invoice is
    /// already on that invoice, and one that raises a charge belongs on the next invoice.
    fn read(
        app: &AppState,
        invoice: &InvoiceRecord,
        issued: &[InvoiceRecord],
        now: u64,
    ) -> Result<Self, ApiError> {
        let mut notes = app.stores.invoices.credit_notes(&invoice.account).map_err(store_error_response)?;
        let noted: BTreeSet<u64> = notes.iter().flat_map(|note| note.entries.iter().copied()).collect();
        notes.retain(|note| note.invoice == invoice.number && note.series == invoice.series);
        let totals = |note: &CreditNoteRecord| {
            let totals = InvoiceTotals::parse(&note.net_eur, &note.vat_eur, &note.total_eur);
            totals.ok_or_else(|| ApiError::new(ErrorCode::Internal))
        };
        let stated = notes.iter().map(totals).sum::<Result<_, _>>()?;
        let first = UtcDay::parse(&invoice.from).ok_or_else(|| ApiError::new(ErrorCode::Internal))?;
        // The range includes the next day, because the clock of another gateway may be fast.
        let end = DayNumber::from_unix(now).next().next();
        let lines = read_corrections(&app.ledger.store, &invoice.account, (first.into(), end));
        let mut lines = lines.map_err(report_error_response)?;
        lines.retain(|line| {
            let charged = line.corrects_day.as_deref();
            let is_of_invoice =
                charged.is_some_and(|day| (invoice.from.as_str()..=invoice.to.as_str()).contains(&day));
            is_of_invoice && line.sums.usage.billed.eur < Decimal::ZERO
        });
        let (credited, mut open): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| noted.contains(&line.entry));
        open.retain(|line| invoice_of_day(issued, &line.day).is_none());
        Ok(Self { open: keep_largest(open, MAX_CORRECTIONS_PER_NOTE), credited, stated })
    }

    /// Returns the totals of the next credit note: the rounded sum of all corrections, less the earlier credit notes.
    fn totals(&self, vat_percent: Decimal) -> InvoiceTotals {
        let exact = sum_eur(&self.credited).saturating_add(sum_eur(&self.open));
        match self.open.is_empty() {
            true => InvoiceTotals::from_net_amount(Decimal::ZERO, vat_percent),
            false => InvoiceTotals::from_net_amount(exact, vat_percent).less(&self.stated),
        }
    }

    fn has_earlier_notes(&self) -> bool {
        !self.credited.is_empty()
    }
}

/// Returns the exact sum of the corrections in EUR.
fn sum_eur(lines: &[CorrectionLine]) -> Decimal {
    lines.iter().map(|line| line.sums.usage.billed.eur).sum()
}

/// Returns the `count` corrections with the largest credits, in their order. So many small ones, which may add up to
/// 0.00 EUR, do not block the larger ones.
fn keep_largest(mut lines: Vec<CorrectionLine>, count: usize) -> Vec<CorrectionLine> {
    let mut by_amount: Vec<_> = lines.iter().map(|line| (line.sums.usage.billed.eur, line.entry)).collect();
    by_amount.sort_unstable();
    let largest: BTreeSet<u64> = by_amount.iter().take(count).map(|(_, entry)| *entry).collect();
    lines.retain(|line| largest.contains(&line.entry));
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::billing::invoice::{InvoiceLineKey, InvoiceSums};

    fn invoice(from: &str) -> InvoiceRecord {
        InvoiceRecord {
            number: "PS-2026-000001".to_owned(),
            series: "s".to_owned(),
            year: 2026,
            sequence: 1,
            account: "acme".to_owned(),
            from: from.to_owned(),
            to: from.to_owned(),
            issued: 1,
            net_eur: "1.00".to_owned(),
            vat_eur: "0.19".to_owned(),
            total_eur: "1.19".to_owned(),
            parts: 1,
        }
    }

    #[test]
    fn the_first_day_selects_one_of_several_invoices_with_a_number() {
        let issued = [invoice("2026-01-01"), invoice("2026-02-01")];
        let found = |number: &str, from: Option<&str>, issued: &[InvoiceRecord]| {
            let corrected = CorrectedInvoice {
                account: "acme".to_owned(),
                number: number.to_owned(),
                from: from.map(str::to_owned),
            };
            corrected.find(issued).map(|invoice| invoice.from.clone()).map_err(|error| error.param)
        };
        let number = "PS-2026-000001";
        assert_eq!(found(number, None, &issued), Err(Some("invoice_from".into())));
        assert_eq!(found(number, None, &issued[1..]).unwrap(), "2026-02-01");
        for from in ["2026-01-01", "2026-02-01"] {
            assert_eq!(found(number, Some(from), &issued).unwrap(), from);
        }
        assert_eq!(found(number, Some("2026-03-01"), &issued), Err(Some("invoice".into())));
        assert_eq!(found("PS-2026-000002", None, &issued), Err(Some("invoice".into())));
    }

    #[test]
    fn a_full_credit_note_has_the_largest_corrections() {
        let line = |(entry, micro): (u64, i64)| {
            let mut sums = InvoiceSums::default();
            sums.usage.billed.eur = Decimal::new(micro, 6);
            CorrectionLine {
                entry,
                day: "2026-01-02".to_owned(),
                key: "".into(),
                corrects_entry: entry,
                corrects_day: None,
                line_key: InvoiceLineKey {
                    model: "".into(),
                    location: "".into(),
                    class: None,
                    prices: Default::default(),
                },
                sums,
            }
        };
        let lines: Vec<_> = [(1, -1), (2, -9_000), (3, -1), (4, -8_000)].into_iter().map(line).collect();
        let entries =
            |count| keep_largest(lines.clone(), count).iter().map(|one| one.entry).collect::<Vec<_>>();
        assert_eq!(entries(2), [2, 4]);
        assert_eq!(entries(3), [1, 2, 4]);
        assert_eq!(entries(9), [1, 2, 3, 4]);
    }
}
