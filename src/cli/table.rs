//! Tables for people: columns as wide as their widest cell.

/// Formats a table with a heading; rows may have fewer cells.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|head| head.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = line(heading.iter().copied(), &widths);
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str), &widths));
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.zip(widths) {
        text.push_str(&format!("{cell:width$}  "));
    }
    format!("{}\n", text.trim_end())
}
