//! Earlier processes of upgrades that still drain.

use super::AppState;
use crate::upgrade::new_process::Predecessor;

impl AppState {
    /// Registers an earlier process that still drains.
    pub fn add_predecessor(&self, predecessor: Predecessor) {
        self.predecessors.lock().push(predecessor);
    }

    /// Removes an earlier process that has ended.
    pub fn remove_predecessor(&self, predecessor: &Predecessor) {
        self.predecessors.lock().retain(|known| !known.is_same(predecessor));
        self.lifecycle.notify_drain_waiters();
    }

    /// Reports a changed key to the processes that still drain.
    pub fn notify_key_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.report_key_change(id));
    }

    /// Reports a changed account to the processes that still drain.
    pub fn notify_account_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.report_account_change(id));
    }

    /// Waits until no exchange of this process (request of a client or line of a batch) is in flight, and every earlier
    /// process has ended.
    pub async fn wait_until_drained(&self) {
        loop {
            let emptied = self.lifecycle.drained_signal().notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.in_flight_exchanges() == 0 && self.predecessors.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}
