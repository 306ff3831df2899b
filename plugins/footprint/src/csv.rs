//! Reader of the shipped tables: comma-separated records (RFC 4180) with a header, `#` before a comment.

use csv::{ReaderBuilder, Trim};

/// Returns the rows below the header, each with its line number (from 1).
///
/// # Errors
/// Returns a sentence if the header differs from the expected one, or a row cannot be read.
pub(crate) fn parse_rows(table: &str, header: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let table = table.strip_prefix('\u{feff}').unwrap_or(table);
    let first = table.lines().next().unwrap_or_default().trim_end();
    if first != header {
        return Err(format!("line 1: the header must be `{header}`, not `{first}`"));
    }
    let mut reader =
        ReaderBuilder::new().comment(Some(b'#')).flexible(true).trim(Trim::All).from_reader(table.as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line =
            record.position().map_or(0, |position| usize::try_from(position.line()).unwrap_or(usize::MAX));
        if record.iter().any(|cell| !cell.is_empty()) {
            rows.push((line, record.iter().map(str::to_owned).collect()));
        }
    }
    Ok(rows)
}
