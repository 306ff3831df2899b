//! Admin request for the carbon intensity of the grids, and for the hours in which requests of batches ran.

use super::credits::requested_account;
use super::request::AdminRequest;
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::rollups::answer::{UsageQuery, read_usage};
use crate::config::settings::Provider;
use crate::state::AppState;
use crate::state::grid_intensity::{configured_intensity, grid_zone_of};
use crate::upstream::config_snapshot::ConfigSnapshot;
use penstock_batch::intensity_history::{IntensityRecord, IntensitySource};
use penstock_core::calendar::{UtcDay, format_rfc3339};
use penstock_core::{ApiError, ErrorCode};
use penstock_usage::{UsageGrouping, UsageRange};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const HOUR_SECONDS: u64 = 3_600;
/// Number of hours in an answer, including the current hour.
const DAY_HOURS: u64 = 24;
/// Query parameters of `GET /admin/grid`.
const QUERY: [&str; 1] = ["account"];
/// Zone name for providers that are no longer configured.
const OTHER_ZONE: &str = "";

/// Routes about the grids.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/grid",
    "grid",
    "Lists the grid intensity of the last 24 hours by zone, and the requests of batches in each hour",
    RouteHandler::Runtime(|app, _, asked| Box::pin(grid(app, asked))),
)
.with_query_parameters(&QUERY)
.with_response(200, response_schema)];

/// Returns the OpenAPI schema of the response to `GET /admin/grid`.
fn response_schema() -> Value {
    let list = |kind: Value, text: &str| json!({ "type": "array", "items": kind, "description": text });
    let nullable = |kind: &str| json!({ "type": [kind, "null"] });
    let row = json!({ "type": "object", "properties": {
        "zone": { "type": ["string", "null"], "description": "Member state or provider id; `null` for providers that are not configured any more." },
        "providers": list(json!({ "type": "string" }), "Providers of the zone."),
        "now": { "type": ["object", "null"], "description": "Intensity of the present hour, with its origin and age." },
        "g_per_kwh": list(nullable("integer"), "Intensity of each hour, g CO2e per kWh, location-based, as it was known in that hour."),
        "sources": list(nullable("string"), "Origin of each: `forecast`, `typical` or `yearly`."),
        "batch_requests": list(json!({ "type": "integer" }), "Charged requests at the price of batches, in each hour."),
    } });
    json!({ "type": "object", "properties": {
        "object": { "const": "grid" },
        "hours": list(json!({ "type": "string" }), "Starts of the last 24 hours, RFC 3339, the present one included."),
        "data": list(row, "A row for each grid zone; of one account, for the zones in which its batches ran."),
    } })
}

/// Returns the carbon intensity of the grid of a provider in the current hour, in g CO2e per kWh, with its source. A
/// forecast has its age in `seconds_old`, a yearly mean its `year` and `attribution`; members that do not apply to the
/// source are `null`. `now` is in Unix seconds.
pub(super) fn current_intensity_json(live: &ConfigSnapshot, provider: &Provider, now: u64) -> Value {
    let IntensityRecord { grams, source } = configured_intensity(live, provider, now / HOUR_SECONDS);
    let (grid, written) = (&provider.location.grid, live.settings.grid.forecast_written);
    let (is_yearly, is_forecast) =
        (source == IntensitySource::Yearly, source == IntensitySource::Forecast && written > 0);
    json!({
        "zone": grid_zone_of(live, provider),
        "g_per_kwh": grams,
        "source": source.name(),
        "seconds_old": is_forecast.then(|| now.saturating_sub(written)),
        "year": is_yearly.then_some(grid.year),
        "attribution": is_yearly.then(|| grid.attribution()),
    })
}

/// Numbers of charged batch requests, by hour (in hours since 1970) and provider id.
type BatchRequests = HashMap<(u64, String), u64>;

/// Handles `GET /admin/grid`: reads the usage and returns the JSON response.
async fn grid(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let account = requested_account(&app.stores, &app.ledger, asked, &QUERY).await?;
    let (store, of, now) = (app.ledger.store.clone(), account.clone().unwrap_or_default(), asked.now);
    let yesterday = UtcDay::from_unix(now.saturating_sub(DAY_HOURS * HOUR_SECONDS));
    let range = UsageRange { from: yesterday, to: UtcDay::from_unix(now) };
    let query =
        UsageQuery { key: None, range, groupings: vec![UsageGrouping::Hour, UsageGrouping::Provider] };
    let read = tokio::task::spawn_blocking(move || read_usage(&store, &of, &query)).await;
    let report = read.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))?;
    let requests = report.groups().filter_map(|group| {
        let [hour, provider] = group.names.try_into().ok()?;
        let hour = penstock_core::calendar::parse_rfc3339(&hour)? / HOUR_SECONDS;
        Some(((hour, provider), group.sums.batch_requests)).filter(|(_, requests)| *requests > 0)
    });
    Ok(day_json(app, &requests.collect(), account.is_none(), now))
}

/// Providers of a zone.
#[derive(Default)]
struct ZoneProviders<'a> {
    ids: Vec<&'a str>,
    first: Option<&'a Provider>,
}

/// Returns the answer for a day: all zones, or only the zones in which batch requests ran.
fn day_json(app: &AppState, requests: &BatchRequests, has_every_zone: bool, now: u64) -> Value {
    let live = app.config_snapshot();
    let mut zones: BTreeMap<&str, ZoneProviders<'_>> = BTreeMap::new();
    for provider in live.providers.iter().map(|one| &one.provider) {
        let zone = zones.entry(grid_zone_of(&live, provider)).or_default();
        zone.ids.push(&provider.id);
        zone.first.get_or_insert(provider);
    }
    let is_known = |id: &str| live.providers.iter().any(|one| *one.provider.id == *id);
    let others = requests.keys().map(|(_, provider)| &**provider).filter(|id| !is_known(id));
    let mut others: Vec<&str> = others.collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        zones.insert(OTHER_ZONE, ZoneProviders { ids: others, first: None });
    }
    let last = now / HOUR_SECONDS;
    let hours: Vec<u64> = ((last + 1).saturating_sub(DAY_HOURS)..=last).collect();
    let rows = zones.into_iter().filter_map(|(zone, providers)| {
        let of_hour = |hour: u64| -> u64 {
            let each = providers.ids.iter().filter_map(|id| requests.get(&(hour, (*id).to_owned())));
            each.sum()
        };
        let ran: Vec<u64> = hours.iter().map(|hour| of_hour(*hour)).collect();
        let intensity = |hour: u64| {
            let provider = providers.first?;
            // Past hours use the recorded intensity; the current hour and unrecorded hours use the configured one.
            let recorded = app.grid_records.recorded_intensity(zone, hour).filter(|_| hour < last);
            Some(recorded.unwrap_or_else(|| configured_intensity(&live, provider, hour)))
        };
        let day: Vec<Option<IntensityRecord>> = hours.iter().map(|hour| intensity(*hour)).collect();
        let is_shown = has_every_zone || ran.iter().any(|requests| *requests > 0);
        is_shown.then(|| {
            json!({
                "zone": Some(zone).filter(|zone| *zone != OTHER_ZONE),
                "providers": providers.ids,
                "now": providers.first.map(|provider| current_intensity_json(&live, provider, now)),
                "g_per_kwh": day.iter().map(|one| one.map(|one| one.grams)).collect::<Vec<_>>(),
                "sources": day.iter().map(|one| one.map(|one| one.source.name())).collect::<Vec<_>>(),
                "batch_requests": ran,
            })
        })
    });
    let rows: Vec<Value> = rows.collect();
    let hours: Vec<String> = hours.iter().map(|hour| format_rfc3339(hour * HOUR_SECONDS)).collect();
    json!({ "object": "grid", "hours": hours, "data": rows })
}
