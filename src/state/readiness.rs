//! Readiness of the gateway, for `/readyz`, `/status` and the metrics, and the interruption of its requests at the end
//! of the drain.

use super::AppState;
use penstock_storage::StoreHealth;

impl AppState {
    /// Returns the reason why the gateway accepts no requests, if there is one. Unhealthy providers are not a reason: all
    /// gateways use the same providers, so taking this gateway out of its load balancer would not help.
    pub fn not_ready_reason(&self) -> Option<&'static str> {
        if self.is_draining() {
            return Some("draining");
        }
        if !self.is_serving() {
            return Some("starting");
        }
        match self.stores.store.health() {
            // An unreachable database does not make the gateway unready: all gateways that share the database would leave
            // their load balancer at once, although they can still serve requests.
            StoreHealth::Ready | StoreHealth::Full | StoreHealth::Unreachable { .. } => {}
            StoreHealth::Stuck { .. } => return Some("the store is stuck"),
            StoreHealth::Failed => return Some("the store failed"),
            StoreHealth::Reverted => {}
        }
        if let Some(reason) = self.forced_restart_reason() {
            return Some(reason);
        }
        if !self.key_cache.is_current() {
            return Some("the database has been away for longer than fleet.stale, so no API key is accepted");
        }
        if self.ledger.durability_snapshot().exhausted {
            return Some("charges cannot be written, and no more may wait");
        }
        None
    }

    /// Interrupts the requests in flight. Requests that begin to wait later are interrupted by the next call.
    pub fn interrupt_requests(&self) {
        self.lifecycle.start_interrupting();
        self.key_cache.interrupt_requests();
    }

    /// Returns true once requests in flight are interrupted, because the time to drain is over.
    pub fn is_interrupting(&self) -> bool {
        self.lifecycle.is_interrupting()
    }
}
