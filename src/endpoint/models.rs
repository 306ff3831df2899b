//! `GET /v1/models` and `GET /v1/models/{id}`: the catalogue, in the shape that
//! serves both dialects.

use super::{Endpoint, decoded};
use crate::exchange::{Ended, Exchange};
use crate::relay::no_model;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_catalog::{Figures, Query};
use penstock_contract::Refusal;

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
        let page = live.catalog.page(&query, &figures)?;
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
        let card = x.live.catalog.resolve(name).ok_or_else(|| no_model(&x.live, name))?;
        let item = penstock_catalog::one(card, name);
        Ok(x.answer(200, item).await)
    }
}
