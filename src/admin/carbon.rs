//! Admin request for the carbon report: the footprint of a period, of one account or of all accounts. It has the form
//! in which customers must report it as scope 3, category 1, by ESRS E1.

use super::credits::requested_account;
use super::invoice::{invoice_error_response, row_sums_json};
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::Ledger;
use crate::billing::carbon::{ReportedAccounts, read_carbon_figures};
use crate::billing::invoice::InvoiceSums;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{RangeError, UsageRange};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const QUERY: [&str; 4] = ["account", "from", "to", "accounts"];
/// Grams in a tonne.
const GRAMS_PER_TONNE: u32 = 1_000_000;
/// Decimal places of an intensity.
const INTENSITY_SCALE: u32 = 9;

/// Routes of the carbon report.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/carbon",
    "carbonReport",
    "Reports the footprint of a period by ESRS E1, scope 3 category 1: by country, provider and month, of all accounts or of one",
    RouteHandler::Ledger(|stores, ledger, asked| Box::pin(carbon(stores, ledger, asked))),
)
.with_query_parameters(&QUERY)
.with_response(200, report_schema)];

/// Returns the OpenAPI schema of the report.
fn report_schema() -> Value {
    let grams =
        |text: &str| json!({ "type": "string", "description": format!("{text}, grams of CO2 equivalent.") });
    let per = |text: &str| json!({ "type": ["string", "null"], "description": format!("{text}; `null` without any.") });
    let count = || json!({ "type": "integer" });
    let amount = |text: &str| json!({ "type": "string", "description": text });
    let row = json!({ "type": "object", "properties": {
        "country": amount("Country of the row; only in `countries`; empty for requests without an answer."),
        "provider": amount("Provider of the row; only in `providers`; empty for requests without an answer."),
        "month": amount("Month of the row, such as `2026-11`; only in `months`."),
        "account": amount("Account of the row; only in `accounts`."),
        "grids": { "type": ["array", "null"], "items": { "type": "string" }, "description": "Grid factors of the row; only in `countries`." },
        "requests": count(),
        "requests_not_charged": count(),
        "input_tokens": count(),
        "cached_input_tokens": count(),
        "output_tokens": count(),
        "images": count(),
        "audio_seconds": { "type": "string" },
        "failed_energy_kwh": amount("Energy of failed attempts, part of `energy_kwh`."),
        "carbon_location_g_co2e": grams("Operational emissions, location-based"),
        "carbon_market_g_co2e": grams("Operational emissions, market-based"),
        "embodied_g_co2e": grams("Emissions of making the hardware"),
        "water_liters": { "type": "string" },
        "credits": { "type": "string" },
        "charged_kwh": amount("Energy that was charged to wallets in kWh."),
        "eur": { "type": "string" },
        "eur_rounded": amount("EUR, rounded to cents."),
        "gross_location_t_co2e": amount("Gross emissions, location-based, tonnes."),
        "gross_market_t_co2e": amount("Gross emissions, market-based, tonnes."),
        "gross_location_g_co2e": grams("Gross emissions, location-based, embodied ones included"),
        "gross_market_g_co2e": grams("Gross emissions, market-based, embodied ones included"),
        "carbon_location_low_g_co2e": grams("Lower limit of the operational emissions, location-based"),
        "carbon_location_high_g_co2e": grams("Upper limit of the operational emissions, location-based"),
        "energy_kwh": { "type": "string" },
        "contract_energy_kwh": { "type": "string", "description": "Energy under the providers' contracts for renewable power." },
        "grid_renewable_energy_kwh": { "type": "string", "description": "Renewable share of the grid in the rest of the energy." },
        "location_g_per_eur": per("Gross location-based grams per EUR"),
        "market_g_per_eur": per("Gross market-based grams per EUR"),
        "location_g_per_million_tokens": per("Gross location-based grams per million tokens"),
        "market_g_per_million_tokens": per("Gross market-based grams per million tokens"),
        "kwh_per_million_tokens": per("Energy in kWh per million tokens"),
    } });
    let rows = |text: &str| json!({ "type": "array", "items": row.clone(), "description": text });
    json!({ "type": "object", "properties": {
        "object": { "const": "carbon_report" },
        "account": { "type": ["string", "null"], "description": "`null` for all accounts." },
        "from": { "type": "string" },
        "to": { "type": "string" },
        "total": row.clone(),
        "countries": rows("Sums by country."),
        "providers": rows("Sums by provider."),
        "months": rows("Sums by month, UTC."),
        "accounts": rows("Sums by account, if the query asks for them."),
        "methods": { "type": "array", "items": { "type": "string" } },
        "grids": { "type": "array", "items": { "type": "string" }, "description": "Grid factors: zone, source, year and intensity." },
        "contracts": { "type": "array", "items": { "type": "string" } },
    } })
}

async fn carbon(
    stores: &OpenStorage,
    ledger: &Ledger,
    asked: &AdminRequest,
) -> Result<LedgerReply, ApiError> {
    let account = requested_account(stores, ledger, asked, &QUERY).await?;
    let range = UsageRange::parse(
        asked.query_parameter("from", &QUERY)?,
        asked.query_parameter("to", &QUERY)?,
        asked.now,
    )
    .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
    let with_accounts = match asked.query_parameter("accounts", &QUERY)? {
        Some("true") => true,
        Some("false") | None => false,
        Some(_) => return Err(ApiError::invalid("accounts", "accounts: expected true or false")),
    };
    let accounts = match account {
        Some(name) => ReportedAccounts::One(name),
        None if with_accounts => ReportedAccounts::Each,
        None => ReportedAccounts::Total,
    };
    let store = ledger.store.clone();
    // If the request is dropped, this value is dropped too. The report then stops, because its weak reference is no
    // longer alive.
    let request = Arc::new(());
    let waiting = Arc::downgrade(&request);
    let work = move || report(&store, &accounts, range, || waiting.strong_count() > 0);
    let read = tokio::task::spawn_blocking(work).await;
    drop(request);
    Ok(LedgerReply::Json(200, read.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))?))
}

fn report(
    store: &LedgerStore,
    accounts: &ReportedAccounts,
    range: UsageRange,
    is_wanted: impl Fn() -> bool,
) -> Result<Value, ApiError> {
    let figures = read_carbon_figures(store, accounts, range, is_wanted).map_err(invoice_error_response)?;
    let account = match accounts {
        ReportedAccounts::One(name) => Some(name),
        ReportedAccounts::Total | ReportedAccounts::Each => None,
    };
    let mut countries = Vec::new();
    for (country, sums) in &figures.countries {
        let mut row = Map::from_iter([("country".to_owned(), Value::from(country.as_str()))]);
        row.extend(report_sums(sums));
        row.insert("grids".to_owned(), json!(figures.grid_sources_by_country.get(country)));
        countries.push(Value::Object(row));
    }
    let by = |name: &str, groups: &BTreeMap<String, InvoiceSums>| {
        let row = |(group, sums): (&String, &InvoiceSums)| {
            let mut row = Map::from_iter([(name.to_owned(), Value::from(group.as_str()))]);
            row.extend(report_sums(sums));
            Value::Object(row)
        };
        groups.iter().map(row).collect::<Vec<_>>()
    };
    Ok(json!({
        "object": "carbon_report",
        "account": account,
        "from": range.from.to_string(),
        "to": range.to.to_string(),
        "total": Value::Object(report_sums(&figures.total)),
        "countries": countries,
        "providers": by("provider", &figures.providers),
        "months": by("month", &figures.months),
        "accounts": by("account", &figures.accounts),
        "methods": figures.methods,
        "grids": figures.grid_sources,
        "contracts": figures.contracts,
    }))
}

/// Returns the sums of a row, with gross emissions, intensities and the origin of the energy.
fn report_sums(sums: &InvoiceSums) -> Map<String, Value> {
    let of = &sums.usage.billed;
    let exact = |decimal: Decimal| Value::from(decimal.normalize().to_string());
    let location = of.carbon_g.saturating_add(sums.embodied_g);
    let market = sums.market_g.saturating_add(sums.embodied_g);
    let tokens = Decimal::from(of.input.saturating_add(of.output));
    let per = |amount: Decimal, divisor: Decimal, scale: u32| {
        let ratio = amount.checked_mul(Decimal::from(scale)).and_then(|amount| amount.checked_div(divisor));
        ratio
            .filter(|_| divisor > Decimal::ZERO)
            .map_or(Value::Null, |ratio| exact(ratio.round_dp(INTENSITY_SCALE)))
    };
    let tonnes =
        |grams: Decimal| exact(grams.checked_div(Decimal::from(GRAMS_PER_TONNE)).unwrap_or_default());
    let mut members = row_sums_json(sums);
    members.extend(
        [
            ("gross_location_g_co2e", exact(location)),
            ("gross_market_g_co2e", exact(market)),
            ("gross_location_t_co2e", tonnes(location)),
            ("gross_market_t_co2e", tonnes(market)),
            ("contract_energy_kwh", exact(sums.contract_kwh)),
            ("grid_renewable_energy_kwh", exact(sums.grid_renewable_kwh)),
            ("location_g_per_eur", per(location, of.eur, 1)),
            ("market_g_per_eur", per(market, of.eur, 1)),
            ("location_g_per_million_tokens", per(location, tokens, GRAMS_PER_TONNE)),
            ("market_g_per_million_tokens", per(market, tokens, GRAMS_PER_TONNE)),
            ("kwh_per_million_tokens", per(of.kwh, tokens, GRAMS_PER_TONNE)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    members
}
