//! `GET /v1/models` and `GET /v1/models/{id}`: the catalogue, in a form that both dialects understand.

use super::{Endpoint, decoded};
use crate::auth::key_cache::Grant;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::filters::no_model;
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_catalog::{CatalogModel, CatalogQuery, LiveFigures};
use penstock_contract::{Kind, Refusal};

/// Returns true if a key may list a model, that is, use it. A key without any inference scope lists all models that
/// its model list allows.
fn may_see(grant: &Grant, model: &CatalogModel) -> bool {
    let scope = match model.kind {
        Kind::Chat => KeyScope::Chat,
        Kind::Embedding => KeyScope::Embeddings,
        Kind::Rerank => KeyScope::Rerank,
        Kind::Image => KeyScope::Images,
        Kind::Transcription => KeyScope::Audio,
    };
    let reader = || !INFERENCE.iter().any(|scope| grant.allows(*scope));
    grant.may_use(&model.id) && (grant.allows(scope) || reader())
}

/// Scopes that allow inference.
const INFERENCE: [KeyScope; 5] =
    [KeyScope::Chat, KeyScope::Embeddings, KeyScope::Rerank, KeyScope::Images, KeyScope::Audio];

/// Endpoint of the model list.
pub struct List;

#[async_trait]
impl Endpoint for List {
    fn name(&self) -> &'static str {
        "models"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/models"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Models
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let mut query = CatalogQuery::parse(x.caller.query().unwrap_or_default())?;
        if x.caller.field("anthropic-version").is_some() {
            // Anthropic clients only show model names of their own family, which are the aliases.
            query = query.with_aliases();
        }
        let now = x.house.clock.now();
        let live = x.live.clone();
        let figures = |id: &str| {
            live.model(id).map_or_else(LiveFigures::default, |model| {
                let rates = model.hour.lock().rates(now);
                LiveFigures {
                    throughput: rates.throughput,
                    latency: rates.latency,
                    popularity: rates.popularity,
                }
            })
        };
        let grant = x.grant.clone();
        let page = live.catalog.page(&query, &|model| may_see(&grant, model), &figures)?;
        Ok(x.answer(200, page).await)
    }
}

/// Endpoint of one model.
pub struct One;

#[async_trait]
impl Endpoint for One {
    fn name(&self) -> &'static str {
        "model"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/models/*"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Models
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let asked = decoded(tail);
        let (name, _) = penstock_routing::split(&asked);
        let detail = penstock_catalog::parse_detail(x.caller.query().unwrap_or_default())?;
        let found = x.live.catalog.resolve(name).filter(|card| may_see(&x.grant, card));
        let card = found.ok_or_else(|| no_model(&x.live, name))?;
        let item = penstock_catalog::one(card, name, detail);
        Ok(x.answer(200, item).await)
    }
}
