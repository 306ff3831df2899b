//! `POST /v1/images/generations`: an image request, handled by the relay.
//! `GET /v1/images/content/…`: a generated image, for every client that knows its URL.

use super::Endpoint;
use crate::config::settings::ImageFormat;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::proxy::response::head::Head;
use crate::storage::spool::Spooled;
use crate::upstream::config_snapshot::Live;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_contract::{Ask, Code, Refusal, Task};
use std::time::Duration;

/// Endpoint of image generation.
pub struct Generations;

#[async_trait]
impl Endpoint for Generations {
    fn name(&self) -> &'static str {
        "images"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/images/generations"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Images
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        failover::run(x, RequestBody::Json(body, parse)).await
    }
}

/// Parses the body; the configuration fills in the model and the format where the client names none.
fn parse(body: Bytes, live: &Live) -> Result<Ask, Refusal> {
    let default = live.settings.default_models.images.as_deref();
    let mut ask = penstock_admission::images_with(body, &live.admission, default)?;
    let unsaid = ask.value("response_format").is_none_or(|format| format == b"null");
    if let Task::Draw(draw) = &mut ask.task
        && unsaid
    {
        draw.base64 |= live.settings.compatibility.images == ImageFormat::B64Json;
    }
    Ok(ask)
}

/// Endpoint of a generated image. The URL is the only credential: clients fetch images without their API key.
pub struct Content;

#[async_trait]
impl Endpoint for Content {
    fn name(&self) -> &'static str {
        "image_content"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/images/content/*"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Images
    }

    fn is_open(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let now = x.house.clock.now();
        let gone = || Refusal::because(Code::NotFound, "There is no image at this URL, or it has expired.");
        let kept = x.house.shelf.get(tail, now).ok_or_else(gone)?;
        // Read before the response head is sent, so that a disk error is an error and not a truncated image.
        let first = kept.image.read(0).await.map_err(|error| crate::storage::files::disk(&error))?;
        x.hold(first.len())?;
        x.record.status = 200;
        let left = kept.until.saturating_sub(now);
        let head = head(x, left);
        let sent = head.piecewise(&mut x.caller, kept.kind, kept.image.len()).await.is_ok();
        let silent = *x.caller.method() == Method::HEAD;
        if !sent || silent || first.is_empty() {
            return Ok(if sent { Ended::Written } else { Ended::Left });
        }
        Ok(send(x, &kept.image, first).await)
    }
}

/// Headers that keep a browser from interpreting an image as anything else.
fn head(x: &Exchange<'_>, left: Duration) -> Head {
    let age = format!("private, max-age={}", left.as_secs());
    x.head(200)
        .with(header::CACHE_CONTROL, age)
        .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with(header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
        .with("cross-origin-resource-policy", "cross-origin")
}

async fn send(x: &mut Exchange<'_>, image: &Spooled, mut piece: Bytes) -> Ended {
    let mut at = 0;
    loop {
        at += piece.len() as u64;
        let last = at >= image.len();
        if x.caller.write_response_body(piece, last).await.is_err() {
            return Ended::Left;
        }
        if last {
            return Ended::Written;
        }
        piece = match image.read(at).await {
            Ok(next) if !next.is_empty() => next,
            _ => return Ended::Left,
        };
    }
}
