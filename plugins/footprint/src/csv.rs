//! Parser of comma-separated lines in the format of the shipped tables: quotes around a cell with a comma, a doubled
//! quote inside. No line breaks in cells.

/// Splits one line into its cells.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut marks = line.chars().peekable();
    while let Some(mark) = marks.next() {
        match mark {
            '"' if quoted && marks.peek() == Some(&'"') => {
                marks.next();
                add(&mut cells, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => add(&mut cells, other),
        }
    }
    cells
}

fn add(cells: &mut [String], mark: char) {
    if let Some(cell) = cells.last_mut() {
        cell.push(mark);
    }
}

/// Returns the rows below the header, each with its line number (from 1).
///
/// # Errors
/// Returns a sentence if the header differs from the expected one.
pub(crate) fn rows(csv: &str, header: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let csv = csv.strip_prefix('\u{feff}').unwrap_or(csv);
    let mut lines = csv.lines().zip(1..);
    let first = lines.next().map_or("", |(line, _)| line.trim_end());
    if first != header {
        return Err(format!("line 1: the header must be `{header}`, not `{first}`"));
    }
    Ok(lines
        .filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(line, number)| (number, cells(line.trim_end())))
        .collect())
}
