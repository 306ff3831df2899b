//! Admin requests for invoices: figures of an account and a period, with seller, customer, unit prices and VAT.

use super::openapi::response_schema;
use super::request::{AdminRequest, report_error_response, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use super::{accounts, issued_invoices};
use crate::billing::invoice::{
    InvoiceError, InvoiceFigures, InvoiceLineKey, InvoiceSums, PRICE_NAMES, read_invoice_figures,
};
use crate::billing::invoice_corrections::CorrectionLine;
use crate::billing::invoice_totals::InvoiceTotals;
use crate::config::settings::{InvoiceParty, InvoiceSettings};
use crate::state::AppState;
use penstock_core::calendar::format_rfc3339;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::invoices::InvoiceRecord;
use penstock_usage::{PriceClass, RangeError, UsageRange};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Query parameters of an invoice.
const QUERY: [&str; 3] = ["account", "from", "to"];
/// Response members of an invoice.
pub(super) const INVOICE_MEMBERS: [&str; 22] = [
    "number",
    "is_draft",
    "account",
    "from",
    "to",
    "created",
    "issued",
    "can_issue",
    "issue_state",
    "overlaps",
    "seller",
    "customer",
    "lines",
    "keys",
    "days",
    "locations",
    "total",
    "net_eur",
    "vat_percent",
    "vat_eur",
    "total_eur",
    "notes",
];

/// Routes of invoices.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/invoice",
    "invoice",
    "Invoices an account for a period: unit prices, VAT, and sums by key, day and location",
    RouteHandler::Runtime(|app, _, asked| Box::pin(invoice(app, asked))),
)
.with_query_parameters(&QUERY)
.with_response(200, || response_schema(&INVOICE_MEMBERS))];

/// Account and period of an invoice.
#[derive(Clone, Debug)]
pub(super) struct InvoiceQuery {
    /// Id of the account.
    pub account: String,
    /// First and last day.
    pub range: UsageRange,
}

impl InvoiceQuery {
    /// Parses the first and last day of the period of an invoice.
    ///
    /// # Errors
    /// Returns 400 with the invalid day.
    pub(super) fn parse(
        account: String,
        from: Option<&str>,
        to: Option<&str>,
        now: u64,
    ) -> Result<Self, ApiError> {
        let range = UsageRange::parse(from, to, now)
            .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
        Ok(Self { account, range })
    }
}

async fn invoice(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let required = || ApiError::invalid("account", "account: expected the id of an account");
    let account = asked.query_parameter("account", &QUERY)?.ok_or_else(required)?.to_owned();
    let (from, to) = (asked.query_parameter("from", &QUERY)?, asked.query_parameter("to", &QUERY)?);
    let period = InvoiceQuery::parse(account, from, to, asked.now)?;
    let (app, now) = (app.clone(), asked.now);
    let read = move || {
        accounts::check_account_exists(&app.stores, &period.account)?;
        let (from, to) = (period.range.from.to_string(), period.range.to.to_string());
        match issued_invoices::find_issued_document(&app, &period.account, &from, &to)? {
            Some(stored) => Ok(stored),
            None => preview(&app, &period, now),
        }
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}

/// Converts an error of reading an invoice's figures to the error response.
pub(super) fn invoice_error_response(error: InvoiceError) -> ApiError {
    match error {
        InvoiceError::Refused(refusal) => refusal,
        InvoiceError::Store(error) => report_error_response(error),
    }
}

/// Returns the invoice as it would be issued now, without a number. Blocks.
pub(super) fn preview(app: &AppState, period: &InvoiceQuery, now: u64) -> Result<Value, ApiError> {
    let InvoiceQuery { account, range } = period;
    let mut figures =
        read_invoice_figures(&app.ledger.store, account, *range).map_err(invoice_error_response)?;
    let credit_notes = app.stores.invoices.credit_notes(account).map_err(store_error_response)?;
    let noted: BTreeSet<u64> = credit_notes.iter().flat_map(|note| note.entries.iter().copied()).collect();
    let removed = figures.remove_corrections(&noted);
    let record = app.stores.accounts.get(account).map_err(store_error_response)?;
    let name = record.map_or_else(|| account.clone(), |record| record.name);
    let live = app.config_snapshot();
    let settings = &live.settings.invoice;
    let (from, to) = (range.from.to_string(), range.to.to_string());
    let other = app.stores.invoices.find_overlapping(account, &from, &to).map_err(store_error_response)?;
    let state = match &other {
        Some(_) => InvoiceIssueState::Overlapping,
        None if !issued_invoices::has_settling_time_passed(range.to, now) => InvoiceIssueState::PeriodOpen,
        None if settings.seller.is_none() => InvoiceIssueState::NoSeller,
        None if !figures.has_amount_to_pay() => InvoiceIssueState::Empty,
        None => InvoiceIssueState::Ready,
    };
    let issued = app.stores.invoices.list(Some(account)).map_err(store_error_response)?;
    let mut invoice = invoice_json(settings, (account, &name), *range, (&figures, &issued), now);
    let is_zero = invoice.get("total_eur").and_then(Value::as_str) == Some("0.00");
    let state = if state == InvoiceIssueState::Ready && is_zero { InvoiceIssueState::Empty } else { state };
    if let Some(members) = invoice.as_object_mut() {
        members.insert("can_issue".to_owned(), (state == InvoiceIssueState::Ready).into());
        members.insert("issue_state".to_owned(), state.name().into());
        members.insert("overlaps".to_owned(), other.map(|other| other.number).into());
        if let Some(notes) = members.get_mut("notes").and_then(Value::as_array_mut).filter(|_| removed > 0) {
            notes.push(format!("Corrections on credit notes are no part of this invoice: {removed}.").into());
        }
    }
    Ok(invoice)
}

/// State of an invoice: issued, ready to be issued, or the reason why it cannot be issued now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvoiceIssueState {
    /// Invoice that has its number and never changes.
    Issued,
    /// Draft that can be issued.
    Ready,
    /// Draft of a period that is still open, or has ended less than an hour ago.
    PeriodOpen,
    /// Draft without a seller in the configuration.
    NoSeller,
    /// Draft without a charge and without a correction that raises the amount, or with a total of 0.00 EUR; credit note
    /// that credits nothing.
    Empty,
    /// Draft that has days in common with an issued invoice of the account.
    Overlapping,
}

impl InvoiceIssueState {
    /// All states of an invoice.
    pub(super) const ALL: [Self; 6] =
        [Self::Issued, Self::Ready, Self::PeriodOpen, Self::NoSeller, Self::Empty, Self::Overlapping];

    /// Returns the name of the state in answers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::Ready => "ready",
            Self::PeriodOpen => "period_open",
            Self::NoSeller => "no_seller",
            Self::Empty => "empty",
            Self::Overlapping => "overlapping",
        }
    }
}

/// Returns an invoice as JSON, without its issue state. Amounts are decimal strings: `net_eur`, `vat_eur`, `total_eur`
/// and `eur_rounded` are rounded to cents, all others are exact.
fn invoice_json(
    settings: &InvoiceSettings,
    (account, name): (&str, &str),
    range: UsageRange,
    (figures, issued): (&InvoiceFigures, &[InvoiceRecord]),
    now: u64,
) -> Value {
    let customer = settings.customer(account);
    let vat_percent = customer.and_then(|customer| customer.vat_percent).unwrap_or(settings.vat_percent);
    let note = customer.and_then(|customer| customer.note.as_deref()).or(settings.note.as_deref());
    let totals = InvoiceTotals::from_net_amount(figures.total.usage.billed.eur, vat_percent);
    let bought_by = customer.map(|customer| customer.party.clone()).unwrap_or_default();
    let bought_by = InvoiceParty {
        name: if bought_by.name.is_empty() { name.into() } else { bought_by.name },
        ..bought_by
    };
    json!({
        "number": null,
        "is_draft": true,
        "account": account,
        "from": range.from.to_string(),
        "to": range.to.to_string(),
        "created": format_rfc3339(now),
        "issued": null,
        "can_issue": false,
        "issue_state": null,
        "overlaps": null,
        "seller": settings.seller.as_ref().map(party_json),
        "customer": party_json(&bought_by),
        "lines": lines_json(figures, issued),
        "keys": rows("key", figures.keys.iter().map(|(key, sums)| (&**key, sums))),
        "days": rows("day", figures.days.iter().map(|(day, sums)| (&**day, sums))),
        "locations": rows("location", figures.locations.iter().map(|(location, sums)| (&**location, sums))),
        "total": Value::Object(row_sums_json(&figures.total)),
        "net_eur": totals.net.to_string(),
        "vat_percent": exact(vat_percent),
        "vat_eur": totals.vat.to_string(),
        "total_eur": totals.gross.to_string(),
        "notes": notes(figures, note),
    })
}

fn party_json(party: &InvoiceParty) -> Value {
    json!({ "name": &*party.name, "address": party.address, "vat_id": party.vat_id.as_deref() })
}

/// Returns the invoice lines: one for each group of charges, and one for each correction. The line of a correction
/// names the corrected ledger entry and the invoice of that entry.
fn lines_json(figures: &InvoiceFigures, issued: &[InvoiceRecord]) -> Value {
    let correction = |one: &CorrectionLine| {
        let invoice = one.corrects_day.as_deref().and_then(|day| invoice_of_day(issued, day));
        correction_json(one, invoice.map(|invoice| invoice.number.as_str()))
    };
    let charges = figures.lines.iter().map(|charge| Value::Object(line_json(charge, false)));
    charges.chain(figures.corrections.iter().map(correction)).collect()
}

fn line_json((unit, sums): (&InvoiceLineKey, &InvoiceSums), is_correction: bool) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("model".to_owned(), (&*unit.model).into());
    row.insert("location".to_owned(), (&*unit.location).into());
    row.insert("is_correction".to_owned(), is_correction.into());
    row.insert("price_class".to_owned(), unit.class.map(PriceClass::name).into());
    for (name, price) in PRICE_NAMES.iter().zip(&unit.prices) {
        row.insert(price_name(name), price.as_deref().into());
    }
    row.extend(row_sums_json(sums));
    row
}

/// Returns the invoice line of a correction as JSON; `invoice` is the number of the invoice that it corrects; `None` if
/// that invoice was not issued.
pub(super) fn correction_json(one: &CorrectionLine, corrected_invoice: Option<&str>) -> Value {
    let mut row = line_json((&one.line_key, &one.sums), true);
    let members = [
        ("entry", one.entry.into()),
        ("day", one.day.as_str().into()),
        ("corrects_entry", one.corrects_entry.into()),
        ("corrects_day", one.corrects_day.as_deref().into()),
        ("corrects_invoice", corrected_invoice.into()),
    ];
    row.extend(members.map(|(name, value): (&str, Value)| (name.to_owned(), value)));
    Value::Object(row)
}

/// Returns the issued invoice whose period includes a day. ISO 8601 days compare as texts.
pub(super) fn invoice_of_day<'i>(issued: &'i [InvoiceRecord], day: &str) -> Option<&'i InvoiceRecord> {
    issued.iter().find(|invoice| (invoice.from.as_str()..=invoice.to.as_str()).contains(&day))
}

/// Returns the name of a price in responses, with its unit.
fn price_name(name: &str) -> String {
    match name {
        "input" | "cached_input" | "output" => format!("{name}_eur_per_million_tokens"),
        "image" | "minute" => format!("eur_per_{name}"),
        other => other.to_owned(),
    }
}

fn rows<'f>(name: &str, groups: impl Iterator<Item = (&'f str, &'f InvoiceSums)>) -> Value {
    let row = |(group, sums): (&str, &InvoiceSums)| {
        let mut row = Map::from_iter([(name.to_owned(), group.into())]);
        row.extend(row_sums_json(sums));
        Value::Object(row)
    };
    groups.map(row).collect()
}

fn exact(decimal: Decimal) -> String {
    decimal.normalize().to_string()
}

/// Returns the sums of a row as JSON. Amounts that may have many digits are strings.
pub(super) fn row_sums_json(sums: &InvoiceSums) -> Map<String, Value> {
    let of = &sums.usage.billed;
    let scaled = |amount: i128, scale| Decimal::from_i128_with_scale(amount, scale).normalize().to_string();
    let members: [(&str, Value); 19] = [
        ("requests", of.requests.into()),
        ("requests_not_charged", of.uncharged.into()),
        ("input_tokens", of.input.into()),
        ("cached_input_tokens", of.cached.into()),
        ("output_tokens", of.output.into()),
        ("images", of.images.into()),
        ("audio_seconds", exact(of.seconds).into()),
        ("energy_kwh", exact(of.kwh).into()),
        ("failed_energy_kwh", exact(sums.usage.failed_kwh).into()),
        ("carbon_location_g_co2e", exact(of.carbon_g).into()),
        ("carbon_location_low_g_co2e", exact(sums.usage.carbon_low_g).into()),
        ("carbon_location_high_g_co2e", exact(sums.usage.carbon_high_g).into()),
        ("carbon_market_g_co2e", exact(sums.market_g).into()),
        ("embodied_g_co2e", exact(sums.embodied_g).into()),
        ("water_liters", exact(of.water_l).into()),
        ("credits", scaled(of.credits, 6).into()),
        ("charged_kwh", scaled(of.energy, 9).into()),
        ("eur", exact(of.eur).into()),
        ("eur_rounded", of.rounded_eur().to_string().into()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the notes that an invoice shows below its sums: the operator's note, the prices, and the methods of the
/// footprint.
fn notes(figures: &InvoiceFigures, note: Option<&str>) -> Vec<String> {
    let list = |names: &std::collections::BTreeSet<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.iter().map(String::as_str).collect::<Vec<_>>().join("; "),
    };
    let mut notes: Vec<String> = note.map(str::to_owned).into_iter().collect();
    notes.push(
        "Amounts are exact; only the net amount and the VAT are rounded, half-even, to cents. Requests of batches are lines of \
         their own at half the price, and so are requests paid in energy, at the price of a kWh."
            .to_owned(),
    );
    if figures.lines.keys().any(|unit| unit.class.is_none()) {
        notes.push(
            "Lines with several prices are of hours that an earlier version of the gateway recorded: their unit prices are \
             those of single requests, and requests of batches cost half of them."
                .to_owned(),
        );
    }
    notes.push(format!(
        "Carbon, location-based: lifecycle factors of the grid at each location, with low and high estimate. Method: {}. \
         Grid: {}.",
        list(&figures.methods),
        list(&figures.grid_sources)
    ));
    let contracts = list(&figures.contracts);
    notes.push(format!(
        "Carbon, market-based: power under the provider's contracts counts with 0 g, the rest with the grid's factor, as \
         no residual mix is known; failed attempts count with the grid's. Contracts: {contracts}."
    ));
    notes.push(
        "Embodied carbon of the hardware is apart from both, by the same method, without failed attempts. For the \
         customer all of it is scope 3, category 1."
            .to_owned(),
    );
    notes
}
