//! Exports for accountants: usage, charges by provider and day, and the entries of the ledger; and the page of the
//! ledger that links to them.

use super::{day, quantity_cell, rows, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, Table};
use crate::csv::{CsvColumn, CsvStyle, CsvTable};
use crate::text::Text;
use serde_json::Value;

/// Figures of a row of usage for everyone who may see usage.
const USAGE_COLUMNS: [CsvColumn; 14] = [
    ("requests", true),
    ("requests_not_charged", true),
    ("batch_requests", true),
    ("input_tokens", true),
    ("cached_input_tokens", true),
    ("output_tokens", true),
    ("images", true),
    ("audio_seconds", true),
    ("energy_kwh", true),
    ("failed_energy_kwh", true),
    ("carbon_g_co2", true),
    ("carbon_g_co2_low", true),
    ("carbon_g_co2_high", true),
    ("water_liters", true),
];
/// Amounts of money and of wallets in a row of usage.
const MONEY_COLUMNS: [CsvColumn; 3] = [("credits", true), ("charged_kwh", true), ("eur", true)];
/// Columns of the entries of the ledger. Amounts have a column for each wallet, so that each column has one unit.
const LEDGER_COLUMNS: &[CsvColumn] = &[
    ("entry", true),
    ("at", false),
    ("act", false),
    ("account", false),
    ("wallet", false),
    ("charged_credits", true),
    ("charged_kwh", true),
    ("eur", true),
    ("granted_credits", true),
    ("granted_kwh", true),
    ("amount_credits", true),
    ("amount_kwh", true),
    ("held_credits", true),
    ("held_kwh", true),
    ("was_credits", true),
    ("was_kwh", true),
    ("from_entry", true),
    ("request", false),
    ("key", false),
    ("model", false),
    ("provider", false),
    ("batch", false),
    ("input_tokens", true),
    ("cached_input_tokens", true),
    ("output_tokens", true),
    ("reasoning_tokens", true),
    ("counted", false),
    ("images", true),
    ("audio_seconds", true),
    ("billable_kwh", true),
    ("kwh", true),
    ("failed_kwh", true),
    ("g_co2", true),
    ("g_co2_low", true),
    ("g_co2_high", true),
    ("litres", true),
    ("id", false),
    ("what", false),
    ("why", false),
    ("by", false),
    ("terms", false),
];

/// Formats usage as CSV: a row for each group, whose dimensions come first. Amounts of money and of wallets are
/// left out without `with_money`.
#[must_use]
pub fn usage_csv(usage: &Value, dimensions: &[&'static str], with_money: bool, style: CsvStyle) -> String {
    let money = MONEY_COLUMNS.into_iter().filter(|_| with_money);
    let figures = USAGE_COLUMNS.into_iter().chain(money);
    let columns = dimensions.iter().map(|name| (*name, false)).chain(figures).collect();
    let mut table = CsvTable::new(style, columns);
    rows(usage).iter().for_each(|row| table.add_row(row));
    table.into_text()
}

/// Members of a ledger entry that are amounts in the unit of its wallet, each with its column for credits and its
/// column for kWh.
const WALLET_COLUMNS: [(&str, [&str; 2]); 5] = [
    ("charged", ["charged_credits", "charged_kwh"]),
    ("granted", ["granted_credits", "granted_kwh"]),
    ("amount", ["amount_credits", "amount_kwh"]),
    ("held", ["held_credits", "held_kwh"]),
    ("was", ["was_credits", "was_kwh"]),
];
/// Members of a ledger entry whose columns have a unit in their names, each with its column.
const UNIT_COLUMNS: [(&str, &str); 5] = [
    ("input", "input_tokens"),
    ("cached", "cached_input_tokens"),
    ("output", "output_tokens"),
    ("reasoning", "reasoning_tokens"),
    ("seconds", "audio_seconds"),
];

/// Adds an entry of the ledger to the CSV.
pub fn add_ledger_entry(table: &mut CsvTable, entry: &Value) {
    let Value::Object(members) = entry else { return };
    let wallet = usize::from(text(entry, "wallet") == "energy");
    let column = |name: &str| {
        let amount = WALLET_COLUMNS.iter().find(|(member, _)| *member == name);
        let amount = amount.and_then(|(_, columns)| columns.get(wallet));
        let with_unit = UNIT_COLUMNS.iter().find(|(member, _)| *member == name).map(|(_, column)| column);
        amount.or(with_unit).map_or_else(|| name.to_owned(), |column| (*column).to_owned())
    };
    let row: serde_json::Map<String, Value> =
        members.iter().map(|(name, value)| (column(name), value.clone())).collect();
    table.add_row(&Value::Object(row));
}

/// Creates a CSV table with the columns of ledger entries and without rows.
#[must_use]
pub fn new_ledger_csv(style: CsvStyle) -> CsvTable {
    CsvTable::new(style, LEDGER_COLUMNS.to_vec())
}

/// Form that selects the period and the account of the exports; `value` returns the value of a field.
#[must_use]
pub fn ledger_period_form(path: &str, value: impl Fn(&str) -> String) -> Form {
    let mut form = Form::new(path, "Period", "Show")
        .with_field(Field::new("from", "First day, UTC").with_kind(FieldKind::Date).with_value(value("from")))
        .with_field(Field::new("to", "Last day, UTC").with_kind(FieldKind::Date).with_value(value("to")))
        .with_field(
            Field::new("account", "Account")
                .with_value(value("account"))
                .with_help("Empty for all accounts."),
        );
    form.is_query = true;
    form
}

/// Charges by provider and by day, with links to the exports.
#[must_use]
pub fn ledger_export_blocks(providers: &Value, days: &Value, account: &str) -> Vec<Block> {
    let mut query = format!("from={}&to={}", text(providers, "from"), text(providers, "to"));
    if !account.is_empty() {
        query.push_str(&format!("&account={}", super::percent_encode(account)));
    }
    let comma = "&separator=;&decimal=,";
    let link = |name: &str, more: &str| format!("/console/{name}.csv?{query}{more}");
    vec![
        Block::Prose("Compare these sums with the invoices of the providers. The ledger has what customers were charged; purchase prices are not part of the configuration.".into()),
        Block::Table(charge_table(providers, "provider", "Charges by provider, {0} to {1}", "Provider")),
        Block::Table(charge_table(days, "day", "Charges by day, {0} to {1}", "Day")),
        Block::Links(vec![
            (link("reconciliation", ""), "Charges by provider and day: CSV, decimal point".into()),
            (link("reconciliation", comma), "Charges by provider and day: CSV, semicolon and decimal comma".into()),
            (link("ledger", ""), "Ledger entries: CSV, decimal point".into()),
            (link("ledger", comma), "Ledger entries: CSV, semicolon and decimal comma".into()),
        ]),
    ]
}

fn charge_table(usage: &Value, member: &'static str, title: &'static str, heading: &'static str) -> Table {
    let figures = |row: &Value| {
        [
            quantity_cell(row, "requests", ""),
            quantity_cell(row, "requests_not_charged", ""),
            quantity_cell(row, "input_tokens", ""),
            quantity_cell(row, "output_tokens", ""),
            quantity_cell(row, "energy_kwh", "kWh"),
            quantity_cell(row, "credits", "credits"),
            quantity_cell(row, "charged_kwh", "kWh"),
            Cell::number(super::exact_text(row, "eur", "EUR")),
        ]
    };
    let name = |row: &Value| match (member, text(row, member)) {
        ("day", day) => Text::Day(day),
        (_, name) if name.is_empty() => "not answered".into(),
        (_, name) => Text::Data(name),
    };
    let row = |row: &Value| std::iter::once(Cell::text(name(row))).chain(figures(row)).collect::<Vec<_>>();
    let mut shown: Vec<Vec<Cell>> = rows(usage).iter().map(row).collect();
    if let Some(total) = usage.get("total").filter(|_| !shown.is_empty()) {
        shown.push(std::iter::once(Cell::text("Total")).chain(figures(total)).collect());
    }
    Table {
        title: Text::with_values(title, [day(usage, "from"), day(usage, "to")]),
        headings: vec![
            heading,
            "Charged requests",
            "Without a charge",
            "Input tokens",
            "Output tokens",
            "Energy",
            "Credits",
            "Charged energy",
            "Charged",
        ],
        rows: shown,
        empty_text: "There is no usage in this period.",
        next: None,
        is_screen_only: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn usage_has_its_dimensions_first_and_money_only_for_those_who_may_see_it() {
        let usage = json!({ "data": [{ "day": "2026-11-01", "model": "m", "requests": 3, "eur": 0.25 }] });
        let csv = usage_csv(&usage, &["day", "model"], true, CsvStyle::default());
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("day,model,requests,") && lines[0].ends_with(",eur"), "{csv}");
        assert!(lines[1].starts_with("2026-11-01,m,3,") && lines[1].ends_with(",0.25"), "{csv}");
        let csv = usage_csv(&usage, &["day"], false, CsvStyle::default());
        assert_eq!(
            csv.lines().next().unwrap_or_default(),
            "day,requests,requests_not_charged,batch_requests,input_tokens,cached_input_tokens,output_tokens,images,\
             audio_seconds,energy_kwh,failed_energy_kwh,carbon_g_co2,carbon_g_co2_low,carbon_g_co2_high,water_liters"
        );
    }

    #[test]
    fn the_tokens_of_an_entry_have_their_number_of_reasoning_and_their_source() {
        let mut csv = new_ledger_csv(CsvStyle::default());
        let entry = json!({ "entry": 8, "output": 12, "reasoning": 5, "counted": true });
        add_ledger_entry(&mut csv, &entry);
        let text = csv.into_text();
        assert!(
            text.contains(",output_tokens,reasoning_tokens,counted,") && text.contains(",12,5,true,"),
            "{text}"
        );
    }

    #[test]
    fn an_entry_of_the_ledger_is_one_row() {
        let mut csv = new_ledger_csv(CsvStyle::default());
        let entry = |wallet: &str| {
            json!({ "entry": 7, "at": "2026-11-01T00:00:00Z", "act": "settle", "wallet": wallet,
            "charged": "1.5", "amount": "1.5", "held": "2", "id": "=1" })
        };
        add_ledger_entry(&mut csv, &entry("credits"));
        add_ledger_entry(&mut csv, &entry("energy"));
        let text = csv.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("7,2026-11-01T00:00:00Z,settle,") && lines[1].contains(",'=1,"),
            "{text}"
        );
        let cell = |line: &str, name: &str| {
            let column = lines[0].split(',').position(|column| column == name);
            column.and_then(|column| line.split(',').nth(column)).map(str::to_owned)
        };
        for (line, credits, energy) in [(lines[1], "2", ""), (lines[2], "", "2")] {
            assert_eq!(cell(line, "held_credits").as_deref(), Some(credits), "{text}");
            assert_eq!(cell(line, "held_kwh").as_deref(), Some(energy), "{text}");
        }
        assert_eq!(cell(lines[2], "charged_kwh").as_deref(), Some("1.5"), "{text}");
    }
}
