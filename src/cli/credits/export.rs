//! `penstock credits export`: the entries of the ledger, as JSON lines or CSV, to a file or standard output.

use super::LedgerBackend;
use crate::billing::entry_pages::parse_position;
use crate::cli::output::{print_stderr, print_stdout};
use crate::cli::statement;
use clap::{Args, ValueEnum};
use penstock_core::entry_number::chain_of;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,
    /// Only entries after this entry number; several with commas, as an export prints them, for a ledger of a fleet
    #[arg(long, default_value = "0")]
    after: ExportPosition,
    /// File to write to instead of standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Position in the entries of all chains.
#[derive(Clone, Debug)]
enum ExportPosition {
    /// Entry after which the export continues in the order of time.
    Entry(u64),
    /// Last entry of each chain.
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

/// Writes the position as the gateway reads it: several numbers begin with 0, so that they differ from one.
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

    /// Sentence with the option that continues the export, where it is more than the last number.
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
}

/// CSV columns of an export: every member that an entry may have.
const COLUMNS: [&str; 30] = [
    "seq",
    "at",
    "act",
    "account",
    "key",
    "request",
    "id",
    "wallet",
    "amount",
    "held",
    "of",
    "what",
    "was",
    "eur",
    "model",
    "provider",
    "terms",
    "batch",
    "input",
    "cached",
    "output",
    "reasoning",
    "counted",
    "images",
    "seconds",
    "billable_kwh",
    "kwh",
    "g_co2",
    "litres",
    "why",
];

/// Writes the entries, page after page.
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
        write(statement::csv_heading(&COLUMNS).as_bytes())?;
    }
    let (mut position, mut entries) = (export.after.clone(), 0_u64);
    loop {
        let lines = backend.lines(&position.to_string())?;
        let mut is_end = true;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let entry: Value = serde_json::from_slice(line)
                .map_err(|_| "A received line is not an entry of the ledger.".to_owned())?;
            if let Some(number) = entry.get("seq").and_then(Value::as_u64) {
                position.advance(number);
                is_end = false;
            }
            entries += 1;
            match export.format {
                ExportFormat::Jsonl => write(line)?,
                ExportFormat::Csv => write(statement::csv_row(&COLUMNS, &entry).as_bytes())?,
            }
        }
        if is_end {
            break;
        }
    }
    print_stderr(&format!("{entries} entries.{}\n", position.hint()));
    Ok(())
}

fn write_error(error: &std::io::Error) -> String {
    format!("The export cannot be written: {error}.")
}
