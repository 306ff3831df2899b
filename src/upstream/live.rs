//! One provider while the house runs: its route, its seats, its last word.

use super::connect::Route;
use super::pools::Pools;
use super::seats::Seats;
use crate::config::settings::Provider;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A provider and its state.
pub struct ProviderLive {
    /// What the configuration says.
    pub provider: Arc<Provider>,
    /// The way to it.
    pub route: Route,
    /// Ways to where else its images are.
    pub image_routes: Vec<Route>,
    /// Its last failure: when, and the name of its kind.
    pub last_error: Arc<Mutex<Option<(Duration, &'static str)>>>,
    /// What the last active check found; `None` before the first.
    pub checked: Arc<Mutex<Option<bool>>>,
    pub(super) next_check: Mutex<Duration>,
    /// Its seats.
    pub seats: Arc<Seats>,
}

impl ProviderLive {
    /// A provider, and what the configuration before knows of it; `lines` bounds lines of batches where it has no
    /// number of seats. What still works for the old one has its seats here too.
    #[must_use]
    pub fn new(provider: Arc<Provider>, pools: &Pools, lines: usize, old: &[Arc<Self>]) -> Self {
        let known = old.iter().find(|known| known.provider.id == provider.id);
        let seats = match known {
            Some(known) => known.seats.clone(),
            None => Seats::new(provider.seats, lines),
        };
        let fresh = Self {
            route: Route::new(&provider, pools),
            image_routes: provider.image_hosts.iter().map(|base| Route::to(base, &provider, pools)).collect(),
            seats,
            last_error: known.map(|known| known.last_error.clone()).unwrap_or_default(),
            checked: known.map(|known| known.checked.clone()).unwrap_or_default(),
            next_check: Mutex::new(Duration::ZERO),
            provider,
        };
        for route in fresh.routes() {
            old.iter().flat_map(|old| old.routes()).for_each(|old| route.follow(&fresh.provider, old));
        }
        fresh
    }

    /// The way to it, and those to its images.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        std::iter::once(&self.route).chain(&self.image_routes)
    }

    /// Looks its names up.
    pub async fn resolve(&self) {
        for route in self.routes() {
            route.resolve(&self.provider).await;
        }
    }

    /// Requests that it is working on.
    pub fn working(&self) -> u32 {
        self.seats.working()
    }
}
