//! `GET /v1/models` and `GET /v1/models/{id}`: the catalogue, in the shape that
//! serves both dialects.

use super::Endpoint;
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
        let card = x.live.catalog.resolve(name).ok_or_else(|| no_model(name))?;
        let item = penstock_catalog::one(card, name);
        Ok(x.answer(200, item).await)
    }
}

/// Undoes percent-encoding once; what is no UTF-8 afterwards names no model.
pub fn decoded(tail: &str) -> String {
    let mut bytes = Vec::with_capacity(tail.len());
    let mut rest = tail.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_decoded_once() {
        assert_eq!(decoded("org%2Fmodel:eco"), "org/model:eco");
        assert_eq!(decoded("org/model%253A"), "org/model%3A");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%ff"), "");
    }
}
