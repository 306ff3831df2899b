//! Scheduled backups, made while requests are served.

use crate::backup::BackupReport;
use crate::backup::rotation::ExportJob;
use crate::state::AppState;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes a backup if one is due.
pub async fn export_if_due(app: &Arc<AppState>) {
    let now = app.clock.unix_seconds();
    let every = app.config_snapshot().settings.exports.every;
    // In a fleet, only the leader makes the archives.
    if app.is_draining()
        || !app.stores.fleet.is_leader()
        || !every.is_some_and(|every| app.backup_state.is_due(now, every))
    {
        return;
    }
    let (begun, own) = (Instant::now(), app.clone());
    let saved = tokio::task::spawn_blocking(move || run_export(&own)).await;
    let saved = saved.unwrap_or_else(|_| Err("Its thread ended.".to_owned()));
    record_result(app, saved, begun.elapsed());
}

fn run_export(app: &AppState) -> Result<BackupReport, String> {
    let live = app.config_snapshot();
    let settings = &live.settings;
    ExportJob {
        data_paths: app.backup_state.data_paths.clone(),
        store: app.stores.store.clone(),
        folder: app.backup_state.folder().to_owned(),
        max_archives: settings.exports.keep,
        min_free_bytes: settings.files.keep_free,
        now: app.clock.unix_seconds(),
        stop: &|| app.is_draining(),
    }
    .run()
}

fn record_result(app: &AppState, saved: Result<BackupReport, String>, took: Duration) {
    let now = app.clock.unix_seconds();
    let good = saved.is_ok();
    match saved {
        Ok(saved) => {
            app.backup_state.set_finished(now);
            let number = |number: u64| number.to_string();
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let (rows, files, bytes) = (number(saved.rows), number(saved.files), number(saved.bytes));
            tracing::info!(name: "exported", rows, files, bytes, ms = number(milliseconds));
        }
        // The export was interrupted because the gateway stops. It is not retried and does not count as a failure.
        Err(_) if app.is_draining() => return,
        Err(why) => {
            app.backup_state.set_failed(now);
            tracing::error!(name: "export_failed", why);
        }
    }
    app.metrics.count_backup(good);
}
