//! Admin requests that issue invoices and list them. An issued invoice has the next number of its seller and year, and
//! never changes: [`super::invoice`] shows the stored document from then on.

use super::accounts;
use super::api::run_blocking;
use super::input::RequestFields;
use super::invoice::{self, InvoiceIssueState, InvoiceQuery};
use super::openapi::{list_schema, response_schema};
use super::request::{AdminRequest, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::state::AppState;
use penstock_core::calendar::{UtcDay, UtcMonth, format_rfc3339};
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_storage::invoices::{InvoiceRecord, IssueOutcome};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::sync::Arc;

/// Query parameters of the request that lists issued invoices.
const QUERY: [&str; 1] = ["account"];
/// Request members that issue an invoice.
const ISSUE: [&str; 3] = ["account", "from", "to"];
/// Response members of a row of the list.
const ROW: [&str; 8] = ["number", "account", "from", "to", "issued", "net_eur", "vat_eur", "total_eur"];
/// Waiting time from the end of a period until its invoice may be issued, in seconds: late charges of the period are
/// recorded meanwhile. Charges that a fleet member writes from its journal still later, after a long outage, are
/// missing in all invoices.
const SETTLING_SECONDS: u64 = 3_600;
/// Maximum number of tries to issue a document, if other documents of its account are issued at the same time.
pub(super) const MAX_ISSUE_ATTEMPTS: usize = 8;
/// Number of hexadecimal digits in the id of a series of invoice numbers.
const SERIES_DIGITS: usize = 32;

/// Routes of issued invoices.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/invoices",
        "listInvoices",
        "Lists the issued invoices of an account, or of all",
        RouteHandler::Runtime(|app, _, asked| Box::pin(list(app, asked))),
    )
    .with_query_parameters(&QUERY)
    .with_response(200, || list_schema(response_schema(&ROW))),
    AdminRoute::post(
        "/admin/invoices",
        "issueInvoice",
        "Issues the invoice of an account for a period that has ended and has charges, with the next number of the seller and year",
        RouteHandler::Runtime(|app, _, asked| Box::pin(issue(app, asked))),
    )
    .with_body(&ISSUE, &ISSUE)
    .with_response(200, || response_schema(&invoice::INVOICE_MEMBERS)),
];

async fn list(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let account = asked.query_parameter("account", &QUERY)?.map(str::to_owned);
    let stores = app.stores.clone();
    run_blocking(move || {
        if let Some(account) = &account {
            accounts::check_account_exists(&stores, account)?;
        }
        let mut found = stores.invoices.list(account.as_deref()).map_err(store_error_response)?;
        found.sort_by_key(|invoice| Reverse((invoice.issued, invoice.year, invoice.sequence)));
        Ok(json!({ "data": found.iter().map(row_json).collect::<Vec<_>>() }))
    })
    .await
}

fn row_json(record: &InvoiceRecord) -> Value {
    json!({
        "number": record.number,
        "account": record.account,
        "from": record.from,
        "to": record.to,
        "issued": format_rfc3339(record.issued),
        "net_eur": record.net_eur,
        "vat_eur": record.vat_eur,
        "total_eur": record.total_eur,
    })
}

async fn issue(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let fields = RequestFields::parse(&asked.body, &ISSUE)?;
    let required = |name: &'static str, expected: &'static str| {
        let given = fields.text_value(name)?.into_option();
        given.ok_or_else(|| ApiError::invalid(name, expected))
    };
    let account = required("account", "account: expected the id of an account")?;
    let from = required("from", "from: expected the first day of the period, such as 2026-11-01")?;
    let to = required("to", "to: expected the last day of the period, such as 2026-11-30")?;
    let period = InvoiceQuery::parse(account, Some(&from), Some(&to), asked.now)?;
    if !has_settling_time_passed(period.range.to, asked.now) {
        let message = "to: expected a day that ended at least an hour ago, so that all charges are recorded";
        return Err(ApiError::invalid("to", message));
    }
    let (app, asked) = (app.clone(), asked.clone());
    run_blocking(move || issue_blocking(&app, &period, &asked)).await
}

/// Issues an invoice. If another document of the account is issued meanwhile, the figures are read again.
fn issue_blocking(app: &AppState, period: &InvoiceQuery, asked: &AdminRequest) -> Result<Value, ApiError> {
    accounts::check_account_exists(&app.stores, &period.account)?;
    let (from, to) = (period.range.from.to_string(), period.range.to.to_string());
    for _ in 0..MAX_ISSUE_ATTEMPTS {
        if let Some(stored) = find_issued_document(app, &period.account, &from, &to)? {
            return Ok(stored);
        }
        if let Some(issued) = try_issue(app, period, asked)? {
            return Ok(issued);
        }
    }
    Err(issue_conflict_error())
}

/// Returns the error 409 for a document that was not issued, because during each attempt another document of the
/// account was issued.
pub(super) fn issue_conflict_error() -> ApiError {
    let message = "Another document of this account was issued at the same time; try again.";
    ApiError::with_message(ErrorCode::Conflict, message)
}

/// Issues an invoice; `None` if another document of the account was issued meanwhile.
fn try_issue(app: &AppState, period: &InvoiceQuery, asked: &AdminRequest) -> Result<Option<Value>, ApiError> {
    let live = app.config_snapshot();
    let settings = &live.settings.invoice;
    let Some(seller) = &settings.seller else {
        let message = "An invoice needs a seller: write `seller` in [invoice] of the configuration.";
        return Err(ApiError::with_message(ErrorCode::Conflict, message));
    };
    let documents = app.stores.invoices.document_count(&period.account).map_err(store_error_response)?;
    let preview = invoice::preview(app, period, asked.now)?;
    if preview.get("issue_state").and_then(Value::as_str) == Some(InvoiceIssueState::Empty.name()) {
        let message = "This period has no amount above 0.00 EUR, so there is nothing to invoice.";
        return Err(ApiError::with_message(ErrorCode::Conflict, message).with_param("from"));
    }
    let draft =
        draft_record(&preview, series(seller.vat_id.as_deref().unwrap_or(&seller.name)), period, asked.now)?;
    let outcome = app.stores.invoices.issue(
        (&draft, documents),
        &settings.number_prefix,
        |record| issued_json(&preview, record).to_string().into_bytes(),
        |record| {
            let change = json!({ "account": record.account, "from": record.from, "to": record.to });
            asked.audit_entry("invoice.issue", &record.number, change)
        },
    );
    match outcome.map_err(store_error_response)? {
        IssueOutcome::Issued(record) | IssueOutcome::Existing(record) => {
            read_document(app, &record).map(Some)
        }
        IssueOutcome::Changed => Ok(None),
        IssueOutcome::Overlapping(other) => {
            let message = format!(
                "The invoice {} of this account has days in common with this period: {} to {}.",
                other.number, other.from, other.to
            );
            Err(ApiError::with_message(ErrorCode::Conflict, message).with_param("from"))
        }
        IssueOutcome::TooLarge => {
            let message = "from: expected a shorter period, as this invoice would be too large to be stored";
            Err(ApiError::invalid("from", message))
        }
    }
}

/// Returns the year of a time in Unix seconds.
pub(super) fn year_of(time: u64) -> Result<u16, ApiError> {
    let month = UtcMonth::from_unix(time).to_string();
    month.get(..4).and_then(|year| year.parse().ok()).ok_or_else(|| ApiError::new(ErrorCode::Internal))
}

/// Returns the record of an invoice that is about to be issued and has no number yet.
fn draft_record(
    preview: &Value,
    series: String,
    period: &InvoiceQuery,
    issued: u64,
) -> Result<InvoiceRecord, ApiError> {
    let year = year_of(issued)?;
    let text = |name: &str| {
        let text = preview.get(name).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| ApiError::new(ErrorCode::Internal))
    };
    Ok(InvoiceRecord {
        number: String::new(),
        series,
        year,
        sequence: 0,
        account: period.account.clone(),
        from: period.range.from.to_string(),
        to: period.range.to.to_string(),
        issued,
        net_eur: text("net_eur")?,
        vat_eur: text("vat_eur")?,
        total_eur: text("total_eur")?,
        parts: 0,
    })
}

/// Returns the id of the series of invoice numbers of a seller.
fn series(seller: &str) -> String {
    let digest = hex::encode(Sha256::digest(seller.as_bytes()).iter());
    digest.chars().take(SERIES_DIGITS).collect()
}

/// Returns the document of an issued invoice: the preview, with its number and time of issue.
fn issued_json(preview: &Value, record: &InvoiceRecord) -> Value {
    let mut document = preview.clone();
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

/// Returns the document of the invoice for exactly this period; `None` if none was issued.
pub(super) fn find_issued_document(
    app: &AppState,
    account: &str,
    from: &str,
    to: &str,
) -> Result<Option<Value>, ApiError> {
    let found = app.stores.invoices.find_by_period(account, from, to).map_err(store_error_response)?;
    found.map(|record| read_document(app, &record)).transpose()
}

/// Returns the stored JSON document of an issued invoice.
pub(super) fn read_document(app: &AppState, record: &InvoiceRecord) -> Result<Value, ApiError> {
    let document = app.stores.invoices.document(record).map_err(store_error_response)?;
    serde_json::from_slice(&document).map_err(|_| ApiError::new(ErrorCode::Internal))
}

/// Returns true if the period ended so long ago that its invoice may be issued.
pub(super) fn has_settling_time_passed(last_day: UtcDay, now: u64) -> bool {
    now >= last_day.end().saturating_add(SETTLING_SECONDS)
}
