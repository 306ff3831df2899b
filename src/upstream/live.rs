//! One provider while the house runs: its route, its seats, its last word.

use super::connect::{Pools, Route};
use crate::config::settings::Provider;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// A provider and its state.
pub struct ProviderLive {
    /// What the configuration says.
    pub provider: Arc<Provider>,
    /// The way to it.
    pub route: Route,
    /// Ways to where else its images are.
    pub image_routes: Vec<Route>,
    /// Its last failure: when, and the name of its kind.
    pub last_error: Mutex<Option<(Duration, &'static str)>>,
    /// What the last active check found; `None` before the first.
    pub checked: Mutex<Option<bool>>,
    pub(super) next_check: Mutex<Duration>,
    working: AtomicU32,
    freed: Arc<Notify>,
}

impl ProviderLive {
    /// A provider without a past. `freed` is told whenever a seat is given back.
    #[must_use]
    pub fn new(provider: Arc<Provider>, pools: &Pools, freed: Arc<Notify>) -> Self {
        Self {
            route: Route::new(&provider, pools),
            image_routes: provider.image_hosts.iter().map(|base| Route::to(base, &provider, pools)).collect(),
            provider,
            last_error: Mutex::new(None),
            checked: Mutex::new(None),
            next_check: Mutex::new(Duration::ZERO),
            working: AtomicU32::new(0),
            freed,
        }
    }

    /// Requests that it is working on.
    pub fn working(&self) -> u32 {
        self.working.load(Ordering::Relaxed)
    }

    /// Takes a seat below `limit`; without a limit there is always one.
    pub(super) fn take_seat(&self, limit: Option<u32>) -> bool {
        let room = |working: u32| limit.is_none_or(|limit| working < limit).then_some(working + 1);
        self.working.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn free_seat(&self) {
        self.working.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_waiters();
    }
}
