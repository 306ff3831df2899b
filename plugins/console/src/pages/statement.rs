//! Statement of a period for one account: page, form and CSV.

use super::data_sources::SourceKind;
use super::invoice::{eur_cell, party_lines};
use super::invoice_csv::{day_end, day_start};
use super::usage::REQUEST_COUNT_MEMBERS;
use super::{day, exact_text, figure, number, percent_encode, quantity_cell, rows, text};
use crate::block::{Block, Cell, CellState, Field, FieldKind, Form, Table, Tile};
use crate::csv::{CsvColumn, CsvStyle, CsvTable};
use crate::text::Text;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Columns of the CSV, with the unit of each figure in its name.
const COLUMNS: &[CsvColumn] = &[
    ("month", false),
    ("of", false),
    ("account", false),
    ("key", false),
    ("model", false),
    ("requests", true),
    ("requests_not_charged", true),
    ("requests_counted_by_gateway", true),
    ("input_tokens", true),
    ("cached_input_tokens", true),
    ("output_tokens", true),
    ("images", true),
    ("audio_seconds", true),
    ("energy_kwh", true),
    ("carbon_g_co2e", true),
    ("water_liters", true),
    ("credits", true),
    ("charged_kwh", true),
    ("eur", true),
    ("eur_rounded", true),
    ("granted_credits", true),
    ("granted_kwh", true),
    ("period_start", false),
    ("period_end", false),
];

/// Form that selects the period of the statement page at `path`.
#[must_use]
pub fn statement_period_form(path: &str, from: &str, to: &str) -> Form {
    let mut form = Form::new(path, "Period", "Show")
        .with_field(Field::new("from", "First day, UTC").with_kind(FieldKind::Date).with_value(from))
        .with_field(Field::new("to", "Last day, UTC").with_kind(FieldKind::Date).with_value(to));
    form.is_query = true;
    form
}

/// Seller and customer of a statement, and its account, period and date, as an invoice has them.
fn head(statement: &Value, account: &Value, parties: &Value) -> Block {
    let facts = vec![
        Text::with_values("Account {0}", [text(account, "account").into()]),
        Text::with_values("Period {0} to {1}", [day(statement, "from"), day(statement, "to")]),
        Text::with_values("Date {0}", [Text::Time(text(parties, "created"))]),
    ];
    Block::Columns(vec![
        ("Seller".into(), party_lines(parties.get("issuer"))),
        ("Customer".into(), party_lines(parties.get("customer"))),
        ("Statement".into(), facts),
    ])
}

/// Returns the first account of a statement; null if there is none.
fn account_of(statement: &Value) -> Value {
    let first = statement.get("accounts").and_then(Value::as_array).and_then(|accounts| accounts.first());
    first.cloned().unwrap_or_default()
}

/// Blocks of a statement: sums of the period by key and by model, with links to its downloads: `path` with the suffix
/// `.csv` or `.json`. `parties` are the `issuer`, the `customer` and the time of the statement (`created`).
#[must_use]
pub fn statement_blocks(
    statement: &Value,
    parties: &Value,
    key_names: &BTreeMap<String, String>,
    path: &str,
) -> Vec<Block> {
    let account = account_of(statement);
    let period = ["from", "to"].map(|name| percent_encode(&text(statement, name)));
    let link = |kind: &str, style: &str, name: &'static str| {
        let [from, to] = &period;
        (format!("{path}.{kind}?from={from}&to={to}{style}"), name.into())
    };
    let name_of_account = text(&account, "account").into();
    let header = match statement.get("month").and_then(Value::as_str) {
        Some(month) => {
            Text::with_values("Statement {0}, account {1}", [month.to_owned().into(), name_of_account])
        }
        None => {
            let period = [day(statement, "from"), day(statement, "to"), name_of_account];
            Text::with_values("Statement {0} to {1}, account {2}", period)
        }
    };
    let mut blocks = vec![
        Block::RunningHeader(header),
        head(statement, &account, parties),
        Block::Tiles(tiles(&account)),
        Block::Links(vec![
            link("csv", "", "CSV, decimal point"),
            link("csv", "&separator=%3B&decimal=%2C", "CSV, semicolon and decimal comma"),
            link("json", "", "JSON, with the prices of every charge"),
        ]),
    ];
    let name = |id: &str| match key_names.get(id) {
        Some(name) if !name.is_empty() => format!("{name} ({id})"),
        _ => id.to_owned(),
    };
    blocks.push(Block::Table(sums_table(("Keys", "Key"), &account, "keys", |row| name(&text(row, "key")))));
    blocks.push(Block::Table(sums_table(("Models", "Model"), &account, "models", |row| text(row, "model"))));
    let sources = [
        ("methodologies", "Methodology: {0}", SourceKind::Name),
        ("grid_sources", "Grid: {0}", SourceKind::Name),
        ("places", "Places: {0}", SourceKind::Place),
    ];
    let mut notes = vec![Text::Word(text(statement, "boundary"))];
    notes.extend(
        sources.map(|(member, line, kind)| Text::with_values(line, [kind.list_of_member(statement, member)])),
    );
    blocks.push(Block::Columns(vec![("Notes".into(), notes)]));
    blocks
}

fn list<'v>(account: &'v Value, name: &str) -> &'v [Value] {
    account.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn tiles(account: &Value) -> Vec<Tile> {
    let figure = |name: &str, unit: &'static str| figure(account, name, unit);
    let tile = |label: &'static str, value: Text, detail: Text| Tile {
        label: label.into(),
        value,
        detail,
        state: CellState::None,
    };
    let requests = REQUEST_COUNT_MEMBERS.iter().filter_map(|member| number(account, member)).sum();
    vec![
        tile("Charged", exact_text(account, "eur_rounded", "EUR"), exact_text(account, "credits", "credits")),
        tile(
            "Requests",
            Text::Quantity(requests, ""),
            Text::with_values("{0} without a charge", [figure("requests_not_charged", "")]),
        ),
        tile("Energy", figure("energy_kwh", "kWh"), "failed attempts included".into()),
        tile("Carbon, location-based", figure("carbon_g_co2e", "g"), "CO₂ equivalent".into()),
        tile("Water", figure("water_liters", "l"), Text::default()),
        tile("Granted", figure("granted_credits", "credits"), figure("granted_kwh", "kWh")),
    ]
}

/// Table of the rows of a list and of their total. The EUR of the rows are exact, so that they add up; only the total
/// is rounded.
fn sums_table(
    (title, heading): (&'static str, &'static str),
    account: &Value,
    member: &str,
    name: impl Fn(&Value) -> String,
) -> Table {
    let figures = |name: Text, row: &Value, eur: Cell| {
        vec![
            Cell::text(name),
            quantity_cell(row, "requests", ""),
            quantity_cell(row, "input_tokens", ""),
            quantity_cell(row, "output_tokens", ""),
            quantity_cell(row, "energy_kwh", "kWh"),
            quantity_cell(row, "carbon_g_co2e", "g"),
            quantity_cell(row, "water_liters", "l"),
            Cell::number(exact_text(row, "credits", "")),
            eur,
        ]
    };
    let row = |row: &Value| figures(name(row).into(), row, eur_cell(row));
    let mut rows: Vec<_> = list(account, member).iter().map(row).collect();
    if !rows.is_empty() {
        let eur = Cell::number(exact_text(account, "eur_rounded", ""))
            .with_exact_value(exact_text(account, "eur", "EUR"));
        rows.push(figures("Total".into(), account, eur));
    }
    Table {
        title: title.into(),
        headings: vec![
            heading,
            "Charged requests",
            "Input tokens",
            "Output tokens",
            "Energy",
            "Carbon",
            "Water",
            "Credits",
            "EUR",
        ],
        rows,
        empty_text: "Nothing is recorded in this period.",
        next: None,
        is_screen_only: false,
    }
}

/// Formats a statement as CSV, with a row for each account (without key and model), each of its keys, and each of its
/// models. The rows of each kind add up to the total; the column `of` names the kind, so that a reader does not add up
/// all three. With `key_names`, a further column has the name of each key.
#[must_use]
pub fn statement_csv(
    statement: &Value,
    key_names: Option<&BTreeMap<String, String>>,
    style: CsvStyle,
) -> String {
    let mut columns = COLUMNS.to_vec();
    if key_names.is_some() {
        let after_key = columns.iter().position(|(name, _)| *name == "key").map_or(0, |index| index + 1);
        columns.insert(after_key, ("key_name", false));
    }
    let mut table = CsvTable::new(style, columns);
    for account in list(statement, "accounts") {
        let mut add = |kind: &str, row: &Value| {
            let mut row = row.clone();
            if let Some(members) = row.as_object_mut() {
                let key = members.get("key").and_then(Value::as_str);
                let key_name = key.and_then(|id| key_names?.get(id)).cloned();
                members.insert("month".to_owned(), json!(statement.get("month")));
                members.insert("period_start".to_owned(), json!(day_start(&text(statement, "from"))));
                members.insert("period_end".to_owned(), json!(day_end(&text(statement, "to"))));
                members.insert("of".to_owned(), json!(kind));
                members.insert("account".to_owned(), json!(text(account, "account")));
                members.insert("key_name".to_owned(), json!(key_name));
            }
            table.add_row(&row);
        };
        add("account", account);
        list(account, "keys").iter().for_each(|row| add("key", row));
        list(account, "models").iter().for_each(|row| add("model", row));
    }
    table.into_text()
}

/// Returns the names of keys by their ids; `pages` are pages of a key list.
#[must_use]
pub fn key_names(pages: &[Value]) -> BTreeMap<String, String> {
    let keys = pages.iter().flat_map(rows);
    keys.map(|key| (text(key, "id"), text(key, "name"))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn statement() -> Value {
        let sums = |eur: &str| json!({ "requests": 1, "credits": "1.5", "eur": eur, "eur_rounded": "0.02" });
        let mut account = sums("0.015");
        account["account"] = json!("acme");
        account["keys"] = json!([{ "key": "k1", "eur": "0.015", "requests": 1 }]);
        account["models"] = json!([{ "model": "m", "eur": "0.015", "requests": 1 }]);
        json!({ "month": "2026-11", "from": "2026-11-01", "to": "2026-11-30", "accounts": [account] })
    }

    #[test]
    fn without_names_there_is_no_column_for_them() {
        let text = statement_csv(&statement(), None, CsvStyle::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("month,of,account,key,model,requests,"), "{text}");
        assert!(lines[2].starts_with("2026-11,key,acme,k1,,1,"), "{text}");
        assert!(lines[2].ends_with(",2026-11-01T00:00:00Z,2026-12-01T00:00:00Z"), "{text}");
    }

    #[test]
    fn a_page_has_seller_customer_and_period() {
        let parties = json!({ "issuer": { "name": "Seller SAS" }, "customer": { "name": "ACME" }, "created": "2027-01-02T00:00:00Z" });
        let mut of_year = statement();
        (of_year["month"], of_year["from"]) = (Value::Null, json!("2026-01-01"));
        let blocks = statement_blocks(&of_year, &parties, &BTreeMap::new(), "/dashboard/statement");
        let language = crate::Language::English;
        let page = crate::Page::without_session("/", language, "/", "Statement", blocks).to_html();
        for expected in [
            "Seller SAS",
            "ACME",
            "Period <span class=\"day\">2026-01-01</span> to ",
            "csv?from=2026-01-01&#38;to=2026-11-30",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
    }

    #[test]
    fn a_row_is_there_for_the_account_each_key_and_each_model() {
        let names = BTreeMap::from([("k1".to_owned(), "Büro; 1".to_owned())]);
        let style = CsvStyle::parse(Some(";"), Some(",")).unwrap();
        let text = statement_csv(&statement(), Some(&names), style);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("month;of;account;key;key_name;model;requests;"), "{text}");
        assert!(
            lines[1].starts_with("2026-11;account;acme;;;;1;") && lines[1].contains(";0,015;0,02;"),
            "{text}"
        );
        assert!(lines[2].starts_with("2026-11;key;acme;k1;\"Büro; 1\";;1;"), "{text}");
        assert!(lines[3].starts_with("2026-11;model;acme;;;m;1;"), "{text}");
    }

    #[test]
    fn the_amounts_of_rows_are_exact_and_only_the_total_is_rounded() {
        let row = |key: &str, eur: &str| json!({ "key": key, "eur": eur, "eur_rounded": "0.00" });
        let account = json!({ "eur": "0.0081", "eur_rounded": "0.01", "keys": [row("a", "0.004"), row("b", "0.0041")] });
        let table = sums_table(("Keys", "Key"), &account, "keys", |row| text(row, "key"));
        let amounts = table.rows.iter().map(|row| row.last().unwrap().text.render(crate::Language::English));
        assert_eq!(amounts.collect::<Vec<_>>(), ["0.004", "0.0041", "0.01"]);
    }

    #[test]
    fn requests_without_a_charge_are_counted_in_the_tile() {
        let account = json!({ "requests": 166, "requests_not_charged": 14 });
        let tiles = tiles(&account);
        let shown = [&tiles[1].value, &tiles[1].detail].map(|text| text.render(crate::Language::English));
        assert_eq!(shown, ["180", "14 without a charge"]);
    }

    #[test]
    fn a_month_without_entries_has_a_heading_only() {
        let empty = json!({ "month": "2026-11", "accounts": [] });
        assert_eq!(statement_csv(&empty, None, CsvStyle::default()).lines().count(), 1);
        assert!(!statement_blocks(&empty, &json!({}), &BTreeMap::new(), "/dashboard/statement").is_empty());
    }
}
