//! Background task that builds the usage rollups of ended days.

use crate::billing::rollups::days::build_days;
use crate::state::AppState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Builds the rollups of the days that have ended, on one gateway of a fleet. Failures are logged once, until a build
/// succeeds: usage is added up from the rollups of hours meanwhile.
pub async fn build_ended_days(app: &Arc<AppState>, is_failure_logged: &AtomicBool) {
    if !app.stores.fleet.is_leader() || app.is_store_handed_over() {
        return;
    }
    let (state, now) = (app.clone(), app.clock.unix_seconds());
    let id = format!("{:032x}", rand::random::<u128>());
    match tokio::task::spawn_blocking(move || build_days(&state.ledger.store, now, id)).await {
        Ok(Ok(built)) => {
            is_failure_logged.store(false, Ordering::Relaxed);
            if let Some(built) = built.filter(|built| built.rows > 0) {
                tracing::info!(name: "usage_days_built", days = %built.days, rollups = %built.rows);
            }
        }
        Ok(Err(error)) => {
            if !is_failure_logged.swap(true, Ordering::Relaxed) {
                tracing::warn!(name: "usage_days_not_built", why = %error);
            }
        }
        // The work panicked, or the process ends.
        Err(_) => {}
    }
}
