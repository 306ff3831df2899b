//! Tables for people: columns as wide as their widest cell.

/// Formats a table with a heading; a row may have fewer cells than the heading.
pub fn format_table(heading: &[&str], rows: &[Vec<String>]) -> String {
    TablePages::new(heading).format_page(rows)
}

/// Table that is formatted page by page, for listings larger than the memory. A column becomes wider if a page has a
/// wider cell, but never becomes narrower again.
pub struct TablePages<'a> {
    heading: &'a [&'a str],
    widths: Vec<usize>,
    is_begun: bool,
}

impl<'a> TablePages<'a> {
    /// Creates a table without rows.
    pub fn new(heading: &'a [&'a str]) -> Self {
        let widths = heading.iter().map(|head| head.chars().count()).collect();
        Self { heading, widths, is_begun: false }
    }

    /// Formats the next rows; the first page begins with the heading. A row may have fewer cells than the heading.
    pub fn format_page(&mut self, rows: &[Vec<String>]) -> String {
        for row in rows {
            for (cell, width) in row.iter().zip(&mut self.widths) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            text.push_str(&line(self.heading.iter().copied(), &self.widths));
        }
        for row in rows {
            text.push_str(&line(row.iter().map(String::as_str), &self.widths));
        }
        text
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.zip(widths) {
        text.push_str(&format!("{cell:width$}  "));
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_one_heading_and_columns_that_never_become_narrower() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let heading = ["ID", "NAME"];
        let mut pages = TablePages::new(&heading);
        assert_eq!(pages.format_page(&[row(["1", "a"])]), "ID  NAME\n1   a\n");
        assert_eq!(pages.format_page(&[row(["1000", "b"]), row(["2", "c"])]), "1000  b\n2     c\n");
        assert_eq!(pages.format_page(&[row(["3", "d"])]), "3     d\n");
        assert_eq!(TablePages::new(&heading).format_page(&[]), "ID  NAME\n");
    }
}
