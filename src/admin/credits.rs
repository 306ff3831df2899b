//! Admin requests for credits and energy: balances, verification, recomputation of charges, ledger pages and
//! statements. The CLI calls the same functions for a store that no gateway has open.

use super::openapi::{response_schema, schema_ref};
use super::request::{AdminRequest, LedgerReply, report_error_response};
use super::routes::{AdminRoute, RouteHandler};
use super::{JSON_LINES, accounts, openapi};
use crate::billing::checkpoint::{CHECKPOINT_FORMAT_HINT, LedgerCheckpoint};
use crate::billing::entry_pages::parse_position;
use crate::billing::report::{self, ReportError, StatementPeriod, UsageStatement};
use crate::billing::rerate::recalculate_day;
use crate::billing::{Ledger, format};
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::{StatementSums, UtcDay, UtcMonth};
use penstock_usage::RangeError;
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Runs [`accounts::check_account_exists`] on a thread for blocking work.
pub(super) async fn check_account_exists(stores: &OpenStorage, account: &str) -> Result<(), ApiError> {
    let (stores, name) = (stores.clone(), account.to_owned());
    let known = tokio::task::spawn_blocking(move || accounts::check_account_exists(&stores, &name)).await;
    known.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}

/// Returns the account that the query names, if any, after checking that it exists. An account with a balance in the
/// ledger always counts as existing.
pub(super) async fn requested_account(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
    names: &[&str],
) -> Result<Option<String>, ApiError> {
    let Some(name) = asked.query_parameter("account", names)? else { return Ok(None) };
    if !ledger.accounts_with_balance().iter().any(|account| **account == *name) {
        check_account_exists(stores, name).await?;
    }
    Ok(Some(name.to_owned()))
}

/// Returns the balances of one account or of all, as JSON.
///
/// # Errors
/// Returns 503 if the database of a fleet does not answer.
pub async fn balances_json(ledger: &Ledger, account: Option<&str>) -> Result<Value, ApiError> {
    let balances = match account {
        None => ledger.current_balances().await?,
        Some(name) => vec![(name.into(), ledger.current_balance(name).await?)],
    };
    let each = balances.iter().map(|(name, balance)| format::balances_to_json(name, balance));
    Ok(json!({ "data": each.collect::<Vec<_>>() }))
}

/// Returns the statement of a period with its sums, as JSON.
#[must_use]
pub fn statement_json(of_period: &UsageStatement) -> Value {
    let texts = |name: &str| -> BTreeSet<String> {
        let each = of_period.terms.values().filter_map(|terms| terms.pointer(name).and_then(Value::as_str));
        each.map(str::to_owned).collect()
    };
    let accounts = of_period.statement.accounts();
    let each = accounts.iter().map(|name| {
        let mut row = sums_json(&of_period.statement.account_sums(name));
        row.insert("account".to_owned(), (**name).into());
        let keys =
            of_period.statement.account_rows(name).filter(|(key, _)| !key.is_empty()).map(|(key, of)| {
                let mut members = sums_json(of);
                members.insert("key".to_owned(), (**key).into());
                Value::Object(members)
            });
        let models = of_period.statement.model_sums(name).map(|(model, of)| {
            let mut members = sums_json(of);
            members.insert("model".to_owned(), (**model).into());
            Value::Object(members)
        });
        row.insert("keys".to_owned(), keys.collect());
        row.insert("models".to_owned(), models.collect());
        Value::Object(row)
    });
    json!({
        "month": of_period.period.month().map(|month| month.to_string()),
        "from": of_period.period.from.to_string(),
        "to": of_period.period.to.to_string(),
        "accounts": each.collect::<Vec<_>>(),
        "boundary": "Operational energy at the buildings' meters, failed attempts included; carbon location-based, \
                     lifecycle factors; water on site and of generation. For the customer: scope 3, category 1.",
        "methodologies": texts("/methodology"),
        "grid_sources": texts("/grid/source"),
        "places": texts("/location"),
        "terms": of_period.terms.iter().map(|(id, terms)| json!({ "id": &**id, "terms": terms })).collect::<Vec<_>>(),
    })
}

/// Returns the sums of one row as JSON. Amounts that may have many digits are strings.
fn sums_json(sums: &StatementSums) -> Map<String, Value> {
    let exact = |decimal: Decimal| Value::from(decimal.normalize().to_string());
    let scaled = |amount: i128, scale: u32| exact(Decimal::from_i128_with_scale(amount, scale));
    let members = [
        ("requests", sums.requests.into()),
        ("requests_not_charged", sums.uncharged.into()),
        ("requests_counted_by_gateway", sums.counted.into()),
        ("input_tokens", sums.input.into()),
        ("cached_input_tokens", sums.cached.into()),
        ("output_tokens", sums.output.into()),
        ("images", sums.images.into()),
        ("audio_seconds", exact(sums.seconds)),
        ("energy_kwh", exact(sums.kwh)),
        ("carbon_g_co2e", exact(sums.carbon_g)),
        ("water_liters", exact(sums.water_l)),
        ("credits", scaled(sums.credits, 6)),
        ("charged_kwh", scaled(sums.energy, 9)),
        ("eur", exact(sums.eur)),
        ("eur_rounded", sums.rounded_eur().to_string().into()),
        ("granted_credits", scaled(sums.granted_credits, 6)),
        ("granted_kwh", scaled(sums.granted_energy, 9)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Parses the month of a query; the current month by default.
///
/// # Errors
/// Returns 400 if the text is not a month.
pub fn parse_month(text: Option<&str>, now: u64) -> Result<UtcMonth, ApiError> {
    let invalid = || ApiError::invalid("month", "month has to be a month such as 2026-11.");
    text.map_or_else(|| Ok(UtcMonth::from_unix(now)), |text| UtcMonth::parse(text).ok_or_else(invalid))
}

/// Parses the period of a query for a statement: a month, or a first and a last day, with any number of days between.
/// Without any of them, the period is the current month. Without a first day, the period begins on the first day of
/// the last day's month; without a last day, it ends today.
///
/// # Errors
/// Returns 400 with the invalid parameter.
pub fn parse_period(
    month: Option<&str>,
    (from, to): (Option<&str>, Option<&str>),
    now: u64,
) -> Result<StatementPeriod, ApiError> {
    if month.is_some() || (from.is_none() && to.is_none()) {
        if from.is_some() || to.is_some() {
            return Err(ApiError::invalid("month", "month: expected either a month, or from and to"));
        }
        return parse_month(month, now).map(StatementPeriod::of_month);
    }
    let refused = |error: RangeError| ApiError::invalid(error.parameter(), error.to_string());
    let day = |text: Option<&str>, default: UtcDay, error| match text {
        Some(text) => UtcDay::parse(text).ok_or_else(|| refused(error)),
        None => Ok(default),
    };
    let to = day(to, UtcDay::from_unix(now), RangeError::InvalidLastDay)?;
    let from = day(from, UtcMonth::from_unix(to.start()).first_day(), RangeError::InvalidFirstDay)?;
    if to < from { Err(refused(RangeError::ReversedDays)) } else { Ok(StatementPeriod { from, to }) }
}

/// Parses the day of a query; today by default.
///
/// # Errors
/// Returns 400 if the text is not a day.
pub fn parse_day(text: Option<&str>, now: u64) -> Result<UtcDay, ApiError> {
    let invalid = || ApiError::invalid("day", "day has to be a day such as 2026-11-22.");
    text.map_or_else(|| Ok(UtcDay::from_unix(now)), |text| UtcDay::parse(text).ok_or_else(invalid))
}

/// Query parameters of the request that lists balances.
pub const BALANCES_QUERY_PARAMETERS: [&str; 1] = ["account"];
/// Query parameters of the recomputation of a day's charges.
pub const RERATE_QUERY_PARAMETERS: [&str; 1] = ["day"];
/// Query parameters of the ledger lines.
pub const LEDGER_LINES_QUERY_PARAMETERS: [&str; 1] = ["after"];
/// Query parameters of the request for a statement.
pub const STATEMENT_QUERY_PARAMETERS: [&str; 4] = ["month", "from", "to", "account"];
/// Response members of a ledger verification.
pub const VERIFICATION_MEMBERS: [&str; 8] =
    ["good", "entries", "accounts", "open_reserves", "first_misfit", "balances", "second_copy", "checkpoint"];
/// Query parameters of a ledger verification.
pub const VERIFY_QUERY_PARAMETERS: [&str; 1] = ["checkpoint"];
/// Response members of the recomputation of a day's charges.
pub const RERATE_MEMBERS: [&str; 6] =
    ["day", "charges", "charged", "computed_again", "same", "first_different_entry"];
/// Response members of a statement.
pub const STATEMENT_MEMBERS: [&str; 9] =
    ["month", "from", "to", "accounts", "boundary", "methodologies", "grid_sources", "places", "terms"];

/// Routes that read the ledger.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/credits",
        "listBalances",
        "Lists the balances of accounts: total, reserved and available",
        RouteHandler::Ledger(|stores, ledger, asked| Box::pin(list(stores, ledger, asked))),
    )
    .with_query_parameters(&BALANCES_QUERY_PARAMETERS)
    .with_response(200, || openapi::list_schema(schema_ref("Balance"))),
    AdminRoute::get(
        "/admin/credits/verify",
        "verifyLedger",
        "Recomputes the ledger, and names the first incorrect entry",
        RouteHandler::Ledger(|_, ledger, asked| Box::pin(verify(ledger, asked))),
    )
    .with_query_parameters(&VERIFY_QUERY_PARAMETERS)
    .with_response(200, || response_schema(&VERIFICATION_MEMBERS)),
    AdminRoute::get(
        "/admin/credits/rerate",
        "rerateDay",
        "Recomputes every charge of a day from its usage and its terms",
        RouteHandler::Ledger(|_, ledger, asked| Box::pin(rerate_day(ledger, asked))),
    )
    .with_query_parameters(&RERATE_QUERY_PARAMETERS)
    .with_response(200, || response_schema(&RERATE_MEMBERS)),
    AdminRoute::get(
        "/admin/ledger",
        "readLedger",
        "Lists ledger lines after an entry; empty at the end",
        RouteHandler::Ledger(|_, ledger, asked| Box::pin(lines(ledger, asked))),
    )
    .with_query_parameters(&LEDGER_LINES_QUERY_PARAMETERS)
    .with_response(200, || json!({ "type": "string", "description": "JSON lines, one for each entry." }))
    .with_media_type(JSON_LINES),
    AdminRoute::get(
        "/admin/statement",
        "statement",
        "Adds up a period of any length: requests, tokens, energy, carbon, water, EUR, by account, key and model",
        RouteHandler::Ledger(|stores, ledger, asked| Box::pin(statement(stores, ledger, asked))),
    )
    .with_query_parameters(&STATEMENT_QUERY_PARAMETERS)
    .with_response(200, || response_schema(&STATEMENT_MEMBERS)),
];

async fn list(stores: &OpenStorage, ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let account = requested_account(stores, ledger, asked, &BALANCES_QUERY_PARAMETERS).await?;
    Ok(LedgerReply::Json(200, balances_json(ledger, account.as_deref()).await?))
}

async fn verify(ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let store = ledger.store.clone();
    let invalid = || ApiError::invalid("checkpoint", CHECKPOINT_FORMAT_HINT);
    let checkpoint = match asked.query_parameter("checkpoint", &VERIFY_QUERY_PARAMETERS)? {
        Some(text) => LedgerCheckpoint::parse(text).ok_or_else(invalid)?,
        None => LedgerCheckpoint::default(),
    };
    let verified =
        run_blocking(move || report::verify_with_checkpoint(&store, &checkpoint, &mut |_| {})).await?;
    Ok(LedgerReply::Json(200, verified.to_json()))
}

async fn rerate_day(ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let store = ledger.store.clone();
    let day = parse_day(asked.query_parameter("day", &RERATE_QUERY_PARAMETERS)?, asked.now)?;
    Ok(LedgerReply::Json(200, run_blocking(move || recalculate_day(&store, day)).await?.to_json(day)))
}

async fn lines(ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let store = ledger.store.clone();
    let invalid = || {
        ApiError::invalid(
            "after",
            "after has to be the number of an entry, or several with commas between them.",
        )
    };
    let after = asked.query_parameter("after", &LEDGER_LINES_QUERY_PARAMETERS)?.unwrap_or("0");
    let after = parse_position(after).ok_or_else(invalid)?;
    let page = run_blocking(move || report::read_text_page(&store, &after)).await?;
    Ok(LedgerReply::Lines(page.map(|(text, _)| text).unwrap_or_default()))
}

async fn statement(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let store = ledger.store.clone();
    let value = |name: &str| asked.query_parameter(name, &STATEMENT_QUERY_PARAMETERS);
    let period = parse_period(value("month")?, (value("from")?, value("to")?), asked.now)?;
    let account = requested_account(stores, ledger, asked, &STATEMENT_QUERY_PARAMETERS).await?;
    let found = run_blocking(move || report::statement(&store, period, account.as_deref())).await?;
    Ok(LedgerReply::Json(200, statement_json(&found)))
}

/// Runs work on a thread for blocking work. A panic becomes an internal error.
///
/// # Errors
/// Returns the response for the error of the work.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReportError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ReportError::Invalid("The ledger operation ended early.".to_owned())))
        .map_err(report_error_response)
}
