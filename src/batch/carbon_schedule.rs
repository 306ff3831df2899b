//! Start time of a batch, chosen by the carbon forecast of the grid zones of the model's providers.

use super::runner::BatchRunner;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::ConfigSnapshot;
use penstock_batch::carbon_forecast::{GridZone, StartPlan, plan_start};
use penstock_batch::state::LifecycleState;
use penstock_storage::batches::BatchRecord;
use std::time::Duration;

/// Assumed duration of a line of a model without latency data, in seconds.
const DEFAULT_LINE_SECONDS: f64 = 5.0;
/// Shortest assumed duration of a batch, in seconds.
const MIN_BATCH_SECONDS: u64 = 600;

/// Returns the planned start of a batch with this number of lines. `None` if it should start now, or if the carbon
/// intensity of an immediate run is unknown: no provider of the model has a zone with values, or a zone has neither a
/// forecast nor a typical value for an hour of the run.
pub fn plan_batch_start(
    live: &ConfigSnapshot,
    record: &BatchRecord,
    lines: u32,
    clock: ProcessClock,
) -> Option<StartPlan> {
    let grid = &live.settings.grid;
    if grid.zones.is_empty() {
        return None;
    }
    let (name, _) = penstock_routing::split_flavor(record.model.as_deref()?);
    let model = live.model(&live.catalog.resolve(name)?.id)?;
    let mut zones: Vec<&GridZone> = Vec::new();
    for offer in model.offers.iter().filter_map(|index| live.offers.get(*index)) {
        let provider = &offer.offer.provider;
        let own = grid.zones.get(&*provider.id);
        zones.extend(own.or_else(|| grid.zones.get(&*provider.location.code)));
    }
    let latency = model
        .hourly_stats
        .lock()
        .summary(clock.steady_now())
        .latency
        .unwrap_or(DEFAULT_LINE_SECONDS)
        .clamp(0.05, 600.0);
    let at_once = live.settings.batches.concurrency.max(1) as f64;
    let takes =
        Duration::from_secs_f64(f64::from(lines) * latency / at_once).as_secs().max(MIN_BATCH_SECONDS);
    // At the latest start, twice the estimated duration is left. Half of it is reserved for errors and retries.
    let latest = record.expires.saturating_sub(takes.saturating_mul(2));
    let now = clock.unix_seconds();
    plan_start(&zones, now, latest, takes, grid.saving).filter(|plan| plan.start > now)
}

impl BatchRunner {
    /// Removes the later start of a batch if the configuration no longer has values of any grid zone, so that its lines
    /// start now. Does nothing while a group of results or a record is being written.
    pub(super) fn drop_obsolete_schedule(&mut self) {
        let waits = self.record.scheduled.is_some_and(|start| start > self.app.clock.unix_seconds());
        if waits
            && self.lifecycle.state == LifecycleState::InProgress
            && self.shutdown.reason.is_none()
            && !self.disk.writing
            && self.app.config_snapshot().settings.grid.zones.is_empty()
        {
            self.record.scheduled = None;
            self.commit_record();
        }
    }
}
