//! CSV (RFC 4180) for spreadsheets, with the separator and the decimal mark that are usual in the reader's country.

use csv::{Terminator, WriterBuilder};
use serde_json::Value;
use std::borrow::Cow;

/// Separator of the columns and decimal mark of the numbers; they are different characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvStyle {
    separator: u8,
    decimal: char,
}

/// Invalid parameter of a CSV style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvStyleError {
    /// Separator that is not supported.
    UnsupportedSeparator,
    /// Decimal mark that is not supported.
    UnsupportedDecimalSeparator,
    /// The same character for the separator and the decimal mark.
    SameCharacter,
}

impl CsvStyleError {
    /// Returns the name of the invalid parameter.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::UnsupportedSeparator => "separator",
            Self::UnsupportedDecimalSeparator | Self::SameCharacter => "decimal",
        }
    }

    /// Returns the message of the error: the name of the parameter and its expected values.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::UnsupportedSeparator => "separator: expected `,`, `;` or `tab`",
            Self::UnsupportedDecimalSeparator => "decimal: expected `.` or `,`",
            Self::SameCharacter => "decimal: expected another character than the separator",
        }
    }
}

impl Default for CsvStyle {
    fn default() -> Self {
        Self { separator: b',', decimal: '.' }
    }
}

impl CsvStyle {
    /// Parses the parameters of a query. A decimal comma without a separator selects the semicolon as the separator.
    ///
    /// # Errors
    /// Returns the invalid parameter.
    pub fn parse(separator: Option<&str>, decimal: Option<&str>) -> Result<Self, CsvStyleError> {
        let decimal = match decimal {
            None | Some(".") => '.',
            Some(",") => ',',
            Some(_) => return Err(CsvStyleError::UnsupportedDecimalSeparator),
        };
        let separator = match separator {
            None if decimal == ',' => b';',
            None | Some(",") => b',',
            Some(";") => b';',
            Some("tab" | "\t") => b'\t',
            Some(_) => return Err(CsvStyleError::UnsupportedSeparator),
        };
        if char::from(separator) == decimal {
            Err(CsvStyleError::SameCharacter)
        } else {
            Ok(Self { separator, decimal })
        }
    }

    fn number(self, number: &str) -> String {
        number.replace('.', &self.decimal.to_string())
    }
}

/// Formats a record of CSV text, with its line break (CR LF). The separator is an ASCII character.
#[must_use]
pub fn csv_record<I: AsRef<[u8]>>(cells: impl IntoIterator<Item = I>, separator: u8) -> String {
    let mut writer =
        WriterBuilder::new().delimiter(separator).terminator(Terminator::CRLF).from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(cells);
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns the text, with an apostrophe in front if a spreadsheet would evaluate it as a formula.
#[must_use]
pub fn escape_formula(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}").into() } else { text.into() }
}

/// CSV text that grows row by row.
#[derive(Clone, Debug)]
pub struct CsvTable {
    style: CsvStyle,
    columns: Vec<CsvColumn>,
    text: String,
}

/// Column: name of the JSON member, and true if it is a number.
pub type CsvColumn = (&'static str, bool);

impl CsvTable {
    /// Creates a table with a heading row.
    #[must_use]
    pub fn new(style: CsvStyle, columns: Vec<CsvColumn>) -> Self {
        let heading: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut table = Self { style, columns, text: String::new() };
        table.add_line(&heading);
        table
    }

    /// Adds a row with the JSON members of the columns; a missing member is an empty cell.
    pub fn add_row(&mut self, row: &Value) {
        let style = self.style;
        let cells = self.columns.iter().map(|(name, is_number)| match row.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) if *is_number && is_decimal(text) => style.number(text),
            Some(Value::String(text)) => escape_formula(text).into_owned(),
            Some(other) if *is_number => style.number(&other.to_string()),
            Some(other) => escape_formula(&other.to_string()).into_owned(),
        });
        let cells: Vec<String> = cells.collect();
        self.add_line(&cells);
    }

    fn add_line(&mut self, cells: &[String]) {
        self.text.push_str(&csv_record(cells, self.style.separator));
    }

    /// Returns the complete CSV text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const COLUMNS: &[CsvColumn] = &[("name", false), ("eur", true)];

    fn table(style: CsvStyle, rows: &[Value]) -> String {
        let mut table = CsvTable::new(style, COLUMNS.to_vec());
        rows.iter().for_each(|row| table.add_row(row));
        table.into_text()
    }

    #[test]
    fn a_decimal_comma_selects_the_semicolon_and_numbers_have_it() {
        let rows = [json!({ "name": "a;b", "eur": "-12.50" }), json!({ "name": "c.d", "eur": 3 })];
        let european = CsvStyle::parse(None, Some(",")).unwrap();
        assert_eq!(table(european, &rows), "name;eur\r\n\"a;b\";-12,50\r\nc.d;3\r\n");
        assert_eq!(table(CsvStyle::default(), &rows), "name,eur\r\na;b,-12.50\r\nc.d,3\r\n");
    }

    #[test]
    fn a_text_is_never_a_formula() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"] {
            let line = table(CsvStyle::default(), &[json!({ "name": text, "eur": text })]);
            let cells = line.lines().nth(1).unwrap();
            assert!(cells.starts_with('\'') && (text == "-1" || cells.contains(",'")), "{text:?}: {cells:?}");
        }
        let quoted = table(CsvStyle::default(), &[json!({ "name": "a \"b\", c" })]);
        assert!(quoted.contains("\"a \"\"b\"\", c\","), "{quoted}");
    }

    #[test]
    fn the_separator_and_the_decimal_mark_differ() {
        assert_eq!(CsvStyle::parse(Some(","), Some(",")), Err(CsvStyleError::SameCharacter));
        assert_eq!(CsvStyle::parse(Some("|"), None), Err(CsvStyleError::UnsupportedSeparator));
        assert_eq!(CsvStyle::parse(None, Some("'")), Err(CsvStyleError::UnsupportedDecimalSeparator));
        assert!(CsvStyle::parse(Some("tab"), Some(",")).is_ok());
    }
}
