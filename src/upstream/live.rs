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
    pub last_error: Mutex<Option<(Duration, &'static str)>>,
    /// What the last active check found; `None` before the first.
    pub checked: Mutex<Option<bool>>,
    pub(super) next_check: Mutex<Duration>,
    /// Its seats.
    pub seats: Arc<Seats>,
}

impl ProviderLive {
    /// A provider without a past; `lines` bounds lines of batches where it has no number of seats.
    #[must_use]
    pub fn new(provider: Arc<Provider>, pools: &Pools, lines: usize) -> Self {
        Self {
            route: Route::new(&provider, pools),
            image_routes: provider.image_hosts.iter().map(|base| Route::to(base, &provider, pools)).collect(),
            seats: Seats::new(provider.seats, lines),
            provider,
            last_error: Mutex::new(None),
            checked: Mutex::new(None),
            next_check: Mutex::new(Duration::ZERO),
        }
    }

    /// Requests that it is working on.
    pub fn working(&self) -> u32 {
        self.seats.working()
    }
}
