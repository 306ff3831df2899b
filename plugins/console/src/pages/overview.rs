//! Overview page: state of the gateway and the last 24 hours.

use super::{exact_text, number, rows, text, word};
use crate::block::{Block, Cell, CellState, NoticeKind, Table, Tile};
use crate::chart::{BarChart, ChartSeries};
use crate::language::Language;
use crate::text::Text;
use serde_json::{Value, json};

const DAY_SECONDS: u64 = 86_400;
const HOUR_SECONDS: u64 = 3_600;

/// Blocks of the page: `status` is the status document, `hours` the usage by hour and outcome of today and yesterday,
/// `now` the time in Unix seconds. `with_money` adds the revenue.
#[must_use]
pub fn overview_blocks(status: &Value, hours: &Value, now: u64, with_money: bool) -> Vec<Block> {
    let mut blocks: Vec<Block> = notices(status).map(|(kind, text)| Block::Notice(kind, text)).collect();
    let day = last_day(hours, now);
    blocks.push(Block::Tiles(state_tiles(status)));
    blocks.push(Block::Tiles(day_tiles(&day, with_money)));
    let chart = request_chart(&day, now);
    let table = hour_table(&chart);
    blocks.extend([Block::Chart(chart), Block::Details(table)]);
    blocks
}

/// Returns the figures of the page as JSON: `tiles`, in the order of the page, each an array of its value, its detail,
/// the class of its state and its exact value; and the texts of `notices`.
#[must_use]
pub fn overview_figures_json(
    status: &Value,
    hours: &Value,
    now: u64,
    with_money: bool,
    language: Language,
) -> String {
    let day = last_day(hours, now);
    let tiles = state_tiles(status).into_iter().chain(day_tiles(&day, with_money));
    let tiles: Vec<Value> = tiles
        .map(|tile| {
            let exact = tile.value.exact_value();
            let value = tile.value.render_wrapping(language);
            json!([value, tile.detail.render(language), tile.state.class(), exact.render(language)])
        })
        .collect();
    let notices: Vec<String> = notices(status).map(|(_, text)| text.render(language).into_owned()).collect();
    json!({ "tiles": tiles, "notices": notices }).to_string()
}

/// Texts of the notice about failed health checks: for several providers, and for one.
const SUSPECTS: [&str; 2] = [
    "suspect: the last health check of {0} failed, and of {1} more",
    "suspect: the last health check of {0} failed",
];

/// Returns the problems that the gateway reports.
fn notices(status: &Value) -> impl Iterator<Item = (NoticeKind, Text)> {
    let kinds = [("not_ready_because", NoticeKind::Error), ("degraded_because", NoticeKind::Warning)];
    kinds.into_iter().filter_map(|(name, kind)| {
        let why = status.get(name)?.as_str()?.to_owned();
        Some((kind, Text::with_values("The gateway reports: {0}.", [Text::from_sentence(&why, &SUSPECTS)])))
    })
}

/// Returns the hourly rows of the last 24 hours.
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
    let [healthy_tile, first_token_tile] = offer_tiles(status);
    let tile = |label: &'static str, value: Text, detail: Text, state| Tile {
        label: label.into(),
        value,
        detail,
        state,
    };
    vec![
        tile(
            "Gateway",
            if is_ready { "ready" } else { "not ready" }.into(),
            Text::with_values("version {0}", [text(status, "version").into()]),
            if is_ready { CellState::Good } else { CellState::Bad },
        ),
        tile(
            "Requests in flight",
            exact_text(status, "requests_open", ""),
            Text::with_values("{0} streams open", [exact_text(status, "streams_open", "")]),
            CellState::None,
        ),
        error_tile(status.get("recent").unwrap_or(&empty)),
        healthy_tile,
        first_token_tile,
        tile(
            "Ledger",
            word(ledger, "state"),
            Text::with_values(
                "{0} entries, {1} open reserves",
                [exact_text(ledger, "entries", ""), exact_text(ledger, "open_reserves", "")],
            ),
            if ledger_state == "good" { CellState::Good } else { CellState::Bad },
        ),
        tile(
            "Store",
            word(status, "store"),
            Text::default(),
            if text(status, "store") == "good" { CellState::Good } else { CellState::Bad },
        ),
        backup_tile(status.get("backup").unwrap_or(&empty)),
    ]
}

/// Returns two tiles: the number of healthy offers, and the median of the times to the first token of all offers.
fn offer_tiles(status: &Value) -> [Tile; 2] {
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
    let is_healthy = healthy == offers.len();
    [
        Tile {
            label: "Healthy offers".into(),
            value: Text::with_values(
                "{0} of {1}",
                [healthy.to_string().into(), offers.len().to_string().into()],
            ),
            detail: Text::default(),
            state: if is_healthy { CellState::Good } else { CellState::Warning },
        },
        Tile {
            label: "Time to first token".into(),
            value: median.map_or_else(|| "–".into(), |seconds| Text::Quantity(*seconds, "s")),
            detail: "median of the offers".into(),
            state: CellState::None,
        },
    ]
}

/// Returns the tile with the number of errors in the last minutes, of all requests and of refused requests.
fn error_tile(recent: &Value) -> Tile {
    let [minutes, requests, refused] =
        ["minutes", "requests", "refused"].map(|name| exact_text(recent, name, ""));
    let state = match number(recent, "errors") {
        Some(errors) if errors > 0.0 => CellState::Bad,
        _ => CellState::Good,
    };
    Tile {
        label: Text::with_values("Errors, {0} minutes", [minutes]),
        value: exact_text(recent, "errors", ""),
        detail: Text::with_values("of {0} requests, {1} refused", [requests, refused]),
        state,
    }
}

/// Returns the tile with the state of the scheduled backups, and the end of the last backup.
fn backup_tile(backup: &Value) -> Tile {
    let state = match text(backup, "state").as_str() {
        "good" => CellState::Good,
        "failed" => CellState::Bad,
        _ => CellState::None,
    };
    let last = backup.get("last").and_then(Value::as_str);
    let detail = last.map(|last| Text::with_values("last {0}", [Text::Time(last.to_owned())]));
    Tile { label: "Backups".into(), value: word(backup, "state"), detail: detail.unwrap_or_default(), state }
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
            Text::Quantity(requests + free, ""),
            Text::with_values(
                "{0} without a charge; refused ones are not included",
                [Text::Quantity(share, "%")],
            ),
        ),
        (
            "Tokens",
            Text::Quantity(sum(day, "input_tokens") + sum(day, "output_tokens"), ""),
            Text::with_values("{0} generated", [Text::Quantity(sum(day, "output_tokens"), "")]),
        ),
        (
            "Energy",
            Text::Quantity(sum(day, "energy_kwh"), "kWh"),
            Text::with_values(
                "{0} of failed attempts",
                [Text::Quantity(sum(day, "failed_energy_kwh"), "kWh")],
            ),
        ),
        (
            "Carbon",
            Text::Quantity(sum(day, "carbon_g_co2"), "g"),
            Text::with_values(
                "{0} to {1}",
                [
                    Text::Quantity(sum(day, "carbon_g_co2_low"), "g"),
                    Text::Quantity(sum(day, "carbon_g_co2_high"), "g"),
                ],
            ),
        ),
        ("Water", Text::Quantity(sum(day, "water_liters"), "l"), Text::default()),
    ];
    if with_money {
        figures.push(("Charged", Text::Quantity(sum(day, "eur"), "EUR"), Text::default()));
    }
    let tile = |(label, value, detail): (&'static str, Text, Text)| Tile {
        label: label.into(),
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
        ("cancelled", "cancelled"),
        ("interrupted", "interrupted"),
    ];
    let series = series.map(|(outcome, name)| {
        let value = |hour: &String| {
            let rows = day.iter().filter(|row| text(row, "hour") == *hour && text(row, "outcome") == outcome);
            rows.filter_map(|row| Some(number(row, "requests")? + number(row, "requests_not_charged")?)).sum()
        };
        ChartSeries { name: name.into(), values: hours.iter().map(value).collect() }
    });
    let label = |hour: &String| Text::Data(hour.get(11..16).unwrap_or_default().to_owned());
    let labels = hours.iter().map(label).collect();
    let title = "Requests per hour by outcome, UTC".into();
    let shown = |series: &ChartSeries| {
        series.name == Text::from("charged") || series.values.iter().any(|value| *value > 0.0)
    };
    BarChart { title, unit: "", labels, series: series.into_iter().filter(shown).collect() }
}

/// Table of the values of the chart, with a row for each hour.
fn hour_table(chart: &BarChart) -> Table {
    let names = chart.series.iter().map(|series| match series.name {
        Text::Template(name, _) => name,
        _ => "",
    });
    let row = |(index, hour): (usize, &Text)| {
        let values = chart.series.iter().map(|series| series.values.get(index).copied().unwrap_or_default());
        std::iter::once(Cell::text(hour.clone()))
            .chain(values.map(|value| Cell::number(super::exact(value, ""))))
            .collect()
    };
    Table {
        title: chart.title.clone(),
        headings: std::iter::once("Hour, UTC").chain(names).collect(),
        rows: chart.labels.iter().enumerate().map(row).collect(),
        empty_text: "",
        next: None,
        is_screen_only: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_has_streams_errors_and_the_state_of_the_store() {
        let status = json!({ "requests_open": 3, "streams_open": 2, "store": "full",
            "recent": { "minutes": 5, "requests": 40, "errors": 1, "refused": 4 } });
        let tiles = state_tiles(&status);
        let shown: Vec<String> = tiles
            .iter()
            .map(|tile| {
                let [label, value, detail] =
                    [&tile.label, &tile.value, &tile.detail].map(|text| text.render(Language::German));
                format!("{label}: {value}, {detail} {}", tile.state.class())
            })
            .collect();
        for expected in [
            "Laufende Anfragen: 3, 2 offene Streams ",
            "Fehler, 5 Minuten: 1, von 40 Anfragen, 4 abgelehnt bad",
            "Speicher: voll,  bad",
        ] {
            assert!(shown.contains(&expected.to_owned()), "{expected}: {shown:?}");
        }
        let calm = json!({ "minutes": 5, "requests": 0, "errors": 0, "refused": 0 });
        assert_eq!(error_tile(&calm).state, CellState::Good);
    }

    #[test]
    fn the_tile_of_backups_has_their_state_and_the_time_of_the_last_one() {
        let show = |backup: Value, language| {
            let tile = backup_tile(&backup);
            (tile.value.render(language).into_owned(), tile.detail.render(language).into_owned(), tile.state)
        };
        let last = "2026-11-27T03:04:05Z";
        for (backup, language, value, detail, state) in [
            (json!({"state": "good", "last": last}), Language::English, "good", "last ", CellState::Good),
            (
                json!({"state": "failed", "last": null}),
                Language::German,
                "fehlgeschlagen",
                "",
                CellState::Bad,
            ),
            (json!({"state": "not yet", "last": null}), Language::French, "pas encore", "", CellState::None),
            (json!({"state": "off", "last": null}), Language::German, "aus", "", CellState::None),
        ] {
            let shown = show(backup, language);
            assert_eq!((shown.0.as_str(), shown.2), (value, state));
            assert!(
                if detail.is_empty() { shown.1.is_empty() } else { shown.1.starts_with(detail) },
                "{shown:?}"
            );
        }
        let german = show(json!({"state": "good", "last": last}), Language::German);
        assert_eq!(german.1, "letztes 27.11.2026, 03:04:05 UTC");
    }
}
