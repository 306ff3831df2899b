//! Overview: state of the gateway and its last day.

use super::{number, rows, text};
use crate::block::{Block, CellState, NoticeKind, Tile};
use crate::chart::{BarChart, ChartSeries};
use crate::format::{decimal, quantity};
use serde_json::Value;

const DAY_SECONDS: u64 = 86_400;
const HOUR_SECONDS: u64 = 3_600;

/// Blocks of the page: `status` is the status document, `hours` the usage by hour and outcome of today and yesterday,
/// `now` the time in Unix seconds. `with_money` adds the revenue.
#[must_use]
pub fn overview_blocks(status: &Value, hours: &Value, now: u64, with_money: bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (name, kind) in [("not_ready_because", NoticeKind::Error), ("degraded_because", NoticeKind::Warning)]
    {
        if let Some(why) = status.get(name).and_then(Value::as_str) {
            blocks.push(Block::Notice(kind, format!("The gateway reports: {why}.")));
        }
    }
    let day = last_day(hours, now);
    blocks.push(Block::Tiles(state_tiles(status)));
    blocks.push(Block::Tiles(day_tiles(&day, with_money)));
    blocks.push(Block::Chart(request_chart(&day, now)));
    blocks
}

/// Rows of the last 24 hours.
fn last_day(hours: &Value, now: u64) -> Vec<&Value> {
    let first = penstock_core::calendar::format_rfc3339(first_hour(now));
    rows(hours).iter().filter(|row| text(row, "hour") >= first).collect()
}

const fn first_hour(now: u64) -> u64 {
    (now / HOUR_SECONDS * HOUR_SECONDS).saturating_sub(DAY_SECONDS - HOUR_SECONDS)
}

fn state_tiles(status: &Value) -> Vec<Tile> {
    let empty = Value::Null;
    let ledger = status.get("ledger").unwrap_or(&empty);
    let is_ready = status.get("ready") == Some(&Value::Bool(true));
    let ledger_state = text(ledger, "state");
    let offers: Vec<&Value> = status
        .get("providers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|provider| provider.get("offers")?.as_array())
        .flatten()
        .collect();
    let healthy = offers.iter().filter(|offer| text(offer, "state") == "closed").count();
    let mut first_tokens: Vec<f64> =
        offers.iter().filter_map(|offer| number(offer, "first_token_seconds")).collect();
    first_tokens.sort_by(f64::total_cmp);
    let median = first_tokens.get(first_tokens.len() / 2);
    let tile = |label: &str, value: String, detail: String, state| Tile {
        label: label.to_owned(),
        value,
        detail,
        state,
    };
    vec![
        tile(
            "Gateway",
            if is_ready { "ready" } else { "not ready" }.to_owned(),
            format!("version {}", text(status, "version")),
            if is_ready { CellState::Good } else { CellState::Bad },
        ),
        tile("Requests in flight", text(status, "requests_open"), String::new(), CellState::None),
        tile(
            "Healthy offers",
            format!("{healthy} of {}", offers.len()),
            String::new(),
            if healthy == offers.len() { CellState::Good } else { CellState::Warning },
        ),
        tile(
            "Time to first token",
            median.map_or_else(|| "–".to_owned(), |seconds| quantity(*seconds, "s")),
            "median of the offers".to_owned(),
            CellState::None,
        ),
        tile(
            "Ledger",
            ledger_state.clone(),
            format!("{} entries, {} open reserves", text(ledger, "entries"), text(ledger, "open_reserves")),
            if ledger_state == "good" { CellState::Good } else { CellState::Bad },
        ),
    ]
}

fn sum(day: &[&Value], name: &str) -> f64 {
    day.iter().filter_map(|row| number(row, name)).sum()
}

fn day_tiles(day: &[&Value], with_money: bool) -> Vec<Tile> {
    let (requests, free) = (sum(day, "requests"), sum(day, "requests_not_charged"));
    let share = if requests + free > 0.0 { free / (requests + free) * 100.0 } else { 0.0 };
    let mut figures = vec![
        (
            "Requests, 24 hours",
            quantity(requests + free, ""),
            format!("{} % without a charge", decimal(share)),
        ),
        (
            "Tokens",
            quantity(sum(day, "input_tokens") + sum(day, "output_tokens"), ""),
            format!("{} generated", quantity(sum(day, "output_tokens"), "")),
        ),
        (
            "Energy",
            quantity(sum(day, "energy_kwh"), "kWh"),
            format!("{} of failed attempts", quantity(sum(day, "failed_energy_kwh"), "kWh")),
        ),
        (
            "Carbon",
            quantity(sum(day, "carbon_g_co2"), "g"),
            format!(
                "{} to {}",
                quantity(sum(day, "carbon_g_co2_low"), "g"),
                quantity(sum(day, "carbon_g_co2_high"), "g")
            ),
        ),
        ("Water", quantity(sum(day, "water_liters"), "l"), String::new()),
    ];
    if with_money {
        figures.push(("Charged", quantity(sum(day, "eur"), "EUR"), String::new()));
    }
    let tile = |(label, value, detail): (&str, String, String)| Tile {
        label: label.to_owned(),
        value,
        detail,
        state: CellState::None,
    };
    figures.into_iter().map(tile).collect()
}

fn request_chart(day: &[&Value], now: u64) -> BarChart {
    let hours: Vec<String> = (0..24)
        .map(|hour| penstock_core::calendar::format_rfc3339(first_hour(now) + hour * HOUR_SECONDS))
        .collect();
    let series = [
        ("charged", "charged"),
        ("failed", "failed"),
        ("left", "client left"),
        ("interrupted", "interrupted"),
    ];
    let series = series.map(|(outcome, name)| {
        let value = |hour: &String| {
            let rows = day.iter().filter(|row| text(row, "hour") == *hour && text(row, "outcome") == outcome);
            rows.filter_map(|row| Some(number(row, "requests")? + number(row, "requests_not_charged")?)).sum()
        };
        ChartSeries { name: name.to_owned(), values: hours.iter().map(value).collect() }
    });
    let labels = hours.iter().map(|hour| hour.get(11..16).unwrap_or_default().to_owned()).collect();
    let title = "Requests per hour by outcome, UTC".to_owned();
    let shown =
        |series: &ChartSeries| series.name == "charged" || series.values.iter().any(|value| *value > 0.0);
    BarChart { title, unit: "", labels, series: series.into_iter().filter(shown).collect() }
}
