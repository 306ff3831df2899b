//! Admin requests for credit notes. A credit note lists corrections of the charges on an issued invoice that were
//! made after the invoice was issued. Its number is the next one in the series of the seller and the year, and it
//! never changes. Each correction is either on one credit note, or on the invoice of the period in which the
//! correction was made.

use super::accounts;
use super::api::run_blocking;
use super::input::RequestFields;
use super::invoice::{correction_json, invoice_of_day};
use super::issued_invoices::{MAX_ISSUE_ATTEMPTS, issue_conflict_error, read_document, year_of};
use super::openapi::{list_schema, response_schema};
use super::request::{AdminRequest, report_error_response, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::invoice::InvoiceTotals;
use crate::billing::invoice_corrections::{CorrectionLine, read_corrections};
use crate::state::AppState;
use penstock_core::calendar::{UtcDay, format_rfc3339};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::invoices::InvoiceRecord;
use penstock_storage::invoices::credit_notes::{
    CreditNoteOutcome, CreditNoteRecord, MAX_CORRECTIONS_PER_NOTE,
};
use penstock_usage::DayNumber;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Query parameters of the list.
const LIST_QUERY_PARAMETERS: [&str; 1] = ["account"];
/// Query parameters of one credit note.
const QUERY: [&str; 3] = ["account", "invoice", "number"];
/// Request members that issue a credit note.
const ISSUE: [&str; 2] = ["account", "invoice"];
/// Response members of a row of the list.
const ROW: [&str; 7] = ["number", "account", "invoice", "issued", "net_eur", "vat_eur", "total_eur"];
/// Response members of a credit note.
const MEMBERS: [&str; 18] = [
    "number",
    "is_draft",
    "account",
    "invoice",
    "from",
    "to",
    "created",
    "issued",
    "can_issue",
    "seller",
    "customer",
    "lines",
    "total",
    "net_eur",
    "vat_percent",
    "vat_eur",
    "total_eur",
    "notes",
];

/// Routes of credit notes.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/credit-notes",
        "listCreditNotes",
        "Lists the issued credit notes of an account",
        RouteHandler::Runtime(|app, _, asked| Box::pin(list(app, asked))),
    )
    .with_query_parameters(&LIST_QUERY_PARAMETERS)
    .with_response(200, || list_schema(response_schema(&ROW))),
    AdminRoute::get(
        "/admin/credit-note",
        "creditNote",
        "Shows an issued credit note by its number, or the one that would be issued for an invoice",
        RouteHandler::Runtime(|app, _, asked| Box::pin(credit_note(app, asked))),
    )
    .with_query_parameters(&QUERY)
    .with_response(200, || response_schema(&MEMBERS)),
    AdminRoute::post(
        "/admin/credit-notes",
        "issueCreditNote",
        "Issues a credit note for the corrections of charges of an issued invoice that no document has",
        RouteHandler::Runtime(|app, _, asked| Box::pin(issue(app, asked))),
    )
    .with_body(&ISSUE, &ISSUE)
    .with_response(200, || response_schema(&MEMBERS)),
];

fn required(name: &'static str, value: Option<String>, expected: &'static str) -> Result<String, ApiError> {
    value.ok_or_else(|| ApiError::invalid(name, expected))
}

const ACCOUNT_EXPECTED: &str = "account: expected the id of an account";
const INVOICE_EXPECTED: &str = "invoice: expected the number of an issued invoice";

async fn list(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let account = asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?.map(str::to_owned);
    let account = required("account", account, ACCOUNT_EXPECTED)?;
    let stores = app.stores.clone();
    run_blocking(move || {
        accounts::check_account_exists(&stores, &account)?;
        let found = stores.invoices.credit_notes(&account).map_err(store_error_response)?;
        Ok(json!({ "data": found.iter().rev().map(row_json).collect::<Vec<_>>() }))
    })
    .await
}

fn row_json(record: &CreditNoteRecord) -> Value {
    json!({
        "number": record.number,
        "account": record.account,
        "invoice": record.invoice,
        "issued": format_rfc3339(record.issued),
        "net_eur": record.net_eur,
        "vat_eur": record.vat_eur,
        "total_eur": record.total_eur,
    })
}

async fn credit_note(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let value = |name: &str| asked.query_parameter(name, &QUERY).map(|value| value.map(str::to_owned));
    let account = required("account", value("account")?, ACCOUNT_EXPECTED)?;
    let (number, invoice) = (value("number")?, value("invoice")?);
    let (app, now) = (app.clone(), asked.now);
    run_blocking(move || {
        accounts::check_account_exists(&app.stores, &account)?;
        if let Some(number) = number {
            let notes = app.stores.invoices.credit_notes(&account).map_err(store_error_response)?;
            let found = notes.into_iter().find(|note| note.number == number);
            return stored_json(&app, &found.ok_or_else(unknown_number)?);
        }
        let invoice = required("invoice", invoice, INVOICE_EXPECTED)?;
        Ok(draft(&app, &account, &invoice, now)?.document)
    })
    .await
}

fn unknown_number() -> ApiError {
    ApiError::invalid("number", "number: expected the number of a credit note of this account")
}

fn stored_json(app: &AppState, record: &CreditNoteRecord) -> Result<Value, ApiError> {
    let document = app.stores.invoices.credit_note_document(record).map_err(store_error_response)?;
    serde_json::from_slice(&document).map_err(|_| ApiError::new(ErrorCode::Internal))
}

async fn issue(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let fields = RequestFields::parse(&asked.body, &ISSUE)?;
    let account = required("account", fields.text_value("account")?.into_option(), ACCOUNT_EXPECTED)?;
    let invoice = required("invoice", fields.text_value("invoice")?.into_option(), INVOICE_EXPECTED)?;
    let (app, asked) = (app.clone(), asked.clone());
    run_blocking(move || {
        accounts::check_account_exists(&app.stores, &account)?;
        for _ in 0..MAX_ISSUE_ATTEMPTS {
            if let Some(issued) = try_issue(&app, (&account, &invoice), &asked)? {
                return Ok(issued);
            }
        }
        Err(issue_conflict_error())
    })
    .await
}

/// Issues a credit note; `None` if another document of the account was issued meanwhile.
fn try_issue(
    app: &AppState,
    (account, invoice): (&str, &str),
    asked: &AdminRequest,
) -> Result<Option<Value>, ApiError> {
    let documents = app.stores.invoices.document_count(account).map_err(store_error_response)?;
    let Draft { record, prefix, document } = draft(app, account, invoice, asked.now)?;
    if record.entries.is_empty() {
        let message =
            "No charge of this invoice was corrected since, or other documents have all corrections.";
        return Err(ApiError::with_message(ErrorCode::Conflict, message).with_param("invoice"));
    }
    let outcome = app.stores.invoices.issue_credit_note(
        (&record, documents),
        &prefix,
        |record| issued_json(&document, record).to_string().into_bytes(),
        |record| {
            let change = json!({ "account": account, "invoice": invoice, "entries": record.entries });
            asked.audit_entry("credit_note.issue", &record.number, change)
        },
    );
    match outcome.map_err(store_error_response)? {
        CreditNoteOutcome::Issued(record) => stored_json(app, &record).map(Some),
        CreditNoteOutcome::Changed => Ok(None),
        CreditNoteOutcome::TooLarge => Err(ApiError::new(ErrorCode::Internal)),
    }
}

/// Credit note before it has a number: its record and its document.
struct Draft {
    record: CreditNoteRecord,
    /// Text before the year in its number, which is that of the invoice.
    prefix: String,
    document: Value,
}

/// Builds the credit note of an invoice. Seller, customer and VAT are those of the invoice as it was issued. Blocks
/// the thread.
fn draft(app: &AppState, account: &str, number: &str, now: u64) -> Result<Draft, ApiError> {
    let issued = app.stores.invoices.list(Some(account)).map_err(store_error_response)?;
    let unknown = || ApiError::invalid("invoice", INVOICE_EXPECTED);
    let invoice = issued.iter().find(|invoice| invoice.number == number).ok_or_else(unknown)?;
    let original = read_document(app, invoice)?;
    let lines = open_corrections(app, invoice, &issued, now)?;
    let exact: Decimal = lines.iter().map(|line| line.sums.usage.billed.eur).sum();
    let vat_percent = original.get("vat_percent").and_then(Value::as_str).unwrap_or_default();
    let vat_percent = Decimal::from_str_exact(vat_percent).unwrap_or_default();
    let totals = InvoiceTotals::from_net_amount(exact, vat_percent);
    let record = CreditNoteRecord {
        number: String::new(),
        series: invoice.series.clone(),
        year: year_of(now)?,
        sequence: 0,
        account: account.to_owned(),
        invoice: number.to_owned(),
        issued: now,
        net_eur: totals.net.to_string(),
        vat_eur: totals.vat.to_string(),
        total_eur: totals.gross.to_string(),
        entries: lines.iter().map(|line| line.entry).collect(),
        parts: 0,
    };
    let document = json!({
        "number": null,
        "is_draft": true,
        "account": account,
        "invoice": number,
        "from": invoice.from,
        "to": invoice.to,
        "created": format_rfc3339(now),
        "issued": null,
        "can_issue": !lines.is_empty(),
        "seller": original.get("seller"),
        "customer": original.get("customer"),
        "lines": lines.iter().map(|line| correction_json(line, Some(number))).collect::<Vec<_>>(),
        "total": { "eur": exact.normalize().to_string() },
        "net_eur": record.net_eur,
        "vat_percent": vat_percent.normalize().to_string(),
        "vat_eur": record.vat_eur,
        "total_eur": record.total_eur,
        "notes": [format!(
            "This document corrects the invoice {number} of {}. A negative amount is credited to the customer.",
            format_rfc3339(invoice.issued).get(..10).unwrap_or_default()
        )],
    });
    let prefix = invoice.number_prefix().ok_or_else(|| ApiError::new(ErrorCode::Internal))?.to_owned();
    Ok(Draft { record, prefix, document })
}

/// Returns the corrections that lower an invoice's charges and are on no document yet, at most as many as fit on one
/// credit note. A correction that was made on a day of an issued invoice is already on that invoice, and one that raises
/// a charge belongs on the next invoice.
fn open_corrections(
    app: &AppState,
    invoice: &InvoiceRecord,
    issued: &[InvoiceRecord],
    now: u64,
) -> Result<Vec<CorrectionLine>, ApiError> {
    let notes = app.stores.invoices.credit_notes(&invoice.account).map_err(store_error_response)?;
    let noted: BTreeSet<u64> = notes.iter().flat_map(|note| note.entries.iter().copied()).collect();
    let first = UtcDay::parse(&invoice.from).ok_or_else(|| ApiError::new(ErrorCode::Internal))?;
    // The range includes the next day, because the clock of another gateway may be fast.
    let end = DayNumber::from_unix(now).next().next();
    let lines = read_corrections(&app.ledger.store, &invoice.account, (first.into(), end));
    let mut lines = lines.map_err(report_error_response)?;
    lines.retain(|line| {
        let charged = line.corrects_day.as_deref();
        let is_of_invoice =
            charged.is_some_and(|day| (invoice.from.as_str()..=invoice.to.as_str()).contains(&day));
        let is_credit = line.sums.usage.billed.eur < Decimal::ZERO;
        is_credit
            && is_of_invoice
            && invoice_of_day(issued, &line.day).is_none()
            && !noted.contains(&line.entry)
    });
    lines.truncate(MAX_CORRECTIONS_PER_NOTE);
    Ok(lines)
}

/// Returns the document of an issued credit note: the draft, with its number and time of issue.
fn issued_json(draft: &Value, record: &CreditNoteRecord) -> Value {
    let mut document = draft.clone();
    if let Some(members) = document.as_object_mut() {
        let issued = format_rfc3339(record.issued);
        members.insert("number".to_owned(), record.number.as_str().into());
        members.insert("is_draft".to_owned(), false.into());
        members.insert("can_issue".to_owned(), false.into());
        members.insert("created".to_owned(), issued.as_str().into());
        members.insert("issued".to_owned(), issued.into());
    }
    document
}
