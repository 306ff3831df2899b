//! `penstock statement`: sums of a month by account and key, for invoices and sustainability reports.

use super::ConfigArgs;
use super::credits::LedgerBackend;
use super::listing::csv_line;
use super::output::print_stdout;
use super::status::{print_json, table_cell};
use super::table::table;
use clap::{Args, ValueEnum};
use penstock_console::{CsvColumn, CsvStyle, CsvTable};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct StatementArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    /// Month in UTC, such as 2026-11; by default the current one
    #[arg(long)]
    month: Option<String>,
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
    /// JSON for programs, with the terms of every charge
    Json,
}

/// Runs the command.
pub fn run(monthly: &StatementArgs) -> Result<(), String> {
    let style = CsvStyle::parse(monthly.separator.as_deref(), monthly.decimal.as_deref())
        .map_err(|error| format!("--{}.", error.expected()))?;
    let month = monthly.month.iter().map(|month| ("month", month.as_str()));
    let account = monthly.account.iter().map(|account| ("account", account.as_str()));
    let query: Vec<(&str, &str)> = month.chain(account).collect();
    let answer = LedgerBackend::connect(&monthly.reached)?.get("/admin/statement", &query)?;
    match monthly.format {
        StatementFormat::Json => print_json(&answer),
        StatementFormat::Csv => print_stdout(&statement_csv(&answer, style)),
        StatementFormat::Table => print_stdout(&statement_text(&answer)),
    }
}

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
];

/// CSV with a row for each account (no key, no model), each of its keys, and each of its models. The rows of each kind
/// add up to the total; the column `of` names the kind, so that a reader does not sum all three.
fn statement_csv(answer: &Value, style: CsvStyle) -> String {
    let mut csv = CsvTable::new(style, COLUMNS);
    for account in accounts(answer) {
        let mut add = |kind: &str, of: &Value| {
            let mut row_of = of.clone();
            if let Some(members) = row_of.as_object_mut() {
                members.insert("month".to_owned(), json!(table_cell(answer, "month")));
                members.insert("of".to_owned(), json!(kind));
                members.insert("account".to_owned(), json!(table_cell(account, "account")));
            }
            csv.add(&row_of);
        };
        add("account", account);
        for (kind, list) in [("key", "keys"), ("model", "models")] {
            let rows = account.get(list).and_then(Value::as_array).into_iter().flatten();
            rows.for_each(|row| add(kind, row));
        }
    }
    csv.into_text()
}

fn accounts(answer: &Value) -> &[Value] {
    answer.get("accounts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn statement_text(answer: &Value) -> String {
    let mut text = format!("Statement of {}, by account and key\n", table_cell(answer, "month"));
    if accounts(answer).is_empty() {
        text.push_str("\nNothing is recorded in this month.\n");
        return text;
    }
    let heading =
        ["", "REQUESTS", "FREE", "INPUT", "OUTPUT", "KWH", "G CO2E", "LITRES", "CREDITS", "KWH PAID", "EUR"];
    for account in accounts(answer) {
        let line = |name: String, of: &Value| {
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
            row.push(table_cell(of, "eur_rounded"));
            row
        };
        let list = |name: &str| account.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut rows = vec![line("all".to_owned(), account)];
        rows.extend(list("keys").iter().map(|key| line(format!("key {}", table_cell(key, "key")), key)));
        rows.extend(list("models").iter().map(|model| line(table_cell(model, "model"), model)));
        let _ = write!(text, "\nAccount {}\n{}", table_cell(account, "account"), table(&heading, &rows));
        let (credits, kwh) = (table_cell(account, "granted_credits"), table_cell(account, "granted_kwh"));
        if (credits.as_str(), kwh.as_str()) != ("0", "0") {
            let _ = writeln!(text, "Granted in this month: {credits} credits, {kwh} kWh.");
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

/// Header line of a CSV text.
pub fn csv_heading(columns: &[&str]) -> String {
    format!("{}\r\n", columns.join(","))
}

/// Data line of a CSV text (RFC 4180).
pub fn csv_row(columns: &[&str], of: &Value) -> String {
    let cells: Vec<String> = columns.iter().map(|column| table_cell(of, column)).collect();
    csv_line(cells.iter().map(String::as_str))
}
