//! Reports and exports: carbon report and usage, on the operators' console and on the account dashboard; charges by
//! provider and day, and ledger entries, on the operators' console only.

use super::answer::{ConsoleAnswer, refused_form_blocks};
use super::invoice::csv_style;
use super::pages::PageContext;
use crate::config::settings::InvoiceParty;
use penstock_console::Block;
use penstock_console::pages as blocks;
use penstock_core::calendar::{UtcDay, format_rfc3339};
use penstock_core::{ApiError, ErrorCode};
use serde_json::{Value, json};

/// Content type of every export.
const CSV: &str = "text/csv; charset=utf-8";
/// Maximum number of entries of the ledger in one file.
const MAX_LEDGER_ENTRIES: usize = 50_000;
/// Maximum number of pages of the ledger that are read for one file; a page of one account may have few entries.
const MAX_LEDGER_PAGES: usize = 60;

/// Returns the first and the last day that the query names. By default the last day is today, and the first day is 1
/// January of the year of the last day.
fn period(page: &PageContext<'_>) -> (String, String) {
    let today = UtcDay::from_unix(page.console.app.clock.unix_seconds()).to_string();
    let given =
        |name: &str| page.request.query_parameter(name).filter(|day| !day.is_empty()).map(str::to_owned);
    let to = given("to").unwrap_or(today);
    let new_year = || format!("{}-01-01", to.get(..4).unwrap_or("1970"));
    (given("from").unwrap_or_else(new_year), to)
}

/// Returns the account that the query names; empty for all accounts.
fn account<'p>(page: &'p PageContext<'_>) -> &'p str {
    page.request.query_parameter("account").map(str::trim).unwrap_or_default()
}

/// Shows the refusal of a field at the form, below a message; returns other refusals as errors.
fn at_field(mut form: penstock_console::Form, refusal: ApiError) -> Result<Vec<Block>, ApiError> {
    if refusal.param.is_none() || refusal.code == ErrorCode::Internal {
        return Err(refusal);
    }
    form.restore_values(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
    Ok(refused_form_blocks(form, &refusal))
}

/// Reads the carbon report. `with_accounts` adds a row for each account.
async fn read_carbon(page: &PageContext<'_>, with_accounts: bool) -> Result<Value, ApiError> {
    let (from, to) = period(page);
    let mut query = vec![("from", from.as_str()), ("to", to.as_str())];
    query.extend(Some(("account", account(page))).filter(|(_, account)| !account.is_empty()));
    query.extend(with_accounts.then_some(("accounts", "true")));
    page.get_from_admin_api("/admin/carbon", &query).await
}

/// Returns the customer, the issuer and the date of a report; the issuer comes from the invoice settings. A report of
/// all accounts has no customer.
pub fn report_parties(page: &PageContext<'_>, report: &Value) -> Value {
    let live = page.console.app.config_snapshot();
    let settings = &live.settings.invoice;
    let party = |party: &InvoiceParty| json!({ "name": &*party.name, "address": party.address, "vat_id": party.vat_id.as_deref() });
    let account = report.get("account").and_then(Value::as_str);
    let customer = account.and_then(|account| settings.customer(account)).map(|customer| &customer.party);
    json!({
        "customer": customer.filter(|customer| !customer.name.is_empty()).map(party),
        "issuer": settings.seller.as_ref().map(party),
        "created": format_rfc3339(page.console.app.clock.unix_seconds()),
    })
}

/// Returns the carbon report at `path`. `for_all` is true on the site whose report can include all accounts.
///
/// # Errors
/// Returns the refusal of the admin API, unless it concerns a field of the form: that one is shown at the field.
pub async fn carbon_page(page: &PageContext<'_>, path: &str, for_all: bool) -> Result<Vec<Block>, ApiError> {
    let (from, to) = period(page);
    let form = blocks::carbon_report_form(path, &from, &to, for_all.then(|| account(page)));
    match read_carbon(page, false).await {
        Ok(report) => {
            let parties = report_parties(page, &report);
            let shown = blocks::carbon_report_blocks(&report, &parties, path);
            Ok([Block::Form(form)].into_iter().chain(shown).collect())
        }
        Err(refusal) => at_field(form, refusal),
    }
}

/// Returns the carbon report as CSV; with a row for each account if `for_all` is true and the query names no account.
///
/// # Errors
/// Returns 400 if the style is invalid, or the refusal of the admin API.
pub async fn carbon_csv(page: &PageContext<'_>, for_all: bool) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    let report = read_carbon(page, for_all && account(page).is_empty()).await?;
    let name = file_name("carbon", &report);
    Ok(ConsoleAnswer::attachment_answer(CSV, name, blocks::carbon_report_csv(&report, style).into_bytes()))
}

/// Returns usage as CSV: a row for each day and group. `dimensions` are the groupings that the query may choose.
///
/// # Errors
/// Returns 400 if the style is invalid, or the refusal of the admin API.
pub async fn usage_csv(
    page: &PageContext<'_>,
    dimensions: &'static [(&'static str, &'static str)],
) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    let chosen = page.request.query_parameter("by").unwrap_or("model");
    let by = dimensions.iter().map(|(name, _)| *name).find(|name| *name == chosen).unwrap_or("model");
    let columns: &[&'static str] = if by == "day" { &["day"] } else { &["day", by] };
    let group_by = columns.join(",");
    let mut query = vec![("group_by", group_by.as_str())];
    let given = ["from", "to"].map(|name| (name, page.request.query_parameter(name).unwrap_or_default()));
    query.extend(given.into_iter().filter(|(_, day)| !day.is_empty()));
    let usage = page.get_from_admin_api("/admin/usage", &query).await?;
    let text = blocks::usage_csv(&usage, columns, page.can_see_amounts(), style);
    Ok(ConsoleAnswer::attachment_answer(CSV, file_name("usage", &usage), text.into_bytes()))
}

/// Returns the charges of the period of the query, grouped by the dimensions `group_by`.
async fn read_charges(page: &PageContext<'_>, group_by: &str) -> Result<Value, ApiError> {
    let given = ["from", "to", "account"];
    let given =
        given.map(|name| (name, page.request.query_parameter(name).map(str::trim).unwrap_or_default()));
    let mut query = vec![("group_by", group_by)];
    query.extend(given.into_iter().filter(|(_, value)| !value.is_empty()));
    page.get_from_admin_api("/admin/usage", &query).await
}

/// Returns the page of the ledger: charges by provider and day, and links to the exports.
///
/// # Errors
/// Returns the refusal of the admin API, unless it concerns a field of the form: that one is shown at the field.
pub async fn ledger_page(page: &PageContext<'_>, path: &str) -> Result<Vec<Block>, ApiError> {
    let given = |name: &str| page.request.query_parameter(name).unwrap_or_default().to_owned();
    match (read_charges(page, "provider").await, read_charges(page, "day").await) {
        (Ok(providers), Ok(days)) => {
            let value = |name: &str| match name {
                "account" => given(name),
                day => providers.get(day).and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            let form = Block::Form(blocks::ledger_period_form(path, value));
            let shown = blocks::ledger_export_blocks(&providers, &days, account(page));
            Ok([form].into_iter().chain(shown).collect())
        }
        (Err(refusal), _) | (_, Err(refusal)) => at_field(blocks::ledger_period_form(path, given), refusal),
    }
}

/// Returns the charges by provider and day as CSV.
///
/// # Errors
/// Returns 400 if the style is invalid, or the refusal of the admin API.
pub async fn reconciliation_csv(page: &PageContext<'_>) -> Result<ConsoleAnswer, ApiError> {
    let style = csv_style(page)?;
    let usage = read_charges(page, "day,provider").await?;
    let text = blocks::usage_csv(&usage, &["day", "provider"], true, style);
    Ok(ConsoleAnswer::attachment_answer(CSV, file_name("reconciliation", &usage), text.into_bytes()))
}

/// Returns the ledger's entries of the period as CSV.
///
/// # Errors
/// Returns 400 if the style is invalid or the period has too many entries, or the refusal of the admin API.
pub async fn ledger_csv(page: &PageContext<'_>) -> Result<ConsoleAnswer, ApiError> {
    let mut table = blocks::new_ledger_csv(csv_style(page)?);
    let (from, to) = period(page);
    let account = account(page);
    let (mut after, mut count) = (None::<String>, 0);
    for _ in 0..MAX_LEDGER_PAGES {
        let mut query = vec![("from", from.as_str()), ("to", to.as_str())];
        query.extend(Some(("account", account)).filter(|(_, account)| !account.is_empty()));
        query.extend(after.iter().map(|after| ("after", after.as_str())));
        let found = page.get_from_admin_api("/admin/ledger/entries", &query).await?;
        let entries = found.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        count += entries.len();
        if count > MAX_LEDGER_ENTRIES {
            break;
        }
        entries.iter().for_each(|entry| blocks::add_ledger_entry(&mut table, entry));
        after = found.get("next").and_then(position_text);
        if after.is_none() {
            let name = format!("ledger-{from}-{to}.csv");
            return Ok(ConsoleAnswer::attachment_answer(CSV, name, table.into_text().into_bytes()));
        }
    }
    let expected = "from: the period has too many entries for one file; expected fewer days or one account";
    Err(ApiError::invalid("from", expected))
}

/// Returns the position of the next page, which is a number or text; `None` after the last page.
fn position_text(next: &Value) -> Option<String> {
    next.as_str().map(str::to_owned).or_else(|| next.as_u64().map(|number| number.to_string()))
}

/// Returns the file name of an export. It contains the days, which the admin API has validated.
fn file_name(kind: &str, report: &Value) -> String {
    let day = |name: &str| report.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{kind}-{}-{}.csv", day("from"), day("to"))
}
