//! Admin requests for credit notes. A credit note lists corrections of the charges on an issued invoice that were
//! made after the invoice was issued. Its number is the next one in the series of the seller and the year, and it
//! never changes. Each correction is either on one credit note, or on the invoice of the period in which the
//! correction was made.

use super::accounts;
use super::api::run_blocking;
use super::credit_note_draft::{CorrectedInvoice, Draft, INVOICE_EXPECTED};
use super::input::RequestFields;
use super::invoice::InvoiceIssueState;
use super::issued_invoices::{MAX_ISSUE_ATTEMPTS, issue_conflict_error};
use super::openapi::{list_schema, response_schema};
use super::request::{AdminRequest, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::state::AppState;
use penstock_core::calendar::format_rfc3339;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::invoices::credit_notes::{CreditNoteOutcome, CreditNoteRecord};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::Arc;

/// Query parameters of the list.
const LIST_QUERY_PARAMETERS: [&str; 1] = ["account"];
/// Query parameters of one credit note.
const QUERY: [&str; 4] = ["account", "invoice", "invoice_from", "number"];
/// Request members that issue a credit note.
const ISSUE: [&str; 3] = ["account", "invoice", "invoice_from"];
/// Members that a request to issue a credit note needs.
const ISSUE_REQUIRED: [&str; 2] = ["account", "invoice"];
/// Response members of a row of the list.
const ROW: [&str; 7] = ["number", "account", "invoice", "issued", "net_eur", "vat_eur", "total_eur"];
/// Response members of a credit note.
const MEMBERS: [&str; 19] = [
    "number",
    "is_draft",
    "account",
    "invoice",
    "from",
    "to",
    "created",
    "issued",
    "can_issue",
    "issue_state",
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
    .with_body(&ISSUE, &ISSUE_REQUIRED)
    .with_response(200, || response_schema(&MEMBERS)),
];

fn required(name: &'static str, value: Option<String>, expected: &'static str) -> Result<String, ApiError> {
    value.ok_or_else(|| ApiError::invalid(name, expected))
}

const ACCOUNT_EXPECTED: &str = "account: expected the id of an account";

async fn list(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let account = asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?.map(str::to_owned);
    let account = required("account", account, ACCOUNT_EXPECTED)?;
    let stores = app.stores.clone();
    run_blocking(move || {
        accounts::check_account_exists(&stores, &account)?;
        let mut found = stores.invoices.credit_notes(&account).map_err(store_error_response)?;
        found.sort_by_key(|note| Reverse((note.issued, note.year, note.sequence)));
        Ok(json!({ "data": found.iter().map(row_json).collect::<Vec<_>>() }))
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
    let (number, invoice, from) = (value("number")?, value("invoice")?, value("invoice_from")?);
    let (app, now) = (app.clone(), asked.now);
    run_blocking(move || {
        accounts::check_account_exists(&app.stores, &account)?;
        if let Some(number) = number {
            let notes = app.stores.invoices.credit_notes(&account).map_err(store_error_response)?;
            let found = notes.into_iter().find(|note| note.number == number);
            return stored_json(&app, &found.ok_or_else(unknown_number)?);
        }
        let invoice = required("invoice", invoice, INVOICE_EXPECTED)?;
        let corrected = CorrectedInvoice { account, number: invoice, from };
        Ok(Draft::build(&app, &corrected, now)?.document)
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
    let from = fields.text_value("invoice_from")?.into_option();
    let corrected = CorrectedInvoice { account, number: invoice, from };
    let (app, asked) = (app.clone(), asked.clone());
    run_blocking(move || {
        accounts::check_account_exists(&app.stores, &corrected.account)?;
        for _ in 0..MAX_ISSUE_ATTEMPTS {
            if let Some(issued) = try_issue(&app, &corrected, &asked)? {
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
    invoice: &CorrectedInvoice,
    asked: &AdminRequest,
) -> Result<Option<Value>, ApiError> {
    let CorrectedInvoice { account, number, .. } = invoice;
    let documents = app.stores.invoices.document_count(account).map_err(store_error_response)?;
    let Draft { record, prefix, state, document } = Draft::build(app, invoice, asked.now)?;
    if state != InvoiceIssueState::Ready {
        let message = match record.entries.as_slice() {
            [] => "No charge of this invoice was corrected since, or other documents have all corrections.",
            _ => {
                "The open corrections of this invoice amount to 0.00 EUR so far, so there is nothing to credit."
            }
        };
        return Err(ApiError::with_message(ErrorCode::Conflict, message).with_param("invoice"));
    }
    let outcome = app.stores.invoices.issue_credit_note(
        (&record, documents),
        &prefix,
        |record| issued_json(&document, record).to_string().into_bytes(),
        |record| {
            let change = json!({ "account": account, "invoice": number, "entries": record.entries });
            asked.audit_entry("credit_note.issue", &record.number, change)
        },
    );
    match outcome.map_err(store_error_response)? {
        CreditNoteOutcome::Issued(record) => stored_json(app, &record).map(Some),
        CreditNoteOutcome::Changed => Ok(None),
        CreditNoteOutcome::TooLarge => Err(ApiError::new(ErrorCode::Internal)),
    }
}

/// Returns the document of an issued credit note: the draft, with its number and time of issue.
fn issued_json(draft: &Value, record: &CreditNoteRecord) -> Value {
    let mut document = draft.clone();
    if let Some(members) = document.as_object_mut() {
        let issued = format_rfc3339(record.issued);
        members.insert("number".to_owned(), record.number.as_str().into());
        members.insert("is_draft".to_owned(), false.into());
        members.insert("can_issue".to_owned(), false.into());
        members.insert("issue_state".to_owned(), InvoiceIssueState::Issued.name().into());
        members.insert("created".to_owned(), issued.as_str().into());
        members.insert("issued".to_owned(), issued.into());
    }
    document
}
