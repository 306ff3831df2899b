//! `penstock credits export`: the entries of the ledger, as JSON lines, CSV or a table, to a file or standard output.
//! Pages are written as they arrive, since a ledger may be larger than the memory.

use super::LedgerBackend;
use crate::billing::entry_pages::parse_position;
use crate::billing::format::amount_to_decimal;
use crate::cli::output::{print_stderr, print_stdout};
use crate::cli::statement;
use crate::cli::status::table_cell;
use crate::cli::table::TablePages;
use crate::time::format::format_rfc3339_rounded_up;
use clap::{Args, ValueEnum};
use penstock_core::entry_number::chain_of;
use penstock_ledger::{ENTRY_MEMBERS, Wallet};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,
    /// Only entries after this number. The ledger of a fleet has one number per gateway: use the numbers, separated by
    /// commas, that the previous export printed
    #[arg(long, default_value = "0")]
    after: ExportPosition,
    /// File to write to instead of standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Position in the ledger from which an export continues.
#[derive(Clone, Debug)]
enum ExportPosition {
    /// Number of the last exported entry. The export continues after it, in the order of time.
    Entry(u64),
    /// Number of the last exported entry of each chain.
    Chains(BTreeMap<u32, u64>),
}

impl FromStr for ExportPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_position(text).as_deref() {
            Some([number]) if *number > 0 => Ok(Self::Entry(*number)),
            Some(numbers) => {
                let mut position = Self::Chains(BTreeMap::new());
                numbers.iter().filter(|number| **number > 0).for_each(|number| position.advance(*number));
                Ok(position)
            }
            None => Err("expected the number of an entry, or several with commas between them".to_owned()),
        }
    }
}

/// Writes the position in the form that the gateway parses. A list of several numbers begins with 0, which
/// distinguishes it from a single number.
impl fmt::Display for ExportPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(number) => write!(f, "{number}"),
            Self::Chains(ends) => {
                write!(f, "0")?;
                ends.values().try_for_each(|number| write!(f, ",{number}"))
            }
        }
    }
}

impl ExportPosition {
    fn advance(&mut self, number: u64) {
        match self {
            Self::Entry(last) => *last = number,
            Self::Chains(ends) => {
                let end = ends.entry(chain_of(number)).or_default();
                *end = number.max(*end);
            }
        }
    }

    /// Returns a sentence with the option that continues the export; empty if the last entry number suffices as
    /// position.
    fn hint(&self) -> String {
        match self {
            Self::Chains(ends) if ends.len() > 1 => format!(" Continue later with --after {self}."),
            Self::Chains(_) | Self::Entry(_) => String::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExportFormat {
    /// Lines of the ledger itself, including hashes
    Jsonl,
    /// One row for each entry
    Csv,
    /// Aligned columns for people, with times in UTC and amounts in credits or kWh
    Table,
}

/// Headings of the table.
const HEADING: [&str; 11] =
    ["ENTRY", "TIME", "ACT", "ACCOUNT", "KEY", "WALLET", "AMOUNT", "EUR", "MODEL", "PROVIDER", "ID"];

/// Returns the table cells of an entry. The cell with the id contains the id of the request, grant, correction or
/// terms.
fn table_row(entry: &Value) -> Vec<String> {
    let time = entry.get("at").and_then(Value::as_u64);
    let wallet = entry.get("wallet").and_then(Value::as_str).and_then(Wallet::from_name);
    let amount = entry.get("amount").and_then(Value::as_i64).zip(wallet);
    let id = if entry.get("request").is_some() { "request" } else { "id" };
    let cell = |name: &str| table_cell(entry, name);
    vec![
        cell("seq"),
        time.map(|at| format_rfc3339_rounded_up(Duration::from_secs(at))).unwrap_or_default(),
        cell("act"),
        cell("account"),
        cell("key"),
        cell("wallet"),
        amount.map(|(amount, wallet)| amount_to_decimal(wallet, amount).to_string()).unwrap_or_default(),
        cell("eur"),
        cell("model"),
        cell("provider"),
        cell(id),
    ]
}

/// Writes the entries of the ledger in the requested format, page after page.
pub(super) fn run(backend: &LedgerBackend, export: &ExportArgs) -> Result<(), String> {
    let mut file = match &export.output {
        Some(path) => Some(std::fs::File::create(path).map_err(|error| write_error(&error))?),
        None => None,
    };
    let mut write = |bytes: &[u8]| match &mut file {
        Some(file) => file.write_all(bytes).map_err(|error| write_error(&error)),
        None => print_stdout(&String::from_utf8_lossy(bytes)),
    };
    if matches!(export.format, ExportFormat::Csv) {
        write(statement::csv_heading(&ENTRY_MEMBERS).as_bytes())?;
    }
    let mut table = TablePages::new(&HEADING);
    let (mut position, mut entries) = (export.after.clone(), 0_u64);
    loop {
        let lines = backend.read_ledger_lines(&position.to_string())?;
        let (mut is_end, mut rows) = (true, Vec::new());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let mut entry: Value = serde_json::from_slice(line)
                .map_err(|_| "A received line is not an entry of the ledger.".to_owned())?;
            restore_member_names(&mut entry);
            if let Some(number) = entry.get("seq").and_then(Value::as_u64) {
                position.advance(number);
                is_end = false;
            }
            entries += 1;
            match export.format {
                ExportFormat::Jsonl => write(line)?,
                ExportFormat::Csv => write(statement::csv_row(&ENTRY_MEMBERS, &entry).as_bytes())?,
                ExportFormat::Table => rows.push(table_row(&entry)),
            }
        }
        if matches!(export.format, ExportFormat::Table) {
            write(table.format_page(&rows).as_bytes())?;
        }
        if is_end {
            break;
        }
    }
    print_stderr(&format!("{entries} entries.{}\n", position.hint()));
    Ok(())
}

/// Gives the number of the corrected entry its present name; in some ledgers it is `from_entry`.
fn restore_member_names(entry: &mut Value) {
    let Some(members) = entry.as_object_mut() else { return };
    if let Some(number) = members.remove("from_entry") {
        members.insert("of".to_owned(), number);
    }
}

fn write_error(error: &std::io::Error) -> String {
    format!("The export cannot be written: {error}.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_correction_names_its_entry_under_either_member() {
        for name in ["of", "from_entry"] {
            let mut correction = json!({"seq": 9, "act": "correct", (name): 7, "by": "anna"});
            restore_member_names(&mut correction);
            let row = statement::csv_row(&ENTRY_MEMBERS, &correction);
            assert!(row.starts_with("9,,correct,,,,,,,,7,") && row.trim_end().ends_with(",anna,,,"), "{row}");
        }
    }

    #[test]
    fn the_table_has_times_and_amounts_for_people() {
        let settled = json!({"seq": 7, "at": 1_763_650_000, "act": "settle", "account": "acme", "key": "k",
            "request": "req_1", "wallet": "credits", "amount": 2500, "held": 9000, "eur": "0.000025",
            "model": "m", "provider": "a"});
        let cells = table_row(&settled);
        let expected = [
            "7",
            "2025-11-20T14:46:40Z",
            "settle",
            "acme",
            "k",
            "credits",
            "0.0025",
            "0.000025",
            "m",
            "a",
            "req_1",
        ];
        assert_eq!(cells, expected);
        let granted = json!({"seq": 1, "at": 0, "act": "grant", "account": "acme", "id": "invoice-7",
            "wallet": "energy", "amount": 1_500_000_000, "why": "a present"});
        let cells = table_row(&granted);
        assert_eq!((cells[6].as_str(), cells[10].as_str()), ("1.5", "invoice-7"));
        assert_eq!(cells.len(), HEADING.len());
        let terms = table_row(&json!({"seq": 2, "at": 0, "act": "terms", "id": "t"}));
        assert_eq!((terms[5].as_str(), terms[6].as_str()), ("", ""));
    }
}
