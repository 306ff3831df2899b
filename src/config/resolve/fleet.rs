//! `[fleet]`: checks of the section, and of the order of its time limits.

use super::super::raw::{ConfigFile, StorageEngineName};
use super::super::settings::FleetSettings;
use super::super::units::format_duration;
use super::SettingsResolver;
use super::key_path::KeyPath;
use std::time::Duration;

/// Minimum of `fleet.claim`. A gateway sends a heartbeat each second.
const MIN_CLAIM: Duration = Duration::from_secs(5);

impl SettingsResolver<'_> {
    /// Returns the settings of the fleet: `Some(None)` without the section, `None` if it has mistakes.
    pub fn resolve_fleet(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Option<Option<FleetSettings>> {
        let Some(fleet) = &raw.fleet else { return Some(None) };
        let spot = top.child("fleet");
        let mistakes = self.report.mistakes.len();
        if raw.storage.engine != StorageEngineName::Postgres {
            self.report_mistake(
                &spot,
                "Several gateways share their state in PostgreSQL, and the store is embedded.",
                "Write `[storage] engine = \"postgres\"` with the URL of the database, or remove the section.",
            );
        }
        if raw.storage.pepper.is_none() {
            self.report_mistake(
                &spot,
                "All gateways need the same pepper, so it has to be given.",
                "Write `[storage] pepper = { env = \"PENSTOCK_PEPPER\" }`, of `openssl rand -hex 32`.",
            );
        }
        if fleet.claim.0 < MIN_CLAIM {
            self.report_mistake(
                &spot.child("claim"),
                format!("It must be at least {}.", format_duration(MIN_CLAIM)),
                "A gateway sends a heartbeat each second, and a slow one must not count as dead.",
            );
        }
        if fleet.lease.0 < fleet.claim.0 {
            self.report_mistake(
                &spot.child("lease"),
                "It must not be less than `claim`.",
                format!("Write \"{}\" or more.", format_duration(fleet.claim.0)),
            );
        }
        let settings = FleetSettings {
            name: fleet.name.clone(),
            claim: fleet.claim.0,
            lease: fleet.lease.0,
            advance: fleet.ahead.0,
            stale: Some(fleet.stale.0).filter(|stale| !stale.is_zero()),
        };
        (self.report.mistakes.len() == mistakes).then_some(Some(settings))
    }
}
