//! Fleet of a process that shares its store with no other.

use super::{Fleet, FleetError, HeartbeatReport, PeerIncarnation, PoolAmount, PoolRequest, Strand};

/// Fleet without peers: every wanted amount is granted, and nothing is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoloFleet;

impl Fleet for SoloFleet {
    fn join(&self, _name: &str) -> Result<Strand, FleetError> {
        Ok(Strand { id: 0, beat: 0 })
    }

    fn heartbeat(&self, strand: Strand, _report: &HeartbeatReport) -> Result<Strand, FleetError> {
        Ok(Strand { beat: strand.beat.saturating_add(1), ..strand })
    }

    fn draw(&self, _strand: Strand, request: &PoolRequest) -> Result<i64, FleetError> {
        Ok(request.wanted.max(0))
    }

    fn parts(&self, _strand: Strand) -> Result<Vec<PoolAmount>, FleetError> {
        Ok(Vec::new())
    }

    fn peers(&self) -> Result<Vec<PeerIncarnation>, FleetError> {
        Ok(Vec::new())
    }

    fn bury(&self, _peer: &PeerIncarnation) -> Result<bool, FleetError> {
        Ok(false)
    }
}
