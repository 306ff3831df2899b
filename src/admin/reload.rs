//! Reload of the configuration: on an admin request, on a signal, or when its files change.

use super::openapi::response_schema;
use super::routes::{AdminRoute, RouteHandler};
use crate::config::ConfigLoader;
use crate::config::{ConfigChange, Diagnostic, Diagnostics};
use crate::state::AppState;
use crate::telemetry::log;
use penstock_core::{ApiError, ErrorCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Routes of the reload.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::post(
    "/admin/reload",
    "reload",
    "Reloads the configuration from its files",
    RouteHandler::Runtime(|app, source, _| Box::pin(handle_reload(app, source))),
)
.with_response(200, || response_schema(&["config", "changes", "more_changes", "next_start", "warnings"]))];

/// Maximum number of changes in a response; further ones are only counted.
const MAX_LISTED: usize = 200;
/// Maximum number of changes in a log event.
const MAX_LOGGED: usize = 20;

async fn handle_reload(app: &Arc<AppState>, source: &ConfigLoader) -> Result<Value, ApiError> {
    let ReloadOutcome { version, changes, next_start: waiting, warnings } = reload(app, source)
        .await
        .map_err(|refusal| ApiError::with_message(ErrorCode::InvalidRequest, refusal.message))?;
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let more = changes.len().saturating_sub(MAX_LISTED);
    let changes = changes.iter().take(MAX_LISTED);
    let changes: Vec<Value> =
        changes.map(|change| json!({ "key": change.key, "old": change.old, "new": change.new })).collect();
    Ok(json!({
        "config": version,
        "changes": changes,
        "more_changes": more,
        "next_start": waiting,
        "warnings": warnings,
    }))
}

/// Result of a reload.
pub struct ReloadOutcome {
    version: String,
    /// Configuration keys whose values the reload changed, with old and new value.
    changes: Vec<ConfigChange>,
    /// Changed settings that take effect only at the next start.
    next_start: Vec<&'static str>,
    /// Warnings about the configuration.
    warnings: Vec<Diagnostic>,
}

/// Reason why a reload was refused.
pub struct ReloadError {
    /// Every mistake, for the person who reloads.
    message: String,
    /// The same for the log, without addresses of providers.
    log_text: String,
}

impl ReloadError {
    fn from_mistakes(report: &Diagnostics) -> Self {
        const CONSEQUENCE: &str = "the old configuration stays active";
        Self {
            message: report.format_mistakes(CONSEQUENCE),
            log_text: report.format_mistakes_for_log(CONSEQUENCE),
        }
    }
}

impl From<String> for ReloadError {
    fn from(message: String) -> Self {
        Self { log_text: message.clone(), message }
    }
}

/// Reloads the configuration. After an error, the old configuration stays active.
///
/// # Errors
/// Returns every mistake in the new configuration.
pub async fn reload(app: &Arc<AppState>, source: &ConfigLoader) -> Result<ReloadOutcome, ReloadError> {
    let (loader, state) = (source.clone(), app.clone());
    let runtime = tokio::runtime::Handle::current();
    let swap = move || {
        let mut warnings = Vec::new();
        let read = || {
            let loaded = loader().map_err(|report| ReloadError::from_mistakes(&report))?;
            warnings = loaded.warnings;
            Ok::<_, ReloadError>(loaded.settings)
        };
        state.reload(read, &runtime).map(|changes| (changes, warnings))
    };
    let swapped = tokio::task::spawn_blocking(swap).await;
    let swapped = swapped.unwrap_or_else(|_| Err("The reload ended early.".to_owned().into()));
    app.metrics.count_reload(swapped.is_ok());
    match swapped {
        Ok((changes, warnings)) => {
            let live = app.config_snapshot();
            log::apply_log_settings(live.settings.log);
            let version = live.settings.version.0.to_string();
            tracing::info!(name: "reloaded", config = version, changes = log_text(&changes));
            let waiting = app.restart_only_settings.changed_keys(&live.settings);
            if !waiting.is_empty() {
                tracing::warn!(name: "reload_needs_restart", what = waiting.join(", "));
            }
            warnings.iter().for_each(log_warning);
            Ok(ReloadOutcome { version, changes, next_start: waiting, warnings })
        }
        Err(refusal) => {
            tracing::error!(name: "reload_refused", why = refusal.log_text);
            Err(refusal)
        }
    }
}

/// Returns the changes as one text for the log. Addresses of providers are masked.
fn log_text(changes: &[ConfigChange]) -> String {
    let side = |change: &ConfigChange, side: &Option<String>| match side {
        None => "unset".to_owned(),
        Some(_) if change.is_provider_address() => "***".to_owned(),
        Some(value) => value.clone(),
    };
    let describe = |change: &ConfigChange| {
        format!("{}: {} -> {}", change.key, side(change, &change.old), side(change, &change.new))
    };
    let mut all: Vec<String> = changes.iter().take(MAX_LOGGED).map(describe).collect();
    if changes.len() > MAX_LOGGED {
        all.push(format!("{} more", changes.len() - MAX_LOGGED));
    }
    all.join("; ")
}

/// Logs a warning about the configuration, without its value.
pub fn log_warning(warning: &Diagnostic) {
    let Diagnostic { file, line, key, reason: why, remedy: fix, .. } = warning;
    let line = line.map(|line| line.to_string()).unwrap_or_default();
    tracing::warn!(name: "config_warning", file = file.as_str(), line, key, why, fix);
}
