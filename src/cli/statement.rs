//! `penstock statement`: sums of a period by account, key and model, for invoices and sustainability reports.

use super::ConfigArgs;
use super::credits::LedgerBackend;
use super::listing::csv_line;
use super::output::print_stdout;
use super::status::{print_json, table_cell};
use super::table::format_table;
use clap::{Args, ValueEnum};
use penstock_console::CsvStyle;
use penstock_console::pages::statement_csv;
use serde_json::Value;
use std::fmt::Write as _;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct StatementArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    /// Month in UTC, such as 2026-11; by default the current one
    #[arg(long)]
    month: Option<String>,
    /// First day in UTC, such as 2026-01-01, instead of a month; by default the first day of the month of `--to`
    #[arg(long, conflicts_with = "month")]
    from: Option<String>,
    /// Last day in UTC, instead of a month; by default today
    #[arg(long, conflicts_with = "month")]
    to: Option<String>,
    /// Only this account
    #[arg(long)]
    account: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = StatementFormat::Table)]
    format: StatementFormat,
    /// Separator of the CSV columns: `,`, `;` or `tab`
    #[arg(long)]
    separator: Option<String>,
    /// Decimal mark of the CSV: `.`, or `,`, which alone selects the separator `;`
    #[arg(long)]
    decimal: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StatementFormat {
    /// Aligned columns for people
    #[value(alias = "text")]
    Table,
    /// One row for each account, each key and each model; sum the rows of one kind (column `of`)
    Csv,
    /// JSON for programs, with the pricing terms of all charges
    Json,
}

/// Runs `penstock statement`.
pub fn run(statement: &StatementArgs) -> Result<(), String> {
    let style = CsvStyle::parse(statement.separator.as_deref(), statement.decimal.as_deref())
        .map_err(|error| format!("--{}.", error.message()))?;
    let StatementArgs { month, from, to, account, .. } = statement;
    let optional = [("month", month), ("from", from), ("to", to), ("account", account)];
    let query: Vec<(&str, &str)> =
        optional.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let answer = LedgerBackend::connect_for_reading(&statement.reached)?.get("/admin/statement", &query)?;
    match statement.format {
        StatementFormat::Json => print_json(&answer),
        StatementFormat::Csv => print_stdout(&statement_csv(&answer, None, style)),
        StatementFormat::Table => print_stdout(&statement_text(&answer)),
    }
}

fn accounts(answer: &Value) -> &[Value] {
    answer.get("accounts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn statement_text(answer: &Value) -> String {
    let period = match answer.get("month").and_then(Value::as_str) {
        Some(month) => month.to_owned(),
        None => format!("{} to {}", table_cell(answer, "from"), table_cell(answer, "to")),
    };
    let mut text = format!("Statement of {period}, by account and key\n");
    if accounts(answer).is_empty() {
        text.push_str("\nNothing is recorded in this period.\n");
        return text;
    }
    let heading =
        ["", "REQUESTS", "FREE", "INPUT", "OUTPUT", "KWH", "G CO2E", "LITRES", "CREDITS", "KWH PAID", "EUR"];
    for account in accounts(answer) {
        // The EUR of keys and models are exact, so that they add up; only the total is rounded.
        let line = |name: String, of: &Value, eur: &str| {
            let columns = [
                "requests",
                "requests_not_charged",
                "input_tokens",
                "output_tokens",
                "energy_kwh",
                "carbon_g_co2e",
                "water_liters",
                "credits",
                "charged_kwh",
            ];
            let mut row = vec![name];
            row.extend(columns.map(|column| table_cell(of, column)));
            row.push(table_cell(of, eur));
            row
        };
        let list = |name: &str| account.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut rows = vec![line("all".to_owned(), account, "eur_rounded")];
        rows.extend(
            list("keys").iter().map(|key| line(format!("key {}", table_cell(key, "key")), key, "eur")),
        );
        rows.extend(list("models").iter().map(|model| line(table_cell(model, "model"), model, "eur")));
        let _ =
            write!(text, "\nAccount {}\n{}", table_cell(account, "account"), format_table(&heading, &rows));
        let (credits, kwh) = (table_cell(account, "granted_credits"), table_cell(account, "granted_kwh"));
        if (credits.as_str(), kwh.as_str()) != ("0", "0") {
            let _ = writeln!(text, "Granted in this period: {credits} credits, {kwh} kWh.");
        }
        let counted = table_cell(account, "requests_counted_by_gateway");
        if counted != "0" {
            let _ = writeln!(
                text,
                "The gateway counted the tokens of {counted} requests whose providers reported none."
            );
        }
    }
    let _ = writeln!(text, "\n{}", table_cell(answer, "boundary"));
    for (title, name) in [("Methodology", "methodologies"), ("Grid", "grid_sources"), ("Places", "places")] {
        let _ = writeln!(text, "{title}: {}", table_cell(answer, name));
    }
    text
}

/// Formats the heading row of a CSV text.
pub fn csv_heading(columns: &[&str]) -> String {
    csv_line(columns.iter().copied())
}

/// Formats a row of a CSV text: the members of a JSON object that the columns name.
pub fn csv_row(columns: &[&str], object: &Value) -> String {
    let cells: Vec<String> = columns.iter().map(|column| table_cell(object, column)).collect();
    csv_line(cells.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_amounts_of_rows_are_exact_and_only_the_total_is_rounded() {
        let row =
            |name: &str, value: &str, eur: &str| json!({ (name): value, "eur": eur, "eur_rounded": "0.00" });
        let mut account = row("account", "acme", "0.0081");
        account["eur_rounded"] = "0.01".into();
        account["keys"] = json!([row("key", "a", "0.004"), row("key", "b", "0.0041")]);
        let text = statement_text(&json!({ "month": "2026-11", "accounts": [account] }));
        for (row, eur) in [("all ", " 0.01"), ("key a", " 0.004"), ("key b", " 0.0041")] {
            assert!(
                text.lines().any(|line| line.starts_with(row) && line.trim_end().ends_with(eur)),
                "{row}: {text}"
            );
        }
    }
}
