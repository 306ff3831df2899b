//! `penstock credits export`: the entries of the ledger, as JSON lines or CSV, to a file or standard output.

use super::LedgerBackend;
use crate::cli::output::{print_stderr, print_stdout};
use crate::cli::statement;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,
    /// Only entries after this entry number
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// File to write to instead of standard output
    #[arg(long, short)]
    output: Option<PathBuf>,
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
    let (mut after, mut entries) = (export.after, 0_u64);
    loop {
        let lines = backend.lines(after)?;
        let mut last = None;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let entry: Value = serde_json::from_slice(line)
                .map_err(|_| "A received line is not an entry of the ledger.".to_owned())?;
            last = entry.get("seq").and_then(Value::as_u64);
            entries += 1;
            match export.format {
                ExportFormat::Jsonl => write(line)?,
                ExportFormat::Csv => write(statement::csv_row(&COLUMNS, &entry).as_bytes())?,
            }
        }
        match last {
            Some(last) => after = last,
            None => break,
        }
    }
    print_stderr(&format!("{entries} entries.\n"));
    Ok(())
}

fn write_error(error: &std::io::Error) -> String {
    format!("The export cannot be written: {error}.")
}
