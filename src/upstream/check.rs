//! Active checks: a cheap request on the side, so that a provider which is back
//! is found without risking a client's request, and one that is gone is left.

use super::live::ProviderLive;
use crate::config::settings::Health;
use crate::house::House;
use bytes::Bytes;
use http::header;
use pingora_http::RequestHeader;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Starts every check that is due; does not wait for any.
pub async fn due(house: &Arc<House>) {
    let live = house.live();
    let now = house.clock.now();
    for provider in &live.providers {
        let Some(health) = provider.provider.health.clone() else { continue };
        if !provider.check_due(now, health.interval) {
            continue;
        }
        let (house, live, provider) = (house.clone(), live.clone(), provider.clone());
        tokio::spawn(async move {
            let good = timeout(health.timeout, answers(&provider, &health)).await.unwrap_or(false);
            let now = house.clock.now();
            *provider.checked.lock() = Some(good);
            for offer in live.offers.iter().filter(|offer| Arc::ptr_eq(&offer.provider, &provider)) {
                offer.breaker.lock().on_check(now, good);
            }
            house.metrics.checked(&provider.provider.id, good);
        });
    }
}

/// Whether `GET base + path` answers below 400.
async fn answers(provider: &ProviderLive, health: &Health) -> bool {
    let base = &provider.provider.base;
    let path = format!("{}{}", base.path_prefix, health.path);
    let Ok(mut head) = RequestHeader::build("GET", path.as_bytes(), Some(4)) else { return false };
    let mut headers = vec![(header::HOST, base.authority.to_string())];
    headers.push((header::ACCEPT_ENCODING, "identity".to_owned()));
    if let Some(key) = &provider.provider.api_key {
        headers.push((header::AUTHORIZATION, format!("Bearer {}", key.reveal())));
    }
    for (name, value) in headers {
        if head.insert_header(name, value).is_err() {
            return false;
        }
    }
    let Ok(mut way) = provider.route.open().await else { return false };
    way.wait(health.timeout);
    let good = way.ask(head, Bytes::new()).await.is_ok_and(|status| status < 400);
    // A short body is read so that the connection can serve a request.
    let mut read = 0;
    while let Ok(Some(piece)) = way.read_body().await {
        read += piece.len();
        if read > 256 * 1024 {
            return good;
        }
    }
    if good {
        way.release().await;
    }
    good
}

impl ProviderLive {
    /// Whether a check is due; if so, the next is due one interval later.
    fn check_due(&self, now: Duration, interval: Duration) -> bool {
        let mut next = self.next_check.lock();
        if now < *next {
            return false;
        }
        *next = now + interval;
        true
    }
}
