//! Asks an engine that serves a model how many tokens a prompt has. Nothing is
//! generated; an engine that cannot say is no failure of its offer.

use super::aside;
use super::offer::OfferLive;
use crate::live::{Live, ModelLive};
use bytes::{Bytes, BytesMut};
use http::header;
use penstock_contract::{Ask, Dialect};
use penstock_tokens::engine::{self, ANSWER_CAP, EngineCall, Input, Progress, Shape};
use std::time::Duration;
use tokio::time::timeout;

/// How long an engine may take to count.
const WAIT: Duration = Duration::from_secs(5);

/// The count of the first engine that can say.
pub async fn ask(live: &Live, model: &ModelLive, ask: &Ask) -> Option<u64> {
    let offers = model.offers.iter().filter_map(|index| live.offers.get(*index));
    for offer in offers {
        let Some(shape) = offer.offer.provider.tokenize else { continue };
        if let Ok(Some(tokens)) = timeout(WAIT, one(offer, shape, ask)).await {
            return Some(tokens);
        }
    }
    None
}

async fn one(offer: &OfferLive, shape: Shape, ask: &Ask) -> Option<u64> {
    let input = match ask.dialect {
        Dialect::Chat => Input::Chat(&ask.body),
        Dialect::Messages => Input::Messages(&ask.body),
    };
    let first = engine::request(shape, &offer.offer.name, input).ok()?;
    match call(offer, shape, first).await? {
        Progress::Tokens(tokens) => Some(tokens),
        Progress::Then(second) => match call(offer, shape, second).await? {
            Progress::Tokens(tokens) => Some(tokens),
            Progress::Then(_) => None,
        },
    }
}

async fn call(offer: &OfferLive, shape: Shape, call: EngineCall) -> Option<Progress> {
    let provider = &offer.offer.provider;
    // The engine's root is above the `/v1` of its base URL.
    let root = provider.base.path_prefix.strip_suffix("/v1").unwrap_or(&provider.base.path_prefix);
    let path = format!("{root}{}", call.path);
    let dialect = offer.offer.dialects.first().copied().unwrap_or(Dialect::Chat);
    let mut head = aside::signed("POST", provider, dialect, &path).ok()?;
    head.insert_header(header::CONTENT_TYPE, "application/json").ok()?;
    head.insert_header(header::CONTENT_LENGTH, call.body.len()).ok()?;
    let mut way = offer.provider.route.open().await.ok()?;
    way.wait(WAIT);
    let status = way.ask(head, Bytes::from(call.body)).await.ok()?;
    let mut answer = BytesMut::new();
    while let Some(piece) = way.read_body().await.ok()? {
        if answer.len() + piece.len() > ANSWER_CAP {
            return None;
        }
        answer.extend_from_slice(&piece);
    }
    way.release().await;
    engine::parse(shape, status, &answer).ok()
}
