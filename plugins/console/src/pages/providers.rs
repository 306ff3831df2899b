//! Page of the providers: health, circuit breakers, measured speeds and last failures.

use super::grid::{intensity_cell, intensity_source_cell};
use super::{exact, exact_text, number, quantity_cell, rows, text, text_cell, word};
use crate::block::{Block, Cell, CellState, Table};
use crate::text::Text;
use serde_json::Value;

/// Blocks of the page, from the list of providers.
#[must_use]
pub fn providers_blocks(providers: &Value) -> Vec<Block> {
    let provider_rows = rows(providers).iter().map(provider_row).collect();
    let offers = rows(providers).iter().flat_map(|provider| {
        let offers = provider.get("offers").and_then(Value::as_array).into_iter().flatten();
        offers.map(|offer| offer_row(&text(provider, "id"), offer))
    });
    vec![
        Block::Table(Table {
            title: "Providers".into(),
            headings: vec![
                "Provider",
                "Operator",
                "Location",
                "Grid intensity",
                "Source",
                "Health check",
                "In flight",
                "Limit",
                "Last failure",
            ],
            rows: provider_rows,
            empty_text: "The configuration has no providers.",
            next: None,
            is_screen_only: false,
        }),
        Block::Table(Table {
            title: "Offers".into(),
            headings: vec![
                "Provider",
                "Model",
                "Breaker",
                "Back in",
                "Failures",
                "Attempts",
                "In flight",
                "First token",
                "Tokens per second",
            ],
            rows: offers.collect(),
            empty_text: "The providers offer no models.",
            next: None,
            is_screen_only: false,
        }),
    ]
}

fn provider_row(provider: &Value) -> Vec<Cell> {
    let (check, state) = match provider.get("check").and_then(Value::as_str) {
        Some("good") => ("passed", CellState::Good),
        Some(_) => ("failed", CellState::Bad),
        None if provider.get("has_check") == Some(&Value::Bool(false)) => ("none", CellState::None),
        None => ("not yet", CellState::None),
    };
    let failure = provider.get("last_error").filter(|error| !error.is_null());
    let failure = failure.map_or_else(
        || Cell::text("–"),
        |error| {
            let parts = [word(error, "kind"), exact_text(error, "seconds_ago", "")];
            Cell::text(Text::with_values("{0}, {1} s ago", parts))
        },
    );
    let grid = provider.get("grid").cloned().unwrap_or_default();
    vec![
        text_cell(provider, "id"),
        text_cell(provider, "operator"),
        Cell::text(Text::with_values("{0}, {1}", [text(provider, "city").into(), word(provider, "country")])),
        intensity_cell(&grid),
        intensity_source_cell(&grid),
        Cell::text(check).with_state(state),
        quantity_cell(provider, "requests_in_flight", ""),
        quantity_cell(provider, "max_in_flight", ""),
        failure,
    ]
}

fn offer_row(provider: &str, offer: &Value) -> Vec<Cell> {
    let state = text(offer, "state");
    let mark = match &*state {
        "closed" => CellState::Good,
        "suspect" | "half_open" => CellState::Warning,
        _ => CellState::Bad,
    };
    let seconds = |name: &str| match number(offer, name) {
        Some(seconds) => Cell::number(Text::Quantity(seconds, "s")).with_exact_value(exact(seconds, "s")),
        None => Cell::number("–"),
    };
    let failing =
        number(offer, "failing").map_or_else(|| Text::from("–"), |part| Text::Quantity(part * 100.0, "%"));
    vec![
        Cell::text(provider.to_owned()),
        text_cell(offer, "model"),
        Cell::text(Text::Word(state)).with_state(mark),
        seconds("rests_for_seconds"),
        Cell::number(failing),
        quantity_cell(offer, "attempts", ""),
        quantity_cell(offer, "requests_in_flight", ""),
        seconds("first_token_seconds"),
        quantity_cell(offer, "tokens_per_second", ""),
    ]
}
