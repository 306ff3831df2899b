//! `GET /v1/models` and `GET /v1/models/{id}`: the catalogue, in the shape that
//! serves both dialects.

use super::{Endpoint, decoded};
use crate::exchange::{Ended, Exchange};
use crate::keyring::Grant;
use crate::proxy::filters::no_model;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_catalog::{Figures, Model, Query};
use penstock_contract::{Kind, Refusal};

/// Whether a key sees a model: it may use it. A key that has no scope for any model has the catalogue to read, and sees
/// what its list of models allows.
fn may_see(grant: &Grant, model: &Model) -> bool {
    let scope = match model.kind {
        Kind::Chat => Scope::Chat,
        Kind::Embedding => Scope::Embeddings,
        Kind::Rerank => Scope::Rerank,
        Kind::Image => Scope::Images,
        Kind::Transcription => Scope::Audio,
    };
    let reader = || !INFERENCE.iter().any(|scope| grant.allows(*scope));
    grant.may_use(&model.id) && (grant.allows(scope) || reader())
}

/// The scopes that let a key ask a model.
const INFERENCE: [Scope; 5] = [Scope::Chat, Scope::Embeddings, Scope::Rerank, Scope::Images, Scope::Audio];

/// The list.
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

    fn scope(&self) -> Scope {
        Scope::Models
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let mut query = Query::parse(x.caller.query().unwrap_or_default())?;
        if x.caller.field("anthropic-version").is_some() {
            // Clients of that family only show the names of their own family: the aliases.
            query = query.with_aliases();
        }
        let now = x.house.clock.now();
        let live = x.live.clone();
        let figures = |id: &str| {
            live.model(id).map_or_else(Figures::default, |model| {
                let rates = model.hour.lock().rates(now);
                Figures { throughput: rates.throughput, latency: rates.latency, popularity: rates.popularity }
            })
        };
        let grant = x.grant.clone();
        let page = live.catalog.page(&query, &|model| may_see(&grant, model), &figures)?;
        Ok(x.answer(200, page).await)
    }
}

/// One of them.
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

    fn scope(&self) -> Scope {
        Scope::Models
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let asked = decoded(tail);
        let (name, _) = penstock_routing::split(&asked);
        let detail = penstock_catalog::detail(x.caller.query().unwrap_or_default())?;
        let found = x.live.catalog.resolve(name).filter(|card| may_see(&x.grant, card));
        let card = found.ok_or_else(|| no_model(&x.live, name))?;
        let item = penstock_catalog::one(card, name, detail);
        Ok(x.answer(200, item).await)
    }
}
