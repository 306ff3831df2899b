//! Heartbeats from the time at which a process joins until its background tasks send them. A start may take long, and
//! without heartbeats the other members would evict this one. A command that uses the store needs these heartbeats
//! for as long as it runs.

use super::FleetMember;
use penstock_storage::fleet::{FleetError, HeartbeatReport};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Interval of the heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);

impl FleetMember {
    /// Starts a thread that sends heartbeats without a report until the first [`FleetMember::write_heartbeat`]. Does
    /// nothing without a fleet.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the thread cannot be started.
    pub fn start_heartbeat(self: &Arc<Self>) -> Result<(), String> {
        if !self.has_fleet() {
            return Ok(());
        }
        let member = Arc::downgrade(self);
        let thread = Builder::new().name("fleet".to_owned()).spawn(move || send_heartbeats(&member));
        thread.map(drop).map_err(|error| format!("The heartbeats of the fleet cannot be started: {error}."))
    }
}

/// Sends heartbeats until the background tasks do, the member is evicted, or the member is dropped.
fn send_heartbeats(member: &Weak<FleetMember>) {
    loop {
        std::thread::sleep(INTERVAL);
        let Some(fleet) = member.upgrade() else { return };
        let Some(shared) = &fleet.0 else { return };
        let is_over =
            || shared.has_reported.load(Ordering::Acquire) || shared.evicted.load(Ordering::Acquire);
        if is_over() {
            return;
        }
        let sent = Instant::now();
        match shared.heartbeat(HeartbeatReport::default()) {
            Ok(()) => shared.term.lock().renew(shared.elapsed(sent)),
            Err(FleetError::Evicted) => shared.evicted.store(true, Ordering::Release),
            // The next heartbeat shows if the store answers again.
            Err(FleetError::Store(_)) => {}
        }
    }
}
