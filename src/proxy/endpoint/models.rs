//! `GET /v1/models` and `GET /v1/models/{id}`: the catalogue, in a form that clients of the chat dialect and of the
//! messages dialect understand.

use super::{Endpoint, EndpointFuture, decode_segment, unknown};
use crate::auth::key_cache::Principal;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::filters::model_not_found_error;
use http::Method;
use penstock_auth::KeyScope;
use penstock_catalog::{CatalogModel, CatalogQuery, LastHourFigures};
use penstock_core::ErrorCode;

/// Returns true if a key may use a model, so that the model is in its list. A key without any inference scope gets all
/// models that its model list allows.
fn may_list(principal: &Principal, model: &CatalogModel) -> bool {
    let scope = KeyScope::from_name(model.kind.spec().scope);
    let may_list = scope.is_some_and(|scope| principal.has_scope(scope)) || !principal.allows_inference();
    principal.may_use_model(&model.id) && may_list
}

/// Endpoint of the model list.
pub struct ListModelsEndpoint;

impl Endpoint for ListModelsEndpoint {
    fn name(&self) -> &'static str {
        "models"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/models"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Models
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Models",
            EndpointWorkKind::Direct,
            "Lists the models that the key may use",
            &[(200, &[(JSON_CONTENT_TYPE, "ModelList")])],
        )
        .with_query(&[
            "output_modalities",
            "supported_parameters",
            "lifecycle",
            "sort",
            "offset",
            "limit 1 1000 100",
            "after_id",
            "before_id",
            "include_aliases",
            "include_meta",
        ])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let mut query = CatalogQuery::parse(x.caller.query().unwrap_or_default())?;
            if x.caller.header_field("anthropic-version").is_some() {
                // Anthropic clients show only names of Anthropic models, which are configured as aliases.
                query = query.with_aliases();
            }
            let now = x.app.clock.steady_now();
            let live = x.config.clone();
            let figures = |id: &str| {
                live.model(id).map_or_else(LastHourFigures::default, |model| {
                    let rates = model.hourly_stats.lock().summary(now);
                    LastHourFigures {
                        throughput: rates.throughput,
                        latency: rates.latency,
                        popularity: rates.popularity,
                    }
                })
            };
            let principal = x.principal.clone();
            let today = x.app.clock.unix_seconds();
            let may_see = |model: &CatalogModel| may_list(&principal, model);
            let page = live.catalog.serialize_page(&query, &may_see, &figures, today)?;
            Ok(x.send_json(200, page).await)
        })
    }
}

/// Endpoint of one model.
pub struct GetModelEndpoint;

impl Endpoint for GetModelEndpoint {
    fn name(&self) -> &'static str {
        "model"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/models/*"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Models
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Models",
            EndpointWorkKind::Direct,
            "A model",
            &[(200, &[(JSON_CONTENT_TYPE, "Model")])],
        )
        .with_query(&["include_meta"])
        .with_error_codes(&[ErrorCode::ModelNotFound])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let asked = decode_segment(tail);
            let (name, _) = penstock_routing::split_flavor(&asked);
            let detail = penstock_catalog::parse_item_detail(x.caller.query().unwrap_or_default())?;
            let found = x.config.catalog.resolve(name).filter(|card| may_list(&x.principal, card));
            let card = found.ok_or_else(|| match unknown::is_repeated_path(name) {
                true => unknown::unknown_path_error(&format!("/v1/{name}")),
                false => model_not_found_error(&x.config, name),
            })?;
            let item = penstock_catalog::serialize_item(card, name, detail, x.app.clock.unix_seconds());
            Ok(x.send_json(200, item).await)
        })
    }
}
