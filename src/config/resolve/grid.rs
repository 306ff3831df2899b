//! `[grid]`: tables and forecasts of carbon intensity, read and validated.

use super::super::raw::ConfigFile;
use super::super::settings::GridSettings;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_batch::carbon_forecast::{GridZone, parse_forecast};
use penstock_footprint::country::eu_member_state_name;
use penstock_regular_file::read_text_file;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Number of hours of a day.
const HOURS: usize = 24;
/// Maximum size of the file of forecasts in bytes, sufficient for a year of forecasts of every zone.
const MAX_FORECAST_BYTES: u64 = 64 << 20;
/// Maximum carbon intensity, in grams of CO2e per kWh; no grid emits more.
const MAX_GRAMS_PER_KWH: u32 = 5_000;

impl SettingsResolver<'_> {
    /// Resolves `[grid]` and reads the file of forecasts. Zones with mistakes are left out.
    pub fn resolve_grid(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> GridSettings {
        let spot = top.child("grid");
        let saving =
            raw.grid.saving.0.saturating_mul(Decimal::ONE_THOUSAND).trunc().to_u32().unwrap_or(1_000);
        let mut zones: BTreeMap<String, GridZone> = BTreeMap::new();
        for (location, hours) in &raw.grid.hours {
            let at = spot.child("hours").child(location);
            let Some(usual) = <[u32; HOURS]>::try_from(hours.as_slice()).ok() else {
                let why = format!("It has {} numbers, and a day has 24 hours.", hours.len());
                self.report_mistake(&at, why, "Write 24 numbers, the first for 0:00 to 1:00 UTC.");
                continue;
            };
            if usual.iter().any(|grams| *grams > MAX_GRAMS_PER_KWH) {
                let why = "A number is over 5000 grams of CO2e per kWh, which no grid emits.";
                self.report_mistake(&at, why, "Write grams of CO2e per kWh, such as 31.");
                continue;
            }
            if !is_known_location(raw, location) {
                let fix = "Write the code of a member state, such as FR, or the id of a provider.";
                self.report_mistake(&at, "It is neither a member state nor a provider.", fix);
                continue;
            }
            zones.entry(location.clone()).or_default().typical = Some(usual);
        }
        let mut forecast_written = 0;
        if let Some(path) = &raw.grid.forecast {
            let spot = spot.child("forecast");
            self.read_forecast(raw, path, &spot, &mut zones);
            forecast_written = modification_time(&spot.resolve_file_path(path));
        }
        GridSettings { saving, zones, forecast_written }
    }

    fn read_forecast(
        &mut self,
        raw: &ConfigFile,
        path: &str,
        spot: &KeyPath<'_>,
        zones: &mut BTreeMap<String, GridZone>,
    ) {
        let text = match read_text_file(&spot.resolve_file_path(path), MAX_FORECAST_BYTES) {
            Ok(text) => text,
            Err(why) => {
                let why = format!("The file cannot be read: {why}.");
                self.report_mistake(spot, why, "Write the path of a CSV file of lines place,hour,g_per_kwh.");
                return;
            }
        };
        match parse_forecast(&text) {
            Err((line, expected)) => {
                let fix = "Each line is like FR,2026-11-22T14:00Z,31.";
                self.report_mistake(spot, format!("Line {line} of the file is invalid: {expected}."), fix);
            }
            Ok(read) => {
                for (location, hours) in read {
                    if is_known_location(raw, &location) {
                        zones.entry(location).or_default().forecast = hours;
                    } else {
                        let why =
                            format!("The file contains {location:?}, neither a member state nor a provider.");
                        self.report_warning(spot, why, "Those lines are ignored.");
                    }
                }
            }
        }
    }
}

/// Returns the modification time of a file, in Unix seconds; 0 if unknown.
fn modification_time(path: &std::path::Path) -> u64 {
    let modified = std::fs::metadata(path).and_then(|file| file.modified()).ok();
    modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_secs())
}

fn is_known_location(raw: &ConfigFile, location: &str) -> bool {
    eu_member_state_name(location).is_some() || raw.providers.iter().any(|provider| provider.id == location)
}
