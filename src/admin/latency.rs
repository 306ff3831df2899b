//! Admin requests for recent measurements: the time to the first token of the last hour, and the routes of the last
//! requests.

use super::request::AdminRequest;
use super::routes::{AdminRoute, RouteHandler};
use crate::state::AppState;
use crate::telemetry::first_token_history::{
    FirstTokenGroup, FirstTokenTimes, LatencyGrouping, WINDOW_MINUTES, sum_minutes,
};
use crate::telemetry::recent_requests::RecentRequest;
use penstock_core::calendar::format_rfc3339;
use penstock_core::{ApiError, ErrorCode};
use serde_json::{Value, json};
use std::future::ready;

const MINUTE_SECONDS: u64 = 60;
const QUERY: [&str; 1] = ["by"];

/// Routes of the times to the first token and of the last requests.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/latency",
        "latency",
        "Lists the time to the first token of the last hour by minute, for each model or provider",
        RouteHandler::Runtime(|app, _, asked| Box::pin(ready(latency(app, asked)))),
    )
    .with_query_parameters(&QUERY)
    .with_response(200, latency_schema),
    AdminRoute::get(
        "/admin/requests/{id}",
        "getRequest",
        "Shows which providers were asked for one of the last 1000 requests, by its request id",
        RouteHandler::Runtime(|app, _, asked| Box::pin(ready(request(app, asked)))),
    )
    .with_response(200, request_schema),
];

/// Returns the OpenAPI schema of the times to the first token.
fn latency_schema() -> Value {
    let list = |kind: Value, text: &str| json!({ "type": "array", "items": kind, "description": text });
    let seconds = |text: &str| json!({ "type": "number", "description": format!("{text}, seconds.") });
    let row = json!({ "type": "object", "properties": {
        "name": { "type": "string", "description": "Model or provider; empty for the sum of those beyond the first 63 pairs of model and provider." },
        "answers": { "type": "integer", "description": "Streamed answers of the last hour." },
        "mean_seconds": seconds("Mean"),
        "median_seconds": seconds("Median, exact to a tenth"),
        "p95_seconds": seconds("95th percentile, exact to a tenth"),
        "maximum_seconds": seconds("Longest time"),
        "answers_per_minute": list(json!({ "type": "integer" }), "Streamed answers of each minute."),
        "median_seconds_per_minute": list(json!({ "type": ["number", "null"] }), "Median of each minute, seconds."),
    } });
    json!({ "type": "object", "properties": {
        "object": { "const": "latency" },
        "by": { "enum": LatencyGrouping::ALL.map(|(name, _)| name) },
        "minutes": list(json!({ "type": "string" }), "Starts of the last 60 minutes, RFC 3339, the present one included."),
        "data": list(row, "A row for each model or provider with streamed answers in the last hour."),
    } })
}

/// Returns the OpenAPI schema of one of the last requests.
fn request_schema() -> Value {
    let attempt = json!({ "type": "object", "properties": {
        "provider": { "type": "string" },
        "outcome": { "type": "string", "description": "`ok`, or the name of the fault." },
        "seconds": { "type": "number" },
    } });
    json!({ "type": "object", "properties": {
        "id": { "type": "string" },
        "at": { "type": "integer", "description": "Time of the end, Unix seconds." },
        "model": { "type": ["string", "null"] },
        "flavor": { "type": ["string", "null"] },
        "provider": { "type": ["string", "null"], "description": "Provider that answered." },
        "outcome": { "type": "string" },
        "attempts": { "type": "array", "items": attempt },
        "first_token_seconds": { "type": ["number", "null"] },
        "session": { "enum": ["new", "stayed", "moved", null] },
        "input_tokens": { "type": ["integer", "null"] },
    } })
}

fn latency(app: &AppState, asked: &AdminRequest) -> Result<Value, ApiError> {
    let name = asked.query_parameter("by", &QUERY)?.unwrap_or("model");
    let by = LatencyGrouping::ALL.into_iter().find(|(known, _)| *known == name);
    let (name, by) = by.ok_or_else(|| ApiError::invalid("by", "by: expected model or provider"))?;
    let last = asked.now / MINUTE_SECONDS;
    let minutes = (last + 1).saturating_sub(WINDOW_MINUTES as u64)..=last;
    let minutes: Vec<String> = minutes.map(|minute| format_rfc3339(minute * MINUTE_SECONDS)).collect();
    let groups = app.history.first_tokens.last_hour_by_group(by, asked.now);
    Ok(json!({
        "object": "latency",
        "by": name,
        "minutes": minutes,
        "data": groups.iter().map(group_json).collect::<Vec<_>>(),
    }))
}

fn group_json((name, minutes): &FirstTokenGroup) -> Value {
    let sum = sum_minutes(minutes);
    json!({
        "name": name,
        "answers": sum.answer_count(),
        "mean_seconds": sum.mean(),
        "median_seconds": sum.percentile(0.5),
        "p95_seconds": sum.percentile(0.95),
        "maximum_seconds": sum.maximum(),
        "answers_per_minute": minutes.iter().map(FirstTokenTimes::answer_count).collect::<Vec<_>>(),
        "median_seconds_per_minute": minutes.iter().map(|minute| minute.percentile(0.5)).collect::<Vec<_>>(),
    })
}

fn request(app: &AppState, asked: &AdminRequest) -> Result<Value, ApiError> {
    asked.query_parameter("", &[])?;
    let found = app.history.requests.find(&asked.id);
    let message = "There is no request with this id among the last 1000 that were sent to providers.";
    let RecentRequest {
        id,
        at,
        model,
        flavor,
        provider,
        outcome,
        attempts,
        first_token,
        session,
        input_tokens,
    } = found.ok_or_else(|| ApiError::with_message(ErrorCode::NotFound, message).with_param("request"))?;
    let attempts = attempts.iter().map(|(provider, outcome, duration)| {
        json!({ "provider": provider, "outcome": outcome, "seconds": duration.as_secs_f64() })
    });
    Ok(json!({
        "id": id.as_str(),
        "at": at,
        "model": model,
        "flavor": flavor,
        "provider": provider,
        "outcome": outcome,
        "attempts": attempts.collect::<Vec<_>>(),
        "first_token_seconds": first_token.map(|first| first.as_secs_f64()),
        "session": session,
        "input_tokens": input_tokens,
    }))
}
