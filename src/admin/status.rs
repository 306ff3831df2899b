//! `/status`: version, state, ledger and providers; also the lists of models and providers, and the readiness of the
//! gateway.

use super::routes::{AdminRoute, RouteHandler};
use super::{grid, openapi};
use crate::billing::format::json_number;
use crate::state::AppState;
use crate::telemetry::fleet_metrics::FleetStatus;
use crate::telemetry::outcome_history::WINDOW_MINUTES;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::provider_state::ProviderState;
use penstock_core::Dialect;
use penstock_core::calendar::format_rfc3339;
use penstock_routing::{BreakerState, OfferHealth};
use penstock_storage::StoreHealth;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Routes about the running configuration.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/models",
        "listModels",
        "Lists the catalogue",
        RouteHandler::Runtime(|app, _, _| Box::pin(ready(Ok(list_models(app))))),
    )
    .with_response(200, || openapi::list_schema(json!({ "type": "object" }))),
    AdminRoute::get(
        "/admin/providers",
        "listProviders",
        "Lists providers and their state",
        RouteHandler::Runtime(|app, _, _| Box::pin(ready(Ok(list_providers(app))))),
    )
    .with_response(200, || openapi::list_schema(json!({ "type": "object" }))),
];

/// Returns the description of the most important problem that does not make the gateway unready; `None` if there is
/// none.
pub fn degraded_reason(app: &AppState) -> Option<Cow<'static, str>> {
    if app.fleet_status().is_some_and(|fleet| !fleet.may_spend_leases) {
        return Some(
            "the database has been away for so long that leased credits are not spent any more".into(),
        );
    }
    if matches!(app.stores.store.health(), StoreHealth::Unreachable { .. }) {
        return Some("the database cannot be reached".into());
    }
    if app.ledger.is_failing() {
        return Some("charges cannot be written at the moment".into());
    }
    let now = app.clock.steady_now();
    let live = app.config_snapshot();
    // A provider on cooldown after a 429 or a `Retry-After` still counts as healthy.
    let mut offers = live.offers.iter();
    let ejected = offers.all(|offer| matches!(offer.breaker.lock().health(now), OfferHealth::Ejected { .. }));
    if ejected && !live.offers.is_empty() {
        return Some("no provider is healthy at the moment".into());
    }
    let suspects: Vec<&str> =
        live.providers.iter().filter(failed_last_health_check).map(|one| &*one.provider.id).collect();
    let (first, more) = suspects.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!(", and of {} more", more.len()) };
    Some(format!("suspect: the last health check of {first} failed{more}").into())
}

/// Returns true if the last health check failed: either the provider is failing, or the check itself is misconfigured.
fn failed_last_health_check(provider: &&Arc<ProviderState>) -> bool {
    *provider.last_check_passed.lock() == Some(false)
}

/// Returns the JSON document of `/status`.
pub fn status_json(app: &AppState) -> Value {
    let live = app.config_snapshot();
    let why = app.not_ready_reason();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "config": live.settings.version.0,
        "ready": why.is_none(),
        "not_ready_because": why,
        "degraded_because": degraded_reason(app),
        "requests_open": app.in_flight_exchanges(),
        "streams_open": app.history.open_streams.open_stream_count(),
        "recent": recent_json(app),
        "store": store_state(app.stores.store.health()),
        "fleet": app.fleet_status().map(|fleet| fleet_json(app, &fleet)),
        "ledger": ledger_json(app),
        "backup": backup_json(app),
        "providers": providers_json(app, &live),
    })
}

/// Returns the numbers of requests and errors of the last minutes.
fn recent_json(app: &AppState) -> Value {
    let counts = app.history.outcomes.recent_counts(app.clock.unix_seconds());
    json!({ "minutes": WINDOW_MINUTES, "requests": counts.requests, "errors": counts.errors, "refused": counts.refused })
}

/// Returns the name of the state of the store.
const fn store_state(health: StoreHealth) -> &'static str {
    match health {
        StoreHealth::Ready => "good",
        StoreHealth::Full => "full",
        StoreHealth::Stuck { .. } => "stuck",
        StoreHealth::Unreachable { .. } => "unreachable",
        StoreHealth::Reverted => "reverted",
        StoreHealth::Failed => "failed",
    }
}

/// Returns the state of the fleet as this member sees it.
fn fleet_json(app: &AppState, fleet: &FleetStatus) -> Value {
    json!({
        "member": app.stores.fleet.member_number(),
        "members": &*app.stores.fleet.live_members(),
        "leader": app.stores.fleet.is_leader(),
        "current": fleet.may_spend_leases,
        "config_differs": fleet.differing,
    })
}

/// Returns the state of this gateway's scheduled backups.
fn backup_json(app: &AppState) -> Value {
    let interval = app.config_snapshot().settings.exports.every;
    let last = Some(app.backup_state.last_backup_time()).filter(|last| *last > 0);
    json!({
        "state": match (interval, app.backup_state.has_failed(), last) {
            (None, ..) => "off",
            (_, true, _) => "failed",
            (_, _, None) => "not yet",
            _ => "good",
        },
        "interval_seconds": interval.map(|interval| interval.as_secs()),
        "last": last.map(format_rfc3339),
    })
}

/// Returns the state of the ledger's writes to the disk.
fn ledger_json(app: &AppState) -> Value {
    let state = app.ledger.durability_snapshot();
    json!({
        "state": match (state.exhausted, state.failing, state.is_replica_current) {
            (true, ..) => "exhausted",
            (_, true, _) => "failing",
            (_, _, false) => "copy behind",
            _ => "good",
        },
        "entries": state.entries,
        "open_reserves": state.open,
        "unwritten_eur": json_number(Decimal::new(state.exposed_eur_units, 8).normalize()),
        "unwritten_bytes": state.waiting,
    })
}

/// Returns the response to `GET /admin/providers`.
fn list_providers(app: &AppState) -> Value {
    json!({ "data": providers_json(app, &app.config_snapshot()) })
}

/// Returns the response to `GET /admin/models`.
fn list_models(app: &AppState) -> Value {
    let live = app.config_snapshot();
    let each = live.settings.models.iter().map(|model| {
        let offers = live.offers.iter().filter(|offer| offer.offer.model.card.id == model.card.id);
        json!({
            "id": model.card.id,
            "kind": model.kind.name(),
            "aliases": model.card.aliases,
            "context_length": model.card.context_length,
            "providers": offers.map(|offer| offer.offer.provider.id.to_string()).collect::<Vec<_>>(),
        })
    });
    json!({ "data": each.collect::<Vec<_>>() })
}

fn providers_json(app: &AppState, live: &ConfigSnapshot) -> Vec<Value> {
    let now = app.clock.steady_now();
    let each = live.providers.iter().map(|provider| {
        let settings = &provider.provider;
        let last_error = provider
            .last_error
            .lock()
            .map(|(at, kind)| json!({ "kind": kind, "seconds_ago": now.saturating_sub(at).as_secs() }));
        let offers = live.offers.iter().filter(|offer| offer.offer.provider.id == settings.id);
        json!({
            "id": settings.id,
            "operator": settings.operator,
            "city": settings.location.city,
            "country": settings.location.country,
            "grid": grid::current_intensity_json(live, settings, app.clock.unix_seconds()),
            "dialects": settings.dialects.iter().map(|dialect: &Dialect| dialect.name()).collect::<Vec<_>>(),
            "has_check": settings.health.is_some(),
            "check": provider.last_check_passed.lock().map(|good| if good { "good" } else { "bad" }),
            "requests_in_flight": provider.in_flight(),
            "max_in_flight": settings.max_in_flight,
            "last_error": last_error,
            "offers": offers.map(|offer| offer_json(offer, now)).collect::<Vec<_>>(),
        })
    });
    each.collect()
}

fn offer_json(offer: &crate::upstream::offer::OfferState, now: Duration) -> Value {
    let figures = offer.latency_stats.lock().clone();
    let breaker = offer.breaker.lock();
    let rest = match breaker.state(now) {
        BreakerState::Open { until } => Some(until),
        BreakerState::Closed | BreakerState::HalfOpen => breaker.cooldown_until(now),
    };
    json!({
        "model": offer.offer.model.card.id,
        "name": offer.offer.name,
        "state": match breaker.state(now) {
            // A provider is suspect as soon as one health check fails; requests are still sent to it.
            BreakerState::Closed if failed_last_health_check(&&offer.provider) => "suspect",
            state => state.name(),
        },
        "rests_for_seconds": rest.map(|until| until.saturating_sub(now).as_secs_f64()),
        "failing": breaker.failure_ratio(now),
        "attempts": offer.attempts.load(std::sync::atomic::Ordering::Relaxed),
        "requests_in_flight": offer.in_flight(),
        "first_token_seconds": figures.seconds_to_first_token(now, 0),
        "tokens_per_second": figures.tokens_per_second(now),
    })
}
