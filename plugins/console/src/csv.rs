//! CSV (RFC 4180) for spreadsheets: the separator and the decimal mark are those of the reader's country.

use serde_json::Value;

/// Separator of the columns and decimal mark of the numbers; they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvStyle {
    separator: char,
    decimal: char,
}

/// Error of a style, with the parameter that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvStyleError {
    /// Separator that is none of the known ones.
    Separator,
    /// Decimal mark that is none of the known ones.
    Decimal,
    /// Separator and decimal mark that are the same.
    Same,
}

impl CsvStyleError {
    /// Returns the name of the invalid parameter.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Separator => "separator",
            Self::Decimal | Self::Same => "decimal",
        }
    }

    /// Returns the parameter with the expected value.
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Separator => "separator: expected `,`, `;` or `tab`",
            Self::Decimal => "decimal: expected `.` or `,`",
            Self::Same => "decimal: expected another character than the separator",
        }
    }
}

impl Default for CsvStyle {
    fn default() -> Self {
        Self { separator: ',', decimal: '.' }
    }
}

impl CsvStyle {
    /// Parses the parameters. A decimal comma alone selects the semicolon.
    ///
    /// # Errors
    /// Returns the invalid parameter.
    pub fn parse(separator: Option<&str>, decimal: Option<&str>) -> Result<Self, CsvStyleError> {
        let decimal = match decimal {
            None | Some(".") => '.',
            Some(",") => ',',
            Some(_) => return Err(CsvStyleError::Decimal),
        };
        let separator = match separator {
            None if decimal == ',' => ';',
            None | Some(",") => ',',
            Some(";") => ';',
            Some("tab" | "\t") => '\t',
            Some(_) => return Err(CsvStyleError::Separator),
        };
        if separator == decimal { Err(CsvStyleError::Same) } else { Ok(Self { separator, decimal }) }
    }

    /// Formats a text. One that a spreadsheet would take for a formula gets an apostrophe before it.
    fn text(self, text: &str) -> String {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        let text = if is_formula { format!("'{text}") } else { text.to_owned() };
        if text.contains([self.separator, '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }
    }

    fn number(self, number: &str) -> String {
        number.replace('.', &self.decimal.to_string())
    }
}

/// CSV text that grows row by row.
#[derive(Clone, Debug)]
pub struct CsvTable {
    style: CsvStyle,
    columns: Vec<CsvColumn>,
    text: String,
}

/// Column: name of the member, and true for a number.
pub type CsvColumn = (&'static str, bool);

impl CsvTable {
    /// Creates a table with its heading.
    #[must_use]
    pub fn new(style: CsvStyle, columns: Vec<CsvColumn>) -> Self {
        let heading: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut table = Self { style, columns, text: String::new() };
        table.add_line(&heading);
        table
    }

    /// Adds a row: the members of the columns, empty where there is none.
    pub fn add(&mut self, row: &Value) {
        let style = self.style;
        let cells = self.columns.iter().map(|(name, is_number)| match row.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) if *is_number && is_decimal(text) => style.number(text),
            Some(Value::String(text)) => style.text(text),
            Some(other) if *is_number => style.number(&other.to_string()),
            Some(other) => style.text(&other.to_string()),
        });
        let cells: Vec<String> = cells.collect();
        self.add_line(&cells);
    }

    fn add_line(&mut self, cells: &[String]) {
        self.text.push_str(&cells.join(self.style.separator.encode_utf8(&mut [0; 4])));
        self.text.push_str("\r\n");
    }

    /// Returns the text.
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
        rows.iter().for_each(|row| table.add(row));
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
        assert_eq!(CsvStyle::parse(Some(","), Some(",")), Err(CsvStyleError::Same));
        assert_eq!(CsvStyle::parse(Some("|"), None), Err(CsvStyleError::Separator));
        assert_eq!(CsvStyle::parse(None, Some("'")), Err(CsvStyleError::Decimal));
        assert!(CsvStyle::parse(Some("tab"), Some(",")).is_ok());
    }
}
