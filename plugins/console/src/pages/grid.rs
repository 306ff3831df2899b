//! Grid intensity of the current hour at a provider, and a plot of one day above the requests of batches.

use super::{exact, number, rows, text};
use crate::block::{Block, Cell};
use crate::chart::ChartSeries;
use crate::line_chart::{INTENSITY_UNIT, LineChart, LineChartMetric};
use crate::text::Text;
use serde_json::Value;

/// Maximum number of zones with a line of their own; the requests of all further zones are added up.
const MAX_ZONES: usize = 5;
/// Number of seconds in a minute.
const MINUTE: f64 = 60.0;
/// Number of seconds in an hour.
const HOUR: f64 = 3_600.0;
/// Number of seconds in a day.
const DAY: f64 = 86_400.0;

/// Cell with the carbon intensity of the grid in the present hour, g CO2e per kWh; a dash if it is unknown.
pub(super) fn intensity_cell(grid: &Value) -> Cell {
    match number(grid, "g_per_kwh") {
        Some(grams) => {
            Cell::number(Text::Quantity(grams, INTENSITY_UNIT)).with_exact_value(exact(grams, INTENSITY_UNIT))
        }
        None => Cell::number("–"),
    }
}

/// Cell with the origin of the intensity, and its age or year; details on hover.
pub(super) fn intensity_source_cell(grid: &Value) -> Cell {
    let configured = "Location-based, CO₂ equivalent, from the configuration of this gateway.";
    match (&*text(grid, "source"), number(grid, "seconds_old")) {
        ("forecast", Some(seconds)) => {
            Cell::text(Text::with_values("forecast, {0} old", [age(seconds)])).with_exact_value(configured)
        }
        ("forecast", None) => Cell::text("forecast").with_exact_value(configured),
        ("typical", _) => Cell::text("usual at this hour").with_exact_value(configured),
        ("yearly", _) => Cell::text(Text::with_values("mean of {0}", [text(grid, "year").into()]))
            .with_exact_value(Text::with_values(
                "Location-based, lifecycle factors, CO₂ equivalent. Source: {0}.",
                [text(grid, "attribution").into()],
            )),
        _ => Cell::text("–"),
    }
}

/// Returns an age in whole minutes, hours or days, as text.
fn age(seconds: f64) -> Text {
    match seconds {
        seconds if seconds < HOUR => Text::Quantity((seconds / MINUTE).floor(), "min"),
        seconds if seconds < 2.0 * DAY => Text::Quantity((seconds / HOUR).floor(), "h"),
        seconds => Text::Quantity((seconds / DAY).floor(), "days"),
    }
}

/// Plot of grid intensity and batch requests in the last 24 hours; no block if the response has no zone.
#[must_use]
pub fn grid_intensity_blocks(grid: &Value) -> Vec<Block> {
    let mut zones: Vec<&Value> = rows(grid).iter().collect();
    if zones.is_empty() {
        return Vec::new();
    }
    // Zones are sorted by the number of their batch requests; zones without requests keep the order of their names.
    // Zones of former providers have no name and are added up with the further zones.
    let total = |zone: &Value| values(zone, "batch_requests").into_iter().sum::<f64>();
    zones.sort_by(|one, other| total(other).total_cmp(&total(one)));
    let (named, mut others): (Vec<&Value>, Vec<&Value>) =
        zones.into_iter().partition(|zone| zone.get("zone").is_some_and(Value::is_string));
    others.extend(named.iter().skip(MAX_ZONES));
    let named = || named.iter().take(MAX_ZONES);
    let series = |zone: &&Value, member: &str| ChartSeries {
        name: super::country(&text(zone, "zone")),
        values: values(zone, member),
    };
    let hours = grid.get("hours").and_then(Value::as_array).into_iter().flatten();
    let hours: Vec<Text> =
        hours.filter_map(|hour| Some(Text::Data(hour.as_str()?.get(11..16)?.to_owned()))).collect();
    let mut requests: Vec<ChartSeries> = named().map(|zone| series(zone, "batch_requests")).collect();
    if others.iter().any(|zone| total(zone) > 0.0) {
        let sum = |hour: usize| {
            let each = others.iter().filter_map(|zone| values(zone, "batch_requests").get(hour).copied());
            each.sum()
        };
        let values = (0..hours.len()).map(sum).collect();
        requests.push(ChartSeries { name: "other places".into(), values });
    }
    vec![Block::LineChart(LineChart {
        metric: LineChartMetric::GridIntensity,
        title: "Grid intensity and requests of batches per hour, UTC".into(),
        times: hours,
        values: named().map(|zone| series(zone, "g_per_kwh")).collect(),
        requests,
    })]
}

/// Returns the values of this member for each hour; NaN for an unknown value.
fn values(zone: &Value, member: &str) -> Vec<f64> {
    let all = zone.get(member).and_then(Value::as_array).into_iter().flatten();
    all.map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::language::Language;
    use serde_json::json;

    fn shown(cell: &Cell, language: Language) -> String {
        cell.text.render(language).into_owned()
    }

    #[test]
    fn the_source_has_its_age_or_its_year() {
        let forecast = |seconds: u64| json!({"source": "forecast", "seconds_old": seconds, "g_per_kwh": 31});
        for (grid, language, expected) in [
            (forecast(59), Language::English, "forecast, 0\u{202f}min old"),
            (forecast(3_599), Language::French, "prévision datant de 59\u{202f}min"),
            (forecast(7_300), Language::German, "Prognose, 2\u{202f}h alt"),
            (forecast(400_000), Language::German, "Prognose, 4\u{202f}Tage alt"),
            (json!({"source": "forecast", "seconds_old": null}), Language::English, "forecast"),
            (json!({"source": "typical"}), Language::English, "usual at this hour"),
            (json!({"source": "yearly", "year": 2025}), Language::French, "moyenne de 2025"),
            (json!({}), Language::English, "–"),
        ] {
            assert_eq!(shown(&intensity_source_cell(&grid), language), expected);
        }
        let cell = intensity_cell(&forecast(0));
        assert_eq!((shown(&cell, Language::German), cell.numeric), ("31\u{202f}g/kWh".to_owned(), true));
        let yearly = json!({"source": "yearly", "year": 2025, "attribution": "Electricity Maps"});
        assert!(
            intensity_source_cell(&yearly)
                .exact
                .render(Language::English)
                .ends_with("Source: Electricity Maps.")
        );
    }

    fn zone(name: Option<&str>, requests: [u64; 2]) -> Value {
        json!({"zone": name, "g_per_kwh": [30, name.map(|_| 31)], "batch_requests": requests})
    }

    fn chart(zones: &[Value]) -> LineChart {
        let grid = json!({"hours": ["2026-11-27T13:00:00Z", "2026-11-27T14:00:00Z"], "data": zones});
        match grid_intensity_blocks(&grid).remove(0) {
            Block::LineChart(chart) => chart,
            other => panic!("{other:?}"),
        }
    }

    fn names(series: &[ChartSeries]) -> Vec<String> {
        series.iter().map(|series| series.name.render(Language::English).into_owned()).collect()
    }

    #[test]
    fn zones_with_the_most_requests_have_lines_and_the_others_are_added_up() {
        let all = ["AT", "BE", "DE", "FI", "FR", "PL"]
            .map(|name| zone(Some(name), if name == "AT" { [1, 0] } else { [4, name.len() as u64] }));
        let shown = chart(&[&all[..], &[zone(None, [0, 9])]].concat());
        let expected = ["Belgium", "Germany", "Finland", "France", "Poland"];
        assert_eq!(names(&shown.values), expected);
        assert_eq!(names(&shown.requests), [&expected[..], &["other places"]].concat());
        assert_eq!(shown.requests[5].values, [1.0, 9.0]);
        assert_eq!(shown.times[1].render(Language::English), "14:00");
    }

    #[test]
    fn zones_without_requests_are_shown_too_and_no_zone_shows_nothing() {
        let shown = chart(&[zone(Some("FR"), [0, 0]), zone(Some("DE-LU"), [0, 2])]);
        assert_eq!(names(&shown.values), ["DE-LU", "France"], "a zone of no country has its code");
        assert_eq!(names(&shown.requests), ["DE-LU", "France"]);
        assert_eq!(shown.values[0].values, [30.0, 31.0]);
        assert!(grid_intensity_blocks(&json!({"hours": [], "data": []})).is_empty());
    }
}
