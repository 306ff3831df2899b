//! Tables that operators supply: carbon forecasts, grids, data centres. A planned start of a batch is within its
//! window.

use penstock_batch::carbon_forecast::{GridZone, parse_forecast, plan_start};

pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_forecast(text) {
        Ok(zones) => {
            let now = zones
                .values()
                .flat_map(|hours| hours.keys())
                .next()
                .map_or(0, |hour| hour.saturating_mul(3_600));
            for hours in zones.into_values() {
                assert!(hours.values().all(|grams| *grams <= 5_000));
                let zone = GridZone { typical: None, forecast: hours };
                let latest = now.saturating_add(86_400);
                if let Some(plan) = plan_start(&[&zone], now, latest, 7_200, 50) {
                    assert!(
                        (now..=latest).contains(&plan.start)
                            && plan.milligrams_per_kwh.0 <= plan.milligrams_per_kwh.1
                    );
                }
            }
        }
        Err((line, why)) => assert!(line >= 1 && line <= text.lines().count() && !why.is_empty()),
    }
    let _ = penstock_footprint::grid::parse_table(text);
    let _ = penstock_footprint::datacentre::parse_table(text);
}
