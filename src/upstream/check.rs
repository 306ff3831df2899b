//! Active checks: a cheap request on the side, so that a provider which is back
//! is found without risking a client's request, and one that is gone is left.

use super::aside;
use super::http1::Broken;
use super::live::ProviderLive;
use crate::config::settings::Health;
use crate::house::House;
use crate::observe::log;
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_contract::{Dialect, FaultKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What to do where a check fails.
const REMEDY: &str = "Check the provider's status, its `api_key`, and `health.path`.";

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
            let found = timeout(health.timeout, answers(&provider, &health)).await;
            let found = found.unwrap_or(Err(FaultKind::Deadline));
            // Nobody was asked: that says nothing of it.
            if found == Err(FaultKind::Descriptors) {
                return;
            }
            let (now, good) = (house.clock.now(), found.is_ok());
            if note(&provider.checked, &provider.last_error, now, found) {
                tell(&provider.provider.id, found);
            }
            for offer in live.offers_of(provider.provider.index) {
                offer.breaker.lock().on_check(now, good);
            }
            house.metrics.checked(&provider.provider.id, good);
        });
    }
}

/// Keeps what a check found; whether that is news.
fn note(
    checked: &Mutex<Option<bool>>,
    last_error: &Mutex<Option<(Duration, &'static str)>>,
    now: Duration,
    found: Result<(), FaultKind>,
) -> bool {
    if let Err(kind) = found {
        *last_error.lock() = Some((now, kind.name()));
    }
    let before = checked.lock().replace(found.is_ok());
    // A first check that is good is no news.
    before.unwrap_or(true) != found.is_ok()
}

/// The kind only: an address may hold a secret.
fn tell(provider: &str, found: Result<(), FaultKind>) {
    match found {
        Ok(()) => log::event(log::info(), "check_good", &[("provider", provider)]),
        Err(kind) => {
            let members = [("provider", provider), ("kind", kind.name()), ("remedy", REMEDY)];
            log::event(log::error(), "check_bad", &members);
        }
    }
}

/// What a status says of a provider.
const fn judged(status: u16) -> Result<(), FaultKind> {
    match status {
        ..=399 => Ok(()),
        401 | 403 | 404 => Err(FaultKind::Credentials(status)),
        _ => Err(FaultKind::Status(status)),
    }
}

/// Whether `GET base + path` answers below 400, or how it fails.
async fn answers(provider: &ProviderLive, health: &Health) -> Result<(), FaultKind> {
    let settings = &provider.provider;
    let path = format!("{}{}", settings.base.path_prefix, health.path);
    let dialect = settings.dialects.first().copied().unwrap_or(Dialect::Chat);
    let head = aside::signed("GET", settings, dialect, &path).map_err(|_| FaultKind::Malformed)?;
    let mut way = provider.route.open().await.map_err(|fault| fault.kind)?;
    way.wait(health.timeout);
    let found = match way.ask(head, Bytes::new()).await {
        Ok(status) => judged(status),
        Err(Broken::Malformed) => Err(FaultKind::Malformed),
        Err(Broken::Gone | Broken::Unasked) => Err(FaultKind::Reset),
    };
    // A short body is read so that the connection can serve a request.
    let mut read = 0;
    while let Ok(Some(piece)) = way.read_body().await {
        read += piece.len();
        if read > 256 * 1024 {
            return found;
        }
    }
    if found.is_ok() {
        way.release().await;
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_bad_leaves_its_kind_and_is_news_once() {
        let (checked, last_error) = (Mutex::new(None), Mutex::new(None));
        let at = Duration::from_secs;
        assert!(!note(&checked, &last_error, at(1), judged(200)));
        assert!(note(&checked, &last_error, at(2), judged(503)));
        assert!(!note(&checked, &last_error, at(3), judged(401)));
        assert_eq!((*checked.lock(), *last_error.lock()), (Some(false), Some((at(3), "credentials"))));
        assert!(note(&checked, &last_error, at(4), judged(204)));
        assert_eq!(*last_error.lock(), Some((at(3), "credentials")), "it stays the last one");
    }
}
