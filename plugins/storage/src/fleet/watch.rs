//! Detection of dead incarnations by the observer's own monotonic clock, without I/O: times are arguments.

use std::collections::HashMap;
use std::time::Duration;

use super::PeerIncarnation;

/// Observer of the heartbeats of other processes.
#[derive(Debug)]
pub struct PeerWatch {
    dead_after: Duration,
    /// Last seen beat of each incarnation, and the time at which this beat was first seen.
    seen: HashMap<u32, (i64, Duration)>,
}

impl PeerWatch {
    /// Creates an observer for which an incarnation is dead after `dead_after` without a change of its beat.
    #[must_use]
    pub fn new(dead_after: Duration) -> PeerWatch {
        PeerWatch { dead_after, seen: HashMap::new() }
    }

    /// Records the beats of the peers, which were read at `now`. Returns the peers that count as dead, and those whose
    /// eviction was not completed.
    pub fn observe_and_find_dead(
        &mut self,
        own: u32,
        peers: &[PeerIncarnation],
        now: Duration,
    ) -> Vec<PeerIncarnation> {
        self.seen.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        let mut dead = Vec::new();
        for peer in peers.iter().filter(|peer| peer.id != own) {
            let (beat, since) = self.seen.entry(peer.id).or_insert((peer.beat, now));
            if *beat != peer.beat {
                (*beat, *since) = (peer.beat, now);
            }
            if peer.name.is_none() || now.saturating_sub(*since) > self.dead_after {
                dead.push(peer.clone());
            }
        }
        dead
    }

    /// Forgets all beats. Call it after the connection to the store was lost, because beats may have changed unseen
    /// in the meantime.
    pub fn reset(&mut self) {
        self.seen.clear();
    }
}

/// Period during which an incarnation may spend its parts without a call of the store.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTerm {
    dead_after: Duration,
    /// Time at which the last successful heartbeat or join was sent; `None` before the first one.
    sent: Option<Duration>,
}

impl LeaseTerm {
    /// Creates the term of an incarnation that other processes evict if its beat is unchanged for `dead_after`. The
    /// term starts with the first call of `renew`.
    #[must_use]
    pub const fn new(dead_after: Duration) -> LeaseTerm {
        LeaseTerm { dead_after, sent: None }
    }

    /// Renews the term after a successful heartbeat or join that was sent at `sent`.
    pub fn renew(&mut self, sent: Duration) {
        self.sent = Some(sent);
    }

    /// Returns true if the parts may be spent at `now`: the term lasts three quarters of `dead_after`, so it ends
    /// before other processes may evict the incarnation.
    #[must_use]
    pub fn is_valid(&self, now: Duration) -> bool {
        let term = self.dead_after.saturating_sub(self.dead_after / 4);
        self.sent.is_some_and(|sent| now.saturating_sub(sent) < term)
    }
}
