//! Fleet of a process that is the only user of its store.

use super::{Fleet, FleetError, HeartbeatReport, Incarnation, PeerIncarnation, PoolAmount, PoolRequest};

/// Fleet without peers: every wanted amount is granted, and nothing is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoloFleet;

impl Fleet for SoloFleet {
    fn join(&self, _name: &str) -> Result<Incarnation, FleetError> {
        Ok(Incarnation { id: 0, beat: 0 })
    }

    fn heartbeat(
        &self,
        incarnation: Incarnation,
        _report: &HeartbeatReport,
    ) -> Result<Incarnation, FleetError> {
        Ok(Incarnation { beat: incarnation.beat.saturating_add(1), ..incarnation })
    }

    fn draw_from_pool(&self, _incarnation: Incarnation, request: &PoolRequest) -> Result<i64, FleetError> {
        Ok(request.wanted.max(0))
    }

    fn pool_parts(&self, _incarnation: Incarnation) -> Result<Vec<PoolAmount>, FleetError> {
        Ok(Vec::new())
    }

    fn incarnations(&self) -> Result<Vec<PeerIncarnation>, FleetError> {
        Ok(Vec::new())
    }

    fn evict(&self, _peer: &PeerIncarnation) -> Result<bool, FleetError> {
        Ok(false)
    }
}
