//! `POST /v1/images/generations`: an image request, which the failover driver sends to a provider. `GET
//! /v1/images/content/…`: a generated image, for every client that knows its URL.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::config::settings::ImageResponseFormat;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::proxy::response::head::ResponseHead;
use crate::storage::files::io_to_api_error;
use crate::storage::images::cache::CachedImage;
use crate::storage::spool::SpooledData;
use crate::upstream::config_snapshot::ConfigSnapshot;
use bytes::Bytes;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, InferenceTask};
use penstock_media::image;
use std::time::Duration;

/// Endpoint of image generation.
pub struct GenerateImagesEndpoint;

impl Endpoint for GenerateImagesEndpoint {
    fn name(&self) -> &'static str {
        "images"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/images/generations"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Images
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Images",
            EndpointWorkKind::Model,
            "Generates images",
            &[(200, &[(JSON_CONTENT_TYPE, "Images")])],
        )
        .with_body(JSON_CONTENT_TYPE, "ImagesRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}

/// Parses the body; the configuration provides the model and the format if the client names none.
fn parse(body: Bytes, live: &ConfigSnapshot) -> Result<InferenceRequest, ApiError> {
    let default = live.settings.default_models.images.as_deref();
    let mut ask = penstock_request_validation::validate_image_generation_with_default_model(
        body,
        &live.request_limits,
        default,
    )?;
    let is_absent = ask.member_value("response_format").is_none_or(|format| format == b"null");
    if let InferenceTask::GenerateImages(draw) = &mut ask.task
        && is_absent
    {
        draw.as_base64 |= live.settings.compatibility.images == ImageResponseFormat::B64Json;
    }
    Ok(ask)
}

/// Endpoint of a generated image. The URL is the only credential: clients fetch images without their API key.
pub struct GetImageEndpoint;

impl Endpoint for GetImageEndpoint {
    fn name(&self) -> &'static str {
        "image_content"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/images/content/*"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Images
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Images",
            EndpointWorkKind::Direct,
            "A generated image, by the URL of its response",
            &[(
                200,
                &[
                    ("image/png", "Bytes"),
                    ("image/jpeg", "Bytes"),
                    ("image/webp", "Bytes"),
                    ("image/gif", "Bytes"),
                    ("image/avif", "Bytes"),
                    ("application/octet-stream", "Bytes"),
                ],
            )],
        )
    }

    fn is_public(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let now = x.app.clock.steady_now();
            let stored = match x.app.image_cache.get(tail, now) {
                Some(stored) => stored,
                None => load_shared_image(x, tail, now).await?,
            };
            // The image is read before the response head is sent, so that a disk error leads to an error and not to a
            // truncated image.
            let first = stored.image.read(0).await.map_err(|error| io_to_api_error(&error))?;
            x.reserve_memory(first.len())?;
            x.record.status = 200;
            let remaining = stored.expires_at.saturating_sub(now);
            let head = image_head(x, remaining);
            let sent = head.send_head(&mut x.caller, stored.content_type, stored.image.len()).await.is_ok();
            let silent = *x.caller.method() == Method::HEAD;
            if !sent || silent || first.is_empty() {
                return Ok(if sent { WriteOutcome::Complete } else { WriteOutcome::Disconnected });
            }
            Ok(send_image(x, &stored.image, first).await)
        })
    }
}

/// Loads an image that another gateway of a fleet has stored.
///
/// # Errors
/// Returns 404 if there is no image of this name, and a refusal if it cannot be read or there is no memory for it.
async fn load_shared_image(x: &mut Exchange<'_>, name: &str, now: Duration) -> Result<CachedImage, ApiError> {
    let app = x.app;
    let not_found =
        || ApiError::with_message(ErrorCode::NotFound, "There is no image at this URL, or it has expired.");
    let _permit = app.image_cache.acquire_load_permit(name).await.ok_or_else(not_found)?;
    // Another request may have loaded the image meanwhile.
    if let Some(loaded) = app.image_cache.get(name, now) {
        return Ok(loaded);
    }
    let size = app.image_cache.shared_image_size(name).await.map_err(|error| io_to_api_error(&error))?;
    x.reserve_memory(usize::try_from(size.ok_or_else(not_found)?).unwrap_or(usize::MAX))?;
    let read = app.image_cache.read_shared_image(name, app.clock.unix_seconds()).await;
    let found = read.map_err(|error| io_to_api_error(&error))?.ok_or_else(not_found)?;
    let mut spool = app.spools.new_spool();
    spool.push(&found.image).await.map_err(|error| io_to_api_error(&error))?;
    let image = spool.finish().await.map_err(|error| io_to_api_error(&error))?;
    let kind = image::content_type(&found.image);
    let loaded =
        CachedImage { image, content_type: kind, expires_at: now + found.remaining, account: "".into() };
    app.image_cache.insert_loaded_image(name, loaded.clone(), now, x.config.settings.images.max_total_bytes);
    Ok(loaded)
}

/// Returns the response head of an image, with header fields that keep a browser from interpreting it as anything else.
fn image_head(x: &Exchange<'_>, remaining: Duration) -> ResponseHead {
    let age = format!("private, max-age={}", remaining.as_secs());
    x.new_response_head(200)
        .with_field(header::CACHE_CONTROL, age)
        .with_field(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_field(header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
        .with_field("cross-origin-resource-policy", "cross-origin")
}

async fn send_image(x: &mut Exchange<'_>, image: &SpooledData, mut piece: Bytes) -> WriteOutcome {
    let mut at = 0;
    loop {
        at += piece.len() as u64;
        let last = at >= image.len();
        if x.caller.write_response_body(piece, last).await.is_err() {
            return WriteOutcome::Disconnected;
        }
        if last {
            return WriteOutcome::Complete;
        }
        piece = match image.read(at).await {
            Ok(next) if !next.is_empty() => next,
            _ => return WriteOutcome::Disconnected,
        };
    }
}
