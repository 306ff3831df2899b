//! Generated images: they are embedded in the response, or stored under an address of the gateway. An address of a
//! provider never reaches a client. Images are fetched only from hosts that the configuration names; of the provider's
//! address only the path is used.

use super::attempt::{Answering, Stop};
use super::wait::Woken;
use super::{Run, buffered};
use crate::config::settings::{BaseUrl, Provider};
use crate::storage::image_cache::Label;
use crate::telemetry::off_thread::{self, BlockingHandles};
use crate::upstream::connect::Route;
use crate::upstream::content_encoding::Decoder;
use crate::upstream::offer::OfferLive;
use crate::upstream::request_head;
use crate::upstream::upstream_exchange::STALE;
use bytes::Bytes;
use http::{Uri, header};
use penstock_contract::{Dialect, Draw, Fault, FaultKind, Picture, PictureSource, Whole};
use penstock_limits::Work;
use penstock_media::picture::{self, Shown};
use pingora_http::RequestHeader;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Path of stored images below the host.
pub const CONTENT: &str = "/v1/images/content/";

/// Number of images.
pub fn count(whole: &Whole) -> u32 {
    u32::try_from(whole.pictures.len()).unwrap_or(u32::MAX)
}

/// Builds the response body, without the objects of the settlement.
pub async fn finish(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    draw: &Draw,
    pictures: Vec<Picture>,
    created: u64,
) -> Result<Vec<Bytes>, Stop> {
    let mut room = run.x.live.settings.limits.response_buffer;
    // The response of a batch is read after an address has expired.
    let inside = draw.base64 || run.x.work == Work::BatchLine;
    let mut shown = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let image = match (picture.source, inside) {
            (PictureSource::Base64(text), true) => Shown::Inside(text),
            (PictureSource::Base64(text), false) => {
                let image = off_thread(&run.x.house.blocking, move || picture::decode(&text))
                    .await?
                    .ok_or_else(malformed)?;
                keep(run, &image).await?
            }
            (PictureSource::Url(url), inside) => {
                let image = fetch(run, offer, &url, room).await?;
                room = room.saturating_sub(image.len());
                if inside {
                    Shown::Inside(off_thread(&run.x.house.blocking, move || picture::encode(&image)).await?)
                } else {
                    keep(run, &image).await?
                }
            }
        };
        shown.push((image, picture.revised_prompt));
    }
    Ok(picture::answer(created, shown))
}

fn malformed() -> Stop {
    Stop::Fault(Fault::new(FaultKind::Malformed))
}

/// Converts megabytes on a thread outside the async runtime.
async fn off_thread<T: Send + 'static>(
    handles: &BlockingHandles,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stop> {
    off_thread::off_thread(handles, work).await.map_err(Stop::Own)
}

/// Stores an image for its client.
async fn keep(run: &mut Run<'_, '_>, image: &[u8]) -> Result<Shown, Stop> {
    let house = run.x.house;
    let images = run.x.live.settings.images;
    let account = &*run.x.grant.account.id;
    let kind = picture::content_type(image);
    let label = Label { account, kind, now: house.clock.now(), life: images.lifetime };
    let kept = house.shelf.put(&house.spools, image, label, images.keep).await;
    // A full disk is not the provider's fault, and another provider would not help.
    let (name, gone) =
        kept.map_err(|error| Stop::Fault(Fault::caller(crate::storage::files::disk(&error))))?;
    house.metrics.images_gone(gone);
    Ok(Shown::At(format!("{}{CONTENT}{name}", run.x.public_url())))
}

/// Fetches an image from the address of its provider.
async fn fetch(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, url: &str, room: usize) -> Result<Bytes, Stop> {
    let provider = &offer.provider;
    let (route, path) = route(&provider.route, &provider.image_routes, url).ok_or_else(malformed)?;
    let own = std::ptr::eq(route, &provider.route);
    let head = request(route.base(), &path, own.then_some(&provider.provider)).map_err(|_| malformed())?;
    let timeouts = provider.provider.timeouts;
    let until = run.deadline.min(Instant::now() + timeouts.total);
    let mut stale = 0;
    let answering = loop {
        let asked = {
            let exchange = pin!(ask(route, head.clone(), timeouts.first_byte, room));
            run.watch.race(&mut run.x.caller, exchange, until.min(Instant::now() + timeouts.first_byte)).await
        };
        match asked {
            Woken::Done(Ok(answering)) => break answering,
            // The provider closed the idle connection while it was taken from the pool.
            Woken::Done(Err((fault, true))) if fault.kind == FaultKind::Reset && stale < STALE => stale += 1,
            Woken::Done(Err((fault, _))) => return Err(fault.into()),
            woken => return Err(woken.stop(FaultKind::FirstByte, run.deadline)),
        }
    };
    let mut answering = Answering { until, ..answering };
    let due = Instant::now() + timeouts.idle;
    let image = buffered::whole(run, &mut answering, (due, timeouts.idle), room).await?;
    answering.way.release().await;
    if image.is_empty() { Err(malformed()) } else { Ok(image) }
}

/// Returns the route to an address, and its path, if the configuration allows the host.
fn route<'r>(own: &'r Route, others: &'r [Route], url: &str) -> Option<(&'r Route, String)> {
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
    let leads = |route: &&Route| {
        let base = route.base();
        base.tls == tls && base.port == port && base.host.eq_ignore_ascii_case(host)
    };
    let plain = authority.as_str().find('@').is_none();
    let found = std::iter::once(own).chain(others).find(leads).filter(|_| plain)?;
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Some((found, path.to_owned()))
}

/// Builds the request. The credentials of a provider go to its own host only.
fn request(base: &BaseUrl, path: &str, own: Option<&Arc<Provider>>) -> pingora_error::Result<RequestHeader> {
    let mut head = match own {
        // Shapes use the headers of the chat dialect.
        Some(provider) => request_head::signed("GET", provider, Dialect::Chat, path)?,
        None => request_head::bare("GET", base, path)?,
    };
    head.insert_header(header::ACCEPT, "image/*")?;
    Ok(head)
}

/// Sends the request; any status other than 200, a redirect too, is a fault. An error comes with true if the connection
/// was from the pool.
async fn ask(
    route: &Route,
    head: RequestHeader,
    wait: Duration,
    cap: usize,
) -> Result<Answering, (Fault, bool)> {
    let mut way = route.open().await.map_err(|fault| (fault, false))?;
    let reused = way.reused;
    let reset = || (Fault::new(FaultKind::Reset), reused);
    let malformed = || (Fault::new(FaultKind::Malformed), false);
    way.wait(wait);
    let status = way.ask(head, Bytes::new()).await.map_err(|_| reset())?;
    if status != 200 {
        return Err(malformed());
    }
    let encoding = way.field("content-encoding").unwrap_or_default();
    let decoder = Decoder::new(encoding, cap).map_err(|_| malformed())?;
    Ok(Answering { way, decoder, until: Instant::now() })
}
