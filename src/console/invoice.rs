//! Invoice of an account: page and downloads, on the operators' console and on the account dashboard.

use super::answer::{ConsoleAnswer, refused_form_blocks};
use super::credit_note::invoice_credit_note_blocks;
use super::pages::PageContext;
use super::request::ConsoleRequest;
use penstock_console::pages as blocks;
use penstock_console::{Block, CsvStyle};
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole;
use serde_json::Value;
use std::collections::BTreeMap;

/// Roles that issue invoices.
pub const ISSUER_ROLES: &[UserRole] = &[UserRole::Admin, UserRole::Finance];
/// Maximum number of pages of the key list that are read for the names.
pub const MAX_KEY_LIST_PAGES: usize = 10;

/// Returns the names of an account's keys, by their ids; only of keys on the first [`MAX_KEY_LIST_PAGES`] pages of the
/// list.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn key_names(page: &PageContext<'_>, account: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let (mut pages, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MAX_KEY_LIST_PAGES {
        let mut query = vec![("account", account)];
        query.extend(after.iter().map(|after| ("after", after.as_str())));
        let answer = page.get_from_admin_api("/admin/keys", &query).await?;
        after = answer.get("next").and_then(Value::as_str).map(str::to_owned);
        pages.push(answer);
        if after.is_none() {
            break;
        }
    }
    Ok(blocks::key_names(&pages))
}

/// Returns the CSV style that the query selects.
///
/// # Errors
/// Returns 400 with the invalid parameter.
pub fn csv_style(page: &PageContext<'_>) -> Result<CsvStyle, ApiError> {
    CsvStyle::parse(page.request.query_parameter("separator"), page.request.query_parameter("decimal"))
        .map_err(|error| ApiError::invalid(error.parameter(), error.message()))
}

/// Returns the first and the last day that the query names, by default those of the last complete month. If the query
/// names only the first day, the last day is the end of that month, or today if that is earlier; if it names only the
/// last day, the first day is the start of that month.
fn period(page: &PageContext<'_>) -> (String, String) {
    let today = page.console.app.clock.unix_seconds();
    // After the form that issues an invoice was sent, its fields name the period.
    let given = |name: &str| {
        let sent = Some(page.request.form_field(name)).filter(|value| !value.is_empty());
        page.request.query_parameter(name).or(sent).map(str::to_owned)
    };
    match (given("from"), given("to")) {
        (Some(from), Some(to)) => (from, to),
        (Some(from), None) => {
            let month_end = UtcDay::parse(&from).map(|day| UtcMonth::from_unix(day.start()).last_day());
            let to = month_end.map(|end| end.min(UtcDay::from_unix(today)));
            let to = to.map_or_else(|| from.clone(), |to| to.to_string());
            (from, to)
        }
        (None, Some(to)) => {
            let first = UtcDay::parse(&to).map(|day| UtcMonth::from_unix(day.start()).first_day());
            (first.map_or_else(|| to.clone(), |first| first.to_string()), to)
        }
        (None, None) => {
            let this_month = UtcMonth::from_unix(today).first_day();
            let last_day = UtcDay::from_unix(this_month.start().saturating_sub(1));
            (UtcMonth::from_unix(last_day.start()).first_day().to_string(), last_day.to_string())
        }
    }
}

async fn read(page: &PageContext<'_>, account: &str) -> Result<Value, ApiError> {
    let (from, to) = period(page);
    page.get_from_admin_api("/admin/invoice", &[("account", account), ("from", &from), ("to", &to)]).await
}

/// Returns the blocks of the invoice page at `path`.
///
/// # Errors
/// Returns the refusal of the admin API, unless it concerns a field of the form: that one is shown at the field.
pub async fn invoice_page(page: &PageContext<'_>, account: &str, path: &str) -> Result<Vec<Block>, ApiError> {
    let (from, to) = period(page);
    let mut form = blocks::invoice_period_form(path, &from, &to);
    match read(page, account).await {
        Ok(invoice) => {
            let shown = [Block::Form(form)].into_iter();
            let names = key_names(page, account).await?;
            let issued = page.get_from_admin_api("/admin/invoices", &[("account", account)]).await?;
            let issue = page.has_role(ISSUER_ROLES) && invoice.get("can_issue") == Some(&Value::Bool(true));
            let notice = blocks::missing_address_notice(&invoice).filter(|_| issue);
            let form = issue.then(|| Block::Form(blocks::issue_invoice_form(path, &from, &to)));
            let issue = notice.into_iter().chain(form);
            let list = Block::Table(blocks::issued_invoices_table(&issued, path));
            let credits = invoice_credit_note_blocks(page, account, (&invoice, path)).await?;
            Ok(shown
                .chain(issue)
                .chain(blocks::invoice_blocks(&invoice, &names, path))
                .chain([list])
                .chain(credits)
                .collect())
        }
        Err(refusal) if refusal.code == ErrorCode::InvalidRequest && refusal.param.is_some() => {
            form.restore_values(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
            Ok(refused_form_blocks(form, &refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the refusal to issue the invoice of the requested period, with the form field that it concerns; `None` if
/// the invoice can be issued.
pub fn issuing_refusal(request: &ConsoleRequest, invoice: &Value) -> Option<ApiError> {
    let text = |name: &str| invoice.get(name).and_then(Value::as_str).unwrap_or_default();
    let conflict = |message: String| ApiError::with_message(ErrorCode::Conflict, message);
    for (name, expected) in [
        ("from", "from: expected the first day of the period, such as 2026-11-01"),
        ("to", "to: expected the last day of the period, such as 2026-11-30"),
    ] {
        if request.form_or_query_value(name).is_empty() {
            return Some(ApiError::invalid(name, expected));
        }
    }
    match text("issue_state") {
        "ready" => None,
        "empty" => {
            let message = "This period has no amount above 0.00 EUR, so there is nothing to invoice.";
            Some(conflict(message.to_owned()).with_param("from"))
        }
        "overlapping" => {
            let message =
                format!("The invoice {} of this account has days of this period too.", text("overlaps"));
            Some(conflict(message).with_param("from"))
        }
        "period_open" => {
            let message =
                "to: expected a day that ended at least an hour ago, so that all charges are recorded";
            Some(ApiError::invalid("to", message))
        }
        "issued" => {
            let message = format!("The invoice of this period was issued before, as {}.", text("number"));
            Some(conflict(message).with_param("from"))
        }
        _ => {
            let message = "An invoice needs a seller: write `seller` in [invoice] of the configuration.";
            Some(conflict(message.to_owned()))
        }
    }
}

/// Returns the invoice as CSV.
///
/// # Errors
/// Returns 400 if the style is invalid, or the refusal of the admin API.
pub async fn invoice_csv(page: &PageContext<'_>, account: &str) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    let invoice = read(page, account).await?;
    let text = blocks::invoice_csv(&invoice, &key_names(page, account).await?, style);
    Ok(ConsoleAnswer::attachment_answer(
        "text/csv; charset=utf-8",
        file_name(&invoice, "csv"),
        text.into_bytes(),
    ))
}

/// Returns the invoice as JSON.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn invoice_json(page: &PageContext<'_>, account: &str) -> Result<ConsoleAnswer, ApiError> {
    let invoice = read(page, account).await?;
    let text = serde_json::to_vec_pretty(&invoice).unwrap_or_default();
    Ok(ConsoleAnswer::attachment_answer("application/json", file_name(&invoice, "json"), text))
}

/// Returns the file name of a download. It contains the days, which the admin API has validated.
fn file_name(invoice: &Value, ending: &str) -> String {
    let day = |name: &str| invoice.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("invoice-{}-{}.{ending}", day("from"), day("to"))
}
