//! Output of the commands that list things: a table for people, JSON or CSV for programs.

use super::output::print_stdout;
use super::status::print_json;
use super::table::format_table;
use clap::{Args, ValueEnum};
use penstock_console::{csv_record, escape_formula};
use serde_json::Value;
use std::borrow::Cow;

/// Format of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Aligned columns
    #[default]
    Table,
    /// Rows of the admin API, with every member
    Json,
    /// Header line and one line for each row (RFC 4180)
    Csv,
}

/// Arguments that choose the format of a listing.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
    /// Print JSON; the same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl OutputArgs {
    /// Returns the chosen format.
    #[must_use]
    pub fn output_format(self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.format }
    }

    /// Prints a listing in the chosen format. `json` is called only if the format is JSON.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written to.
    pub fn print(self, listing: &Listing, json: impl FnOnce() -> Value) -> Result<(), String> {
        match self.output_format() {
            OutputFormat::Table => print_stdout(&listing.to_table()),
            OutputFormat::Csv => print_stdout(&listing.csv()),
            OutputFormat::Json => print_json(&json()),
        }
    }
}

/// Heading, and rows with as many cells as the heading.
#[derive(Debug, Default)]
pub struct Listing {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Listing {
    /// Creates a listing without rows. Headings are upper case and distinct: their lower-case form is the name of a CSV
    /// column.
    #[must_use]
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds rows to the listing; missing cells are empty.
    #[must_use]
    pub fn with_rows(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows.into_iter().map(|mut row| {
            row.resize(self.heading.len(), String::new());
            row
        }));
        self
    }

    /// Formats the listing as aligned columns under the heading.
    #[must_use]
    pub fn to_table(&self) -> String {
        format_table(&self.heading, &self.rows)
    }

    fn csv(&self) -> String {
        let names: Vec<String> = self.heading.iter().map(|name| column(name)).collect();
        let mut text = csv_line(names.iter().map(String::as_str));
        for row in &self.rows {
            text.push_str(&csv_line(row.iter().map(String::as_str)));
        }
        text
    }
}

/// Converts a heading to the name of a CSV column: `FIRST TOKEN` becomes `first_token`.
fn column(heading: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' };
    heading.chars().map(plain).collect()
}

/// Formats a line of CSV text. A text that a spreadsheet would evaluate as a formula is escaped; a negative number is
/// not a formula.
pub fn csv_line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    csv_record(cells.map(|cell| csv_cell(cell).into_owned()), b',')
}

fn csv_cell(cell: &str) -> Cow<'_, str> {
    let is_negative_number = cell.starts_with('-') && cell.parse::<f64>().is_ok();
    if is_negative_number { cell.into() } else { escape_formula(cell) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        Listing::new(&["ID", "FIRST TOKEN", "NOTE"])
            .with_rows([row(&["a", "5ms", "one, \"two\""]), row(&["=1+1", "-5"])])
    }

    #[test]
    fn csv_quotes_cells_and_never_begins_one_like_a_formula() {
        assert_eq!(listing().csv(), "id,first_token,note\r\na,5ms,\"one, \"\"two\"\"\"\r\n'=1+1,-5,\r\n");
        for cell in ["=1", "+1", "@a", "-a", "\tx", "\rx"] {
            assert!(csv_cell(cell).trim_start_matches('"').starts_with('\''), "{cell:?}");
        }
        assert_eq!(csv_cell("-0.5"), "-0.5");
        assert_eq!(csv_cell("a-b"), "a-b");
    }

    #[test]
    fn rows_are_as_wide_as_the_heading() {
        assert_eq!(
            listing().to_table(),
            "ID    FIRST TOKEN  NOTE\na     5ms          one, \"two\"\n=1+1  -5\n"
        );
    }

    #[test]
    fn json_is_a_format_under_either_name() {
        let args = |format, json| OutputArgs { format, json }.output_format();
        assert_eq!(args(OutputFormat::Table, true), OutputFormat::Json);
        assert_eq!(args(OutputFormat::Csv, false), OutputFormat::Csv);
    }
}
