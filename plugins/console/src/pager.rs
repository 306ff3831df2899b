//! Size of a page: each of its long tables shows as many rows as fit, with a link to the next ones. Documents to print,
//! such as invoices, and what a person has typed are shown whole.

use crate::block::{Block, Cell, Form, Table};
use crate::format::html_length;
use crate::language::Language;
use crate::page::Page;
use crate::text::Text;
use crate::texts;

/// Maximum size of a page, in bytes. With the compressed files of the console it is less than 100 KB.
pub(crate) const MAX_PAGE_BYTES: usize = 78_000;
/// Size of the links below a table, in bytes, without their query.
const LINK_BYTES: usize = 300;
/// Size of a cell without its texts, in bytes.
const CELL_BYTES: usize = 55;
/// Size of the mark of the day in a time, in bytes.
const TIME_BYTES: usize = 40;
/// Size of a button without its texts, in bytes.
const BUTTON_BYTES: usize = 330;
/// Query parameter with the table and the first row to show.
const PARAMETER: &str = "rows";

/// Position that the query of a page selects: a table of the page and the first row to show. All other tables show
/// their first rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPosition {
    /// Index of the table or code block among those of the page.
    table: usize,
    /// Index of its first row.
    first: usize,
}

impl RowPosition {
    fn from_query(query: &[(String, String)]) -> Option<Self> {
        let (_, text) = query.iter().find(|(name, _)| name == PARAMETER)?;
        let (table, first) = text.split_once('.')?;
        let first = first.parse().ok().filter(|first| *first > 0)?;
        Some(Self { table: table.parse().ok()?, first })
    }
}

/// Rows of a table or lines of a code block.
enum Rows<'b> {
    Table(&'b mut Table),
    Code(&'b mut String),
}

impl Rows<'_> {
    /// Returns the estimated size of each row in HTML, in bytes.
    fn sizes(&self, page: &Page) -> Vec<usize> {
        match self {
            Self::Table(table) => {
                let labels =
                    if table.stacks_on_narrow_screens() { label_bytes(table, page.language) } else { 0 };
                let size = |row: &Vec<Cell>| row.iter().map(|cell| cell_bytes(cell, page)).sum::<usize>();
                table.rows.iter().map(|row| labels + size(row) + 10).collect()
            }
            Self::Code(text) => text.split_inclusive('\n').map(html_length).collect(),
        }
    }

    /// Keeps `count` rows from index `first` on and removes all others.
    fn keep(&mut self, first: usize, count: usize) {
        match self {
            Self::Table(table) => table.rows = table.rows.drain(..).skip(first).take(count).collect(),
            Self::Code(text) => **text = text.split_inclusive('\n').skip(first).take(count).collect(),
        }
    }
}

fn rows_of(block: &mut Block) -> Option<Rows<'_>> {
    match block {
        Block::Table(table) => Some(Rows::Table(table)),
        Block::Code(text) => Some(Rows::Code(text)),
        _ => None,
    }
}

fn label_bytes(table: &Table, language: Language) -> usize {
    let label = |heading: &&'static str| html_length(texts::translate(heading, language)) + 14;
    table.headings.iter().map(label).sum()
}

fn cell_bytes(cell: &Cell, page: &Page) -> usize {
    let shown = |text: &Text| html_length(&text.render(page.language));
    let link = cell.href.as_deref().map_or(0, |href| html_length(href) + 15);
    let time = if matches!(cell.text, Text::Time(_)) { TIME_BYTES } else { 0 };
    let links: usize = cell
        .links
        .iter()
        .map(|(href, text)| html_length(href) + html_length(&text.render(page.language)) + 20)
        .sum();
    let button = cell.action.as_ref().map_or(0, |form| button_bytes(form, page));
    CELL_BYTES + shown(&cell.text) + shown(&cell.exact) + link + links + time + button
}

fn button_bytes(form: &Form, page: &Page) -> usize {
    let tokens = page.user.as_ref().map_or(0, |user| user.form_token.len() + user.form_id.len());
    let fields = form.fields.iter().map(|field| 50 + field.name.len() + html_length(&field.value));
    BUTTON_BYTES + tokens + html_length(&form.action) + fields.sum::<usize>()
}

/// Shares a budget among tables of these sizes: a small table leaves the rest of its share to the others.
fn share_budget(sizes: &[usize], mut budget: usize) -> Vec<usize> {
    let mut shares = vec![0; sizes.len()];
    let mut order: Vec<(usize, &mut usize)> = sizes.iter().copied().zip(&mut shares).collect();
    order.sort_by_key(|(size, _)| *size);
    let mut left = order.len();
    for (size, share) in order {
        *share = size.min(budget / left.max(1));
        budget = budget.saturating_sub(*share);
        left = left.saturating_sub(1);
    }
    shares
}

impl Page {
    /// Returns true if the query selects a later part of a table: rows after the first ones.
    pub(crate) fn starts_after_first_row(&self) -> bool {
        RowPosition::from_query(&self.query).is_some()
    }

    /// Returns true for a page that is printed as a whole.
    pub(crate) fn is_print_document(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::RunningHeader(_)))
    }

    /// Returns the page with the rows that its size permits.
    pub(crate) fn with_limited_tables(&self) -> Self {
        let position = RowPosition::from_query(&self.query);
        let mut page = self.clone();
        let mut sizes: Vec<Vec<usize>> = Vec::new();
        for block in &mut page.blocks {
            let Some(mut rows) = rows_of(block) else { continue };
            let first = position.filter(|position| position.table == sizes.len());
            if let Some(position) = first {
                rows.keep(position.first, usize::MAX);
            }
            sizes.push(rows.sizes(self));
        }
        let totals: Vec<usize> = sizes.iter().map(|rows| rows.iter().sum()).collect();
        let links = sizes.len() * (LINK_BYTES + self.query_text(None).len() + self.address.len());
        let fixed = page.without_rows().render_all_rows().len() + links;
        let shares = share_budget(&totals, MAX_PAGE_BYTES.saturating_sub(fixed));
        let mut blocks = Vec::new();
        let mut table = 0;
        for mut block in std::mem::take(&mut page.blocks) {
            let mut links = Vec::new();
            if let (Some(mut rows), Some(of), Some(share)) =
                (rows_of(&mut block), sizes.get(table), shares.get(table))
            {
                let first = position.filter(|position| position.table == table).map_or(0, |at| at.first);
                let count = fitting_rows(of, *share);
                if first > 0 {
                    links.push((self.row_address(None), "First page".into()));
                }
                if count < of.len() {
                    rows.keep(0, count);
                    if let Rows::Table(table) = &mut rows {
                        table.next = None;
                    }
                    let next = RowPosition { table, first: first + count };
                    links.push((self.row_address(Some(next)), "Next page".into()));
                }
                table += 1;
            }
            blocks.push(block);
            blocks.extend((!links.is_empty()).then_some(Block::Links(links)));
        }
        page.blocks = blocks;
        page
    }

    /// Returns the page without the rows of tables and without the lines of code blocks.
    fn without_rows(&self) -> Self {
        let mut page = self.clone();
        for mut rows in page.blocks.iter_mut().filter_map(rows_of) {
            rows.keep(0, 0);
        }
        page
    }

    /// Returns the path and the query of the page that starts at this position; `None` selects the first rows.
    fn row_address(&self, position: Option<RowPosition>) -> String {
        let path = self.address.split('?').next().unwrap_or_default();
        match self.query_text(position) {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    fn query_text(&self, position: Option<RowPosition>) -> String {
        let position = position.map(|position| format!("{PARAMETER}={}.{}", position.table, position.first));
        let others = self.query.iter().filter(|(name, _)| name != PARAMETER);
        let encode = crate::pages::percent_encode;
        let others = others.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        others.chain(position).collect::<Vec<_>>().join("&")
    }
}

/// Returns the number of rows from the start that fit into `share` bytes; at least one unless there are none.
fn fitting_rows(sizes: &[usize], share: usize) -> usize {
    let mut size = 0;
    let fits = |row: &&usize| {
        size += **row;
        size <= share
    };
    sizes.iter().take_while(fits).count().max(1).min(sizes.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn table(rows: usize, text: &str) -> Block {
        let rows = (0..rows).map(|row| vec![Cell::text(format!("{row}{text}")), Cell::text("Keys")]);
        Block::Table(Table { headings: vec!["Name", "Keys"], rows: rows.collect(), ..Table::default() })
    }

    fn page(blocks: Vec<Block>, query: &str) -> Page {
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let page = Page::without_session("/console/", Language::French, "/console/users", "Users", blocks);
        Page { query, ..page }
    }

    #[test]
    fn a_long_table_is_shown_in_parts_that_have_each_row_once() {
        let (rows, long) = (900, "<".repeat(200));
        let mut seen = Vec::new();
        let mut query = "by=model".to_owned();
        for _ in 0..100 {
            let html = page(vec![table(2, "x"), table(rows, &long)], &query).to_html();
            assert!(html.len() <= MAX_PAGE_BYTES, "{} bytes", html.len());
            let shown = html.split("<td class=\"long\">").skip(1);
            seen.extend(shown.filter_map(|cell| cell.split("&#60;").next()?.parse::<usize>().ok()));
            let Some((_, next)) = html.split_once("users?by=model&#38;rows=1.") else { break };
            query = format!("by=model&rows=1.{}", next.split('"').next().unwrap_or_default());
        }
        assert_eq!(seen, (0..rows).collect::<Vec<_>>());
    }

    #[test]
    fn a_short_page_and_a_document_are_whole() {
        let short = page(vec![table(40, "x")], "").to_html();
        assert!(!short.contains("rows="), "{short}");
        let document = page(vec![Block::RunningHeader("Keys".into()), table(9_000, "x")], "").to_html();
        assert!(document.contains("8999x") && !document.contains("rows="));
    }

    #[test]
    fn the_lines_of_a_configuration_are_shown_in_parts() {
        let lines: String = (0..20_000).map(|line| format!("key = {line}\n")).collect();
        let first = page(vec![Block::Code(lines.clone())], "").to_html();
        assert!(first.contains("key = 0\n") && first.contains("rows=0.") && first.len() <= MAX_PAGE_BYTES);
        let last = page(vec![Block::Code(lines)], "rows=0.19998").to_html();
        assert!(last.contains("key = 19999\n") && !last.contains("key = 19997\n"), "{last}");
    }

    #[test]
    fn a_small_table_leaves_its_share_to_the_others() {
        assert_eq!(share_budget(&[900, 10, 900], 210), [100, 10, 100]);
        assert_eq!(share_budget(&[], 10), [0; 0]);
        assert_eq!(
            (fitting_rows(&[5, 5, 5], 11), fitting_rows(&[50, 5], 11), fitting_rows(&[], 0)),
            (2, 1, 0)
        );
    }

    #[test]
    fn a_position_beyond_the_end_shows_no_rows_and_an_invalid_one_is_the_first_page() {
        assert!(page(vec![table(3, "x")], "rows=0.99").to_html().contains("Première page"));
        for query in ["rows=0.0", "rows=x.1", "rows=1", "rows=-1.5"] {
            assert!(page(vec![table(3, "x")], query).to_html().contains("2x"), "{query}");
        }
    }
}
