//! Admin request that explains the routing of a request: for each flavor the candidates in their order with the terms
//! of their scores, and the offers that cannot serve the request.

use super::request::AdminRequest;
use super::routes::{AdminRoute, RouteHandler};
use crate::proxy::endpoint::parse_chat_request;
use crate::proxy::explanation::{ExplainedCandidate, RouteExplanation, explain_routes};
use crate::proxy::filters::find_model;
use crate::state::AppState;
use crate::upstream::offer::{OfferState, SelectionTime};
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, RequiredCapabilities};
use penstock_routing::{FLAVORS, Flavor, OfferHealth, OfferRankGroup, default_flavor, split_flavor};
use serde_json::{Map, Value, json};
use std::future::ready;
use std::time::Duration;

/// Query parameters of the request that explains routing.
pub const EXPLAIN_QUERY_PARAMETERS: [&str; 10] = [
    "model",
    "flavor",
    "prompt_tokens",
    "max_tokens",
    "needs",
    "countries",
    "max_input_cost",
    "max_carbon_intensity",
    "min_speed_tps",
    "key",
];
/// Assumed number of prompt tokens, if the query does not state it.
const DEFAULT_PROMPT: u64 = 1_000;
/// Maximum number of prompt or output tokens of a query.
const MAX_TOKENS: u64 = 1_000_000_000;
/// Bytes per token that the selection of candidates assumes.
const BYTES_PER_TOKEN: u64 = 4;

/// Capability that a request may need: its name, and the flag that it sets.
type NamedCapability = (&'static str, fn(&mut RequiredCapabilities));

/// Capabilities that a query may name.
const CAPABILITIES: [NamedCapability; 8] = [
    ("tools", |needs| needs.tools = true),
    ("json_object", |needs| needs.json_object = true),
    ("json_schema", |needs| needs.json_schema = true),
    ("images", |needs| needs.images = true),
    ("audio", |needs| needs.audio = true),
    ("files", |needs| needs.files = true),
    ("logprobs", |needs| needs.logprobs = true),
    ("logit_bias", |needs| needs.logit_bias = true),
];

/// Route that explains the routing of a hypothetical request.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/routing",
    "explainRouting",
    "Explains the routing of a request: candidates with the terms of their scores, and excluded offers with the reason",
    RouteHandler::Runtime(|app, _, asked| Box::pin(ready(explain(app, asked)))),
)
.with_query_parameters(&EXPLAIN_QUERY_PARAMETERS)
.with_response(200, response_schema)];

/// Returns the OpenAPI schema of the explanation.
fn response_schema() -> Value {
    let list = |item: Value, text: &str| json!({ "type": "array", "items": item, "description": text });
    let excluded = json!({ "type": "object", "properties": {
        "provider": { "type": "string" },
        "name": { "type": "string", "description": "Name of the model at the provider." },
        "country": { "type": "string", "description": "Country of the data centre, ISO 3166-1." },
        "reason": { "type": "string", "description": "`key`, `context_window`, a filter, or the parameter that the offer lacks." },
        "message": { "type": "string" },
    } });
    let flavor = json!({ "type": "object", "properties": {
        "flavor": { "enum": FLAVORS.iter().map(|flavor| flavor.name()).collect::<Vec<_>>() },
        "is_default": { "type": "boolean" },
        "weights": { "type": "object", "description": "Weights of price, speed and environment." },
        "max_intensity_ratio": { "type": ["number", "null"], "description": "Offers whose grid emits more than this many times as much as the cleanest come after the others; `null` without a limit." },
        "candidates": list(candidate_schema(), "Candidates, best first."),
        "excluded": list(excluded, "Offers that cannot serve the request."),
    } });
    json!({ "type": "object", "properties": {
        "model": { "type": "string" },
        "kind": { "type": "string" },
        "prompt_tokens": { "type": "integer" },
        "output_tokens": { "type": ["integer", "null"], "description": "Expected tokens of the answer, the same for each offer." },
        "fallbacks": list(json!({ "type": "string" }), "Models that are used if the prompt fits no offer of this model, or if no offer answers."),
        "attempts": { "type": "integer", "description": "Maximum number of providers that are asked." },
        "flavors": list(flavor, "A row for each flavor."),
    } })
}

fn candidate_schema() -> Value {
    let number = |text: &str| json!({ "type": "number", "description": text });
    let if_known = |kind: &str, text: &str| json!({ "type": [kind, "null"], "description": text });
    let flag = |text: &str| json!({ "type": "boolean", "description": text });
    let terms = json!({ "type": "object", "description": "Weighted parts, whose sum is the score; 0 is the best.",
        "properties": { "price": { "type": "number" }, "speed": { "type": "number" }, "environment": { "type": "number" } } });
    json!({ "type": "object", "properties": {
        "provider": { "type": "string" },
        "name": { "type": "string", "description": "Name of the model at the provider." },
        "country": { "type": "string", "description": "Country of the data centre, ISO 3166-1." },
        "score": { "type": "number" },
        "terms": terms,
        "rank": { "enum": OfferRankGroup::ALL.map(OfferRankGroup::name) },
        "shares_first_place": flag("True if this offer and at least one other share the first place: their scores count as equal."),
        "health": { "enum": ["healthy", "half_open", "cooldown", "ejected"] },
        "rests_for_seconds": if_known("number", "Time until the offer is tried again; `null` if it does not rest."),
        "price_eur": number("Expected price of the request."),
        "predicted_seconds": if_known("number", "Expected duration of the request; `null` if it is unknown."),
        "failing": number("Share of the latest requests that failed, from 0 to 1."),
        "requests_in_flight": { "type": "integer", "description": "Requests that the provider works on." },
        "max_in_flight": if_known("integer", "Maximum number of requests that the provider works on; `null` without a limit."),
        "is_full": flag("True if the provider has no free slot, so that the next candidate is asked."),
        "g_per_kwh": if_known("number", "Intensity of the grid, mean of a year, grams of CO2 equivalent per kWh; `null` if it is unknown."),
        "renewable": number("Renewable share of the power, from 0 to 1."),
        "is_answer_shortened": flag("True if the context window or the maximum output of the offer shortens the answer."),
        "is_speed_unknown": flag("True if the offer meets the filters only because its speed is unknown."),
    } })
}

/// Hypothetical request whose routing is explained.
struct HypotheticalRequest {
    ask: InferenceRequest,
    prompt_tokens: u64,
    /// Flavor of the request; `None` for an explanation of all flavors.
    flavor: Option<&'static dyn Flavor>,
}

fn explain(app: &AppState, asked: &AdminRequest) -> Result<Value, ApiError> {
    let live = app.config_snapshot();
    let named = asked.query_parameter("model", &EXPLAIN_QUERY_PARAMETERS)?;
    let named = named
        .filter(|name| !name.is_empty())
        .ok_or_else(|| ApiError::invalid("model", "model: expected the id of a model"))?;
    let (name, suffix) = split_flavor(named);
    let model = find_model(&live, name)?;
    let mut question = parse_hypothetical_request(app, asked, name)?;
    question.flavor = question.flavor.or(suffix);
    question.ask.kind = model.model.kind;
    let key = asked.query_parameter("key", &EXPLAIN_QUERY_PARAMETERS)?.filter(|key| !key.is_empty());
    let key = key.map(|key| {
        let unknown =
            || ApiError::with_message(ErrorCode::NotFound, "There is no key of this id.").with_param("key");
        app.key_cache.find_principal(key).ok_or_else(unknown)
    });
    let id = &model.model.card.id;
    let has_permission = key.transpose()?.is_none_or(|key| key.may_use_model(id));
    let moment = SelectionTime { steady: app.clock.steady_now(), unix_seconds: app.clock.unix_seconds() };
    let default = default_flavor(model.model.kind);
    let shown = FLAVORS.iter().copied().filter(|flavor| question.flavor.is_none_or(|one| one == *flavor));
    let ask = (&question.ask, question.prompt_tokens);
    let routes: Vec<RouteExplanation> =
        shown.map(|flavor| explain_routes(&live, &model, ask, flavor, has_permission, moment)).collect();
    Ok(json!({
        "model": id,
        "kind": model.model.kind.name(),
        "prompt_tokens": question.prompt_tokens,
        "output_tokens": routes.first().map(|route| route.output_tokens),
        "fallbacks": model.model.fallbacks,
        "attempts": live.settings.routing.attempts,
        "flavors": routes.iter().map(|route| route_json(route, default, moment.steady)).collect::<Vec<_>>(),
    }))
}

/// Builds the hypothetical request from the query parameters. Its filters are validated like those of a chat request.
fn parse_hypothetical_request(
    app: &AppState,
    asked: &AdminRequest,
    model: &str,
) -> Result<HypotheticalRequest, ApiError> {
    let value = |name: &str| {
        asked
            .query_parameter(name, &EXPLAIN_QUERY_PARAMETERS)
            .map(|value| value.filter(|text| !text.is_empty()))
    };
    let flavor = value("flavor")?.map(|name| {
        let names: Vec<&str> = FLAVORS.iter().map(|flavor| flavor.name()).collect();
        let unknown = || ApiError::invalid("flavor", format!("flavor: expected one of {}", names.join(", ")));
        FLAVORS.iter().copied().find(|flavor| flavor.name() == name).ok_or_else(unknown)
    });
    let flavor = flavor.transpose()?;
    let prompt_tokens = tokens("prompt_tokens", value("prompt_tokens")?)?.unwrap_or(DEFAULT_PROMPT);
    let mut filters = Map::new();
    if let Some(countries) = value("countries")? {
        let codes = countries.split(',').map(|code| code.trim().to_ascii_uppercase());
        filters.insert("countries".to_owned(), codes.collect());
    }
    for name in ["max_input_cost", "max_carbon_intensity", "min_speed_tps"] {
        if let Some(text) = value(name)? {
            let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
            filters.insert(name.to_owned(), number.unwrap_or_else(|| text.into()));
        }
    }
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "Hi" }] });
    if let Some(members) = body.as_object_mut() {
        members.extend((!filters.is_empty()).then(|| ("filters".to_owned(), filters.into())));
    }
    let mut ask =
        parse_chat_request(Bytes::from(body.to_string()), &app.config_snapshot()).map_err(without_prefix)?;
    ask.max_tokens = tokens("max_tokens", value("max_tokens")?)?;
    ask.prompt_bytes = usize::try_from(prompt_tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
    for name in value("needs")?.into_iter().flat_map(|list| list.split(',')) {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == name.trim());
        let names = CAPABILITIES.map(|(name, _)| name).join(", ");
        let (_, set) =
            known.ok_or_else(|| ApiError::invalid("needs", format!("needs: expected some of {names}")))?;
        set(&mut ask.required);
    }
    Ok(HypotheticalRequest { ask, prompt_tokens, flavor })
}

/// Parses a number of tokens from 1 to [`MAX_TOKENS`]; `None` if the query does not state it.
fn tokens(name: &str, text: Option<&str>) -> Result<Option<u64>, ApiError> {
    let invalid =
        || ApiError::invalid(name, format!("{name}: expected a whole number from 1 to {MAX_TOKENS}"));
    let read = |text: &str| text.trim().parse().ok().filter(|number| (1..=MAX_TOKENS).contains(number));
    text.map(|text| read(text).ok_or_else(invalid)).transpose()
}

/// Removes the prefix `filters.` from the parameter that an error names, because the query parameters of this route
/// have no prefix.
fn without_prefix(refusal: ApiError) -> ApiError {
    let param = refusal.param.as_deref().and_then(|param| param.strip_prefix("filters."));
    match param.and_then(|param| param.split(['.', '[']).next()).map(str::to_owned) {
        Some(param) => refusal.with_param(param),
        None => refusal,
    }
}

fn route_json(route: &RouteExplanation, default: &'static dyn Flavor, now: Duration) -> Value {
    let weights = route.flavor.weights();
    let candidates = route.candidates.iter().map(|one| candidate_json(one, now));
    let excluded = route.excluded.iter().map(|(offer, reason)| {
        let mut row = offer_json(offer);
        row.insert("reason".to_owned(), reason.name().into());
        row.insert("message".to_owned(), reason.sentence().into());
        Value::Object(row)
    });
    json!({
        "flavor": route.flavor.name(),
        "is_default": route.flavor == default,
        "weights": { "price": weights.price, "speed": weights.speed, "environment": weights.environment },
        "max_intensity_ratio": route.flavor.max_carbon_intensity_ratio(),
        "candidates": candidates.collect::<Vec<_>>(),
        "excluded": excluded.collect::<Vec<_>>(),
    })
}

fn offer_json(offer: &OfferState) -> Map<String, Value> {
    let members = [
        ("provider", Value::from(&*offer.offer.provider.id)),
        ("name", Value::from(&*offer.offer.name)),
        ("country", Value::from(&*offer.offer.provider.location.code)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn candidate_json(one: &ExplainedCandidate, now: Duration) -> Value {
    let (candidate, terms) = (&one.candidate, one.explained.terms);
    let (health, rests) = match candidate.health {
        OfferHealth::Healthy => ("healthy", None),
        OfferHealth::HalfOpen => ("half_open", None),
        OfferHealth::CoolingDown { until } => ("cooldown", Some(until)),
        OfferHealth::Ejected { until, .. } => ("ejected", Some(until)),
    };
    let mut row = offer_json(&one.offer);
    row.extend(
        [
            ("score", json!(terms.sum())),
            (
                "terms",
                json!({ "price": terms.price, "speed": terms.speed, "environment": terms.environment }),
            ),
            ("rank", one.explained.rank.name().into()),
            ("shares_first_place", one.explained.is_tied_for_first.into()),
            ("health", health.into()),
            ("rests_for_seconds", json!(rests.map(|until| until.saturating_sub(now).as_secs_f64()))),
            ("price_eur", json!(candidate.price)),
            ("predicted_seconds", json!(candidate.predicted_seconds)),
            ("failing", json!(candidate.failure_ratio)),
            ("requests_in_flight", candidate.in_flight.into()),
            ("max_in_flight", json!(one.offer.offer.provider.max_in_flight)),
            ("is_full", is_full(&one.offer).into()),
            ("g_per_kwh", json!(candidate.ci_g_per_kwh)),
            ("renewable", json!(candidate.renewable)),
            ("is_answer_shortened", one.fit.is_truncated().into()),
            ("is_speed_unknown", one.has_unmeasured_speed.into()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    row.into()
}

/// Returns true if the provider has no free permit, so that a request goes on to the next candidate.
fn is_full(offer: &OfferState) -> bool {
    offer.provider.provider.max_in_flight.is_some_and(|most| offer.provider.in_flight() >= most)
}
