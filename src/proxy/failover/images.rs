//! Generated images: they are embedded in the response, or stored under a URL of the gateway. Clients never get the URL
//! of a provider. Images are fetched only from hosts that the configuration names, so only the path of the provider's
//! URL is used.

use super::attempt::{AttemptError, UpstreamResponse};
use super::image_work::{measure_base64_image, measure_image};
use super::streaming::StreamedBodyEnd;
use super::wait::WaitOutcome;
use super::{FailoverRun, buffered};
use crate::config::settings::{BaseUrl, Provider};
use crate::storage::images::cache::NewImageMetadata;
use crate::telemetry::blocking_tasks::{self, BlockingContext};
use crate::upstream::connect::UpstreamRoute;
use crate::upstream::content_encoding::ContentDecoder;
use crate::upstream::offer::OfferState;
use crate::upstream::request_head;
use bytes::Bytes;
use http::{Uri, header};
use penstock_core::{Dialect, GeneratedImage, ImageSource, ImageTask, UpstreamError, UpstreamErrorKind};
use penstock_limits::WorkClass;
use penstock_media::image::{self, DeliveredImage};
use pingora_http::RequestHeader;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Path prefix of stored images.
pub const CONTENT_PATH_PREFIX: &str = "/v1/images/content/";

/// Maximum number of retries of the request for an image after connections from the pool turned out to be closed.
const MAX_STALE_RETRIES: usize = 3;

/// Response with images.
pub struct ImageResponse {
    /// Body without `environment_impact` and `billing_cost`, which are added later.
    pub body: Vec<Bytes>,
    /// Number of pixels of each image; `None` if it is unknown.
    pub pixels: Vec<Option<u64>>,
}

/// Builds the response, and measures its images.
pub async fn build_image_response(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    draw: &ImageTask,
    pictures: Vec<GeneratedImage>,
    created: u64,
) -> Result<ImageResponse, AttemptError> {
    let mut remaining_bytes = run.exchange.config.settings.limits.response_buffer;
    // The results of a batch may be read after the URL of a stored image has expired, so images are embedded in them.
    let inside = draw.as_base64 || run.exchange.work == WorkClass::BatchLine;
    let mut delivered = Vec::with_capacity(pictures.len());
    let mut pixels = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let image = match (picture.source, inside) {
            (ImageSource::Base64(text), true) => {
                pixels.push(measure_base64_image(&text));
                DeliveredImage::Base64(text)
            }
            (ImageSource::Base64(text), false) => {
                pixels.push(measure_base64_image(&text));
                let image =
                    off_thread(&run.exchange.app.blocking_context, move || image::decode_base64(&text))
                        .await?
                        .ok_or_else(malformed)?;
                store_image(run, &image).await?
            }
            (ImageSource::Url(url), inside) => {
                let image = fetch_image(run, offer, &url, remaining_bytes).await?;
                remaining_bytes = remaining_bytes.saturating_sub(image.len());
                pixels.push(measure_image(&image));
                if inside {
                    DeliveredImage::Base64(
                        off_thread(&run.exchange.app.blocking_context, move || image::encode_base64(&image))
                            .await?,
                    )
                } else {
                    store_image(run, &image).await?
                }
            }
        };
        delivered.push((image, picture.revised_prompt));
    }
    Ok(ImageResponse { body: image::write_image_response(created, delivered), pixels })
}

fn malformed() -> AttemptError {
    AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Malformed))
}

/// Converts megabytes of data on a thread outside of the async runtime.
async fn off_thread<T: Send + 'static>(
    handles: &BlockingContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AttemptError> {
    blocking_tasks::run_on_blocking_thread(handles, work).await.map_err(AttemptError::Internal)
}

/// Stores a generated image, so that its client can fetch it by URL.
async fn store_image(run: &mut FailoverRun<'_, '_>, image: &[u8]) -> Result<DeliveredImage, AttemptError> {
    let app = run.exchange.app;
    let images = run.exchange.config.settings.images;
    let account = &*run.exchange.principal.account.id;
    let kind = image::content_type(image);
    let label = NewImageMetadata {
        account,
        content_type: kind,
        now: app.clock.steady_now(),
        lifetime: images.lifetime,
    };
    let stored = app.image_cache.insert(&app.spools, image, label, images.max_total_bytes).await;
    // A full disk is not the provider's fault, and another provider would not help.
    let added = stored.map_err(|error| {
        AttemptError::Fault(UpstreamError::caller_error(crate::storage::files::io_to_api_error(&error)))
    })?;
    app.metrics.record_evicted_images(added.evicted.len());
    let expiry = app.clock.unix_seconds().saturating_add(images.lifetime.as_secs());
    if let Err(error) = app.image_cache.share_image(&added, image, expiry).await {
        // The image remains available at this gateway, so the request does not fail.
        tracing::warn!(name: "image_not_shared", id = run.exchange.id.as_str(), why = %error.kind());
    }
    Ok(DeliveredImage::Url(format!("{}{CONTENT_PATH_PREFIX}{}", run.exchange.public_url(), added.name)))
}

/// Fetches an image from its URL at the provider.
async fn fetch_image(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    url: &str,
    remaining_bytes: usize,
) -> Result<Bytes, AttemptError> {
    let provider = &offer.provider;
    let (route, path) = route(&provider.route, &provider.image_routes, url).ok_or_else(malformed)?;
    let own = std::ptr::eq(route, &provider.route);
    let head =
        image_request(route.base_url(), &path, own.then_some(&provider.provider)).map_err(|_| malformed())?;
    let timeouts = provider.provider.timeouts;
    let until = run.deadline.min(Instant::now() + timeouts.total);
    let mut stale_retries = 0;
    let answering = loop {
        let asked = {
            let exchange =
                pin!(send_image_request(route, head.clone(), timeouts.first_byte, remaining_bytes));
            run.watch
                .wait_for_work(
                    &mut run.exchange.caller,
                    exchange,
                    until.min(Instant::now() + timeouts.first_byte),
                )
                .await
        };
        match asked {
            WaitOutcome::Ready(Ok(answering)) => break answering,
            // The provider closed the idle connection while it was taken from the pool.
            WaitOutcome::Ready(Err((fault, true)))
                if fault.kind == UpstreamErrorKind::Reset && stale_retries < MAX_STALE_RETRIES =>
            {
                stale_retries += 1
            }
            WaitOutcome::Ready(Err((fault, _))) => return Err(fault.into()),
            outcome => {
                return Err(outcome.into_attempt_error(UpstreamErrorKind::FirstByteTimeout, run.deadline));
            }
        }
    };
    let mut answering = UpstreamResponse { until, ..answering };
    let due = Instant::now() + timeouts.idle;
    let (times, mut end) = ((due, timeouts.idle), StreamedBodyEnd::none());
    let image = buffered::read_complete_body(run, &mut answering, times, remaining_bytes, &mut end).await?;
    answering.exchange.return_to_pool().await;
    if image::is_image(&image) { Ok(image) } else { Err(malformed()) }
}

/// Returns the route to a URL, and its path, if the configuration allows the host.
fn route<'r>(
    own: &'r UpstreamRoute,
    others: &'r [UpstreamRoute],
    url: &str,
) -> Option<(&'r UpstreamRoute, String)> {
    if url.starts_with('/') && !url.starts_with("//") {
        let path: Uri = url.parse().ok()?;
        return Some((own, path.path_and_query()?.to_string()));
    }
    let url: Uri = url.parse().ok()?;
    let tls = match url.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let authority = url.authority()?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let leads = |route: &&UpstreamRoute| {
        let base = route.base_url();
        base.tls == tls && base.port == port && base.host.eq_ignore_ascii_case(host)
    };
    let plain = authority.as_str().find('@').is_none();
    let found = std::iter::once(own).chain(others).find(leads).filter(|_| plain)?;
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Some((found, path.to_owned()))
}

/// Builds the request. The credentials of a provider are sent to its own host only.
fn image_request(
    base: &BaseUrl,
    path: &str,
    own: Option<&Arc<Provider>>,
) -> pingora_error::Result<RequestHeader> {
    let mut head = match own {
        // A provider adapter uses the headers of the chat dialect.
        Some(provider) => request_head::authenticated_head("GET", provider, Dialect::Chat, path)?,
        None => request_head::unauthenticated_head("GET", base, path)?,
    };
    head.insert_header(header::ACCEPT, "image/*")?;
    Ok(head)
}

/// Sends the request. Any status other than 200 is an error, also a redirect. The error comes with true if a pooled
/// connection was reset, so that the request can be retried on another connection.
async fn send_image_request(
    route: &UpstreamRoute,
    head: RequestHeader,
    wait: Duration,
    cap: usize,
) -> Result<UpstreamResponse, (UpstreamError, bool)> {
    let mut upstream = route.connect().await.map_err(|fault| (fault, false))?;
    let reused = upstream.reused;
    let reset = || (UpstreamError::new(UpstreamErrorKind::Reset), reused);
    let malformed = || (UpstreamError::new(UpstreamErrorKind::Malformed), false);
    upstream.set_read_timeout(wait);
    let status = upstream.send_for_status(head, Bytes::new()).await.map_err(|_| reset())?;
    if status != 200 {
        return Err(malformed());
    }
    let encoding = upstream.header("content-encoding").unwrap_or_default();
    let decoder = ContentDecoder::new(encoding, cap).map_err(|_| malformed())?;
    Ok(UpstreamResponse { exchange: upstream, decoder, until: Instant::now() })
}
