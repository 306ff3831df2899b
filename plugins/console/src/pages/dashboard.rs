//! Pages of the account holders' dashboard.

use super::accounts::account_tiles;
use super::forms::{limit_field, object_version};
use super::key_state::{KeyState, with_end_of_earlier_secret};
use super::usage::{REQUEST_COUNT_MEMBERS, UsageView, value_table};
use super::usage_chart::{series_order, usage_chart};
use super::{day, figure, number, percent_encode, quantity_cell, rows, text, text_cell, time_cell};
use crate::block::{Block, Cell, CellState, Field, FieldKind, Form, NoticeKind, Table, Tile};
use crate::language::Language;
use crate::text::Text;
use serde_json::Value;

/// Choices of the time for which the previous secret stays valid after a rotation: seconds and displayed name.
const OVERLAPS: [(&str, &str); 4] =
    [("86400", "One day"), ("604800", "Seven days"), ("3600", "One hour"), ("0", "None: it ends at once")];

/// Blocks of the overview: balance of the account, and its usage by day and model in the period of `usage`.
#[must_use]
pub fn dashboard_overview_blocks(account: &Value, balance: &Value, usage: &Value) -> Vec<Block> {
    let balance = rows(balance).first().cloned().unwrap_or_default();
    let mut blocks = Vec::new();
    if text(account, "state") == "suspended" {
        let text = "The account is suspended: its keys are refused.";
        blocks.push(Block::Notice(NoticeKind::Warning, text.into()));
    }
    blocks.push(Block::Tiles(account_tiles(account, &balance)));
    blocks.push(Block::Tiles(total_tiles(usage)));
    let view = UsageView { by: "model".to_owned(), with_money: true, ..UsageView::default() };
    let order = series_order(usage, &view);
    let figures: [(&'static str, &[&str], &'static str); 3] = [
        ("Requests", REQUEST_COUNT_MEMBERS, ""),
        ("Charged", &["eur"], "EUR"),
        ("Carbon, location-based", &["carbon_g_co2"], "g"),
    ];
    for (title, members, unit) in figures {
        let title = Text::with_values("{0} per day by {1}", [title.into(), "model".into()]);
        blocks.push(Block::Chart(usage_chart(usage, &view, &order, members, title, unit)));
    }
    blocks.push(Block::Details(value_table(usage, &view)));
    blocks
}

/// Tiles with the sums of all days in a usage response.
fn total_tiles(usage: &Value) -> Vec<Tile> {
    let total = usage.get("total").cloned().unwrap_or_default();
    let figure = |name: &str, unit: &'static str| figure(&total, name, unit);
    let range =
        Text::with_values("{0} to {1}", [figure("carbon_g_co2_low", "g"), figure("carbon_g_co2_high", "g")]);
    let since = Text::with_values("since {0}", [day(usage, "from")]);
    let requests = REQUEST_COUNT_MEMBERS.iter().filter_map(|member| number(&total, member)).sum();
    let figures = [
        ("Charged", figure("eur", "EUR"), since),
        (
            "Requests",
            Text::Quantity(requests, ""),
            Text::with_values("{0} without a charge", [figure("requests_not_charged", "")]),
        ),
        ("Energy", figure("energy_kwh", "kWh"), "failed attempts included".into()),
        ("Carbon, location-based", figure("carbon_g_co2", "g"), range),
        ("Water", figure("water_liters", "l"), Text::default()),
    ];
    figures
        .map(|(label, value, detail)| Tile { label: label.into(), value, detail, state: CellState::None })
        .into()
}

/// Table of the keys with their states at `now`, in Unix seconds, each with a link to its page below `root`.
#[must_use]
pub fn dashboard_keys_blocks(keys: &Value, root: &str, now: u64) -> Vec<Block> {
    let row = |key: &Value| {
        let id = text(key, "id");
        let name = match text(key, "name") {
            name if name.is_empty() => id.clone(),
            name => name,
        };
        let live = key.get("now").cloned().unwrap_or_default();
        vec![
            Cell::link(name, format!("{root}keys/{}", percent_encode(&id))),
            Cell::text(id),
            text_cell(key, "scopes"),
            KeyState::at(key, now).cell(),
            time_cell(key, "created"),
            time_cell(key, "last_used"),
            quantity_cell(&live, "spent_this_month", "credits"),
        ]
    };
    vec![Block::Table(Table {
        title: "Keys".into(),
        headings: vec!["Name", "Id", "Scopes", "State", "Created", "Last used", "Spent this month"],
        rows: rows(keys).iter().map(row).collect(),
        empty_text: "The account has no keys.",
        next: super::next_page(keys, &format!("{root}keys")),
        is_screen_only: false,
    })]
}

/// Figures of a key at `now`, in Unix seconds, and its forms: limits, rotation, revocation.
#[must_use]
pub fn dashboard_key_blocks(key: &Value, root: &str, now: u64, language: Language) -> Vec<Block> {
    let state = KeyState::at(key, now);
    let path = format!("{root}keys/{}", percent_encode(&text(key, "id")));
    let facts = [
        ("Name", text_cell(key, "name")),
        ("Id", text_cell(key, "id")),
        ("State", state.cell()),
        ("Scopes", text_cell(key, "scopes")),
        (
            "Models",
            match key.get("models") {
                None | Some(Value::Null) => Cell::text("all"),
                Some(Value::Array(models)) if models.is_empty() => Cell::text("none"),
                Some(_) => text_cell(key, "models"),
            },
        ),
        ("Created", time_cell(key, "created")),
        ("Last used", time_cell(key, "last_used")),
        ("Expires", time_cell(key, "expires")),
        ("Rotated", time_cell(key, "rotated")),
        ("Previous secret valid until", time_cell(key, "previous_good_until")),
    ];
    let mut blocks = vec![Block::Table(Table {
        title: "Key".into(),
        headings: vec!["Property", "Value"],
        rows: facts.into_iter().map(|(name, cell)| vec![Cell::text(name), cell]).collect(),
        empty_text: "",
        next: None,
        is_screen_only: false,
    })];
    if state != KeyState::Revoked {
        blocks.push(Block::Form(edit_key_form(key, &path, language)));
    }
    if state == KeyState::Valid {
        let overlap = Field::new("overlap_seconds", "The previous secret stays valid for")
            .with_kind(FieldKind::choice(&OVERLAPS))
            .with_value("86400");
        let rotate = Form::new(format!("{path}/rotate"), "New secret", "Rotate").with_field(overlap);
        blocks.push(Block::Form(with_end_of_earlier_secret(rotate, key, now)));
    }
    if state != KeyState::Revoked {
        let mut revoke = Form::new(format!("{path}/revoke"), "Revoke for ever", "Revoke");
        revoke.is_irreversible = true;
        blocks.push(Block::Form(revoke));
    }
    blocks
}

/// Builds the form that changes the name and the limits of a key. The form posts to `{page_path}/limits`. Amounts are
/// written as in `language`.
#[must_use]
pub fn edit_key_form(key: &Value, page_path: &str, language: Language) -> Form {
    let field = |name, label| limit_field(key, language, name, label);
    let name = key.get("name").and_then(Value::as_str).unwrap_or_default();
    Form::new(format!("{page_path}/limits"), "Name and limits", "Save")
        .with_field(Field::hidden("version", object_version(key)))
        .with_field(Field::new("name", "Name").required().with_value(name))
        .with_field(field("requests_per_minute", "Requests per minute").with_help("Empty for no limit."))
        .with_field(field("tokens_per_minute", "Tokens per minute"))
        .with_field(field("concurrent", "Concurrent requests"))
        .with_field(field("budget_per_day", "Credits per day"))
        .with_field(field("budget_per_month", "Credits per month"))
}
