//! Credit note of an issued invoice: page for the screen and for print, its form and the list of credit notes.

use super::invoice::{
    array_member, document_number, is_draft, lines_table, notes, party_lines, totals_table,
};
use super::{day, exact_text, percent_encode, text};
use crate::block::{Block, Cell, Field, Form, NoticeKind, Table};
use crate::csv::{CsvColumn, CsvStyle, CsvTable};
use crate::text::Text;
use serde_json::Value;

/// Blocks of a credit note, with links to its downloads: `path` with the suffix `.csv` or `.json`.
#[must_use]
pub fn credit_note_blocks(note: &Value, path: &str) -> Vec<Block> {
    let heading =
        [document_number(note).to_owned().into(), customer(note).into(), text(note, "invoice").into()];
    let mut blocks =
        vec![Block::RunningHeader(Text::with_values("Credit note {0}, {1}, for invoice {2}", heading))];
    if is_draft(note) {
        blocks.push(Block::Notice(NoticeKind::Warning, "Draft without a number.".into()));
    }
    blocks.push(Block::Columns(vec![
        ("Seller".into(), party_lines(note.get("seller"))),
        ("Customer".into(), party_lines(note.get("customer"))),
        ("Credit note".into(), facts(note)),
    ]));
    if !is_draft(note) {
        let number = percent_encode(document_number(note));
        let link = |kind: &str, style: &str, name: &'static str| {
            (format!("{path}.{kind}?number={number}{style}"), name.into())
        };
        blocks.push(Block::Links(vec![
            link("csv", "", "CSV, decimal point"),
            link("csv", "&separator=%3B&decimal=%2C", "CSV, semicolon and decimal comma"),
            link("json", "", "JSON"),
        ]));
    }
    blocks.push(Block::Table(Table { title: "Corrections".into(), ..lines_table(note) }));
    blocks.push(Block::Table(totals_table(note)));
    blocks.push(Block::Columns(vec![("Notes".into(), notes(note))]));
    blocks
}

fn customer(note: &Value) -> String {
    let party = note.get("customer").filter(|party| !party.is_null());
    party.map_or_else(|| text(note, "account"), |party| text(party, "name"))
}

fn facts(note: &Value) -> Vec<Text> {
    let date = if is_draft(note) { "Draft of {0}" } else { "Date {0}" };
    vec![
        Text::with_values("Number {0}", [document_number(note).to_owned().into()]),
        Text::with_values("Account {0}", [text(note, "account").into()]),
        Text::with_values(
            "Invoice {0}, {1} to {2}",
            [text(note, "invoice").into(), day(note, "from"), day(note, "to")],
        ),
        Text::with_values(date, [Text::Time(text(note, "created"))]),
    ]
}

/// Form that issues the credit note of an invoice, named by its number and its first day, on the page of invoices at
/// `path`.
#[must_use]
pub fn issue_credit_note_form(path: &str, invoice: &str, from: &str) -> Form {
    let title = "Issue a credit note for the corrections of this invoice";
    let mut form = Form::new(format!("{path}/credit"), title, "Issue with the next number")
        .with_field(Field::hidden("invoice", invoice))
        .with_field(Field::hidden("invoice_from", from));
    form.is_irreversible = true;
    form
}

/// Table of the issued credit notes of an account; each links to the page at `path`.
#[must_use]
pub fn credit_notes_table(issued: &Value, path: &str) -> Table {
    let row = |record: &Value| {
        let number = text(record, "number");
        let link = format!("{path}?number={}", percent_encode(&number));
        vec![
            Cell::link(number, link),
            Cell::text(text(record, "invoice")),
            Cell::text(Text::Time(text(record, "issued"))),
            Cell::number(exact_text(record, "total_eur", "")),
        ]
    };
    Table {
        title: "Credit notes".into(),
        headings: vec!["Number", "Invoice", "Issued", "Total, EUR"],
        rows: array_member(issued, "data").iter().map(row).collect(),
        empty_text: "No credit note was issued yet.",
        next: None,
        is_screen_only: true,
    }
}

/// Formats the list of credit notes as CSV.
#[must_use]
pub fn credit_notes_csv(issued: &Value, style: CsvStyle) -> String {
    const COLUMNS: [CsvColumn; 7] = [
        ("number", false),
        ("account", false),
        ("invoice", false),
        ("issued", false),
        ("net_eur", true),
        ("vat_eur", true),
        ("total_eur", true),
    ];
    let mut table = CsvTable::new(style, COLUMNS.to_vec());
    array_member(issued, "data").iter().for_each(|row| table.add_row(row));
    table.into_text()
}

/// Customer, corrections and amounts of a credit note, shown before it is issued.
#[must_use]
pub fn credit_note_preview_blocks(note: &Value) -> Vec<Block> {
    let recipient = Block::Columns(vec![("Customer".into(), party_lines(note.get("customer")))]);
    let lines = Table { title: "Corrections".into(), ..lines_table(note) };
    vec![recipient, Block::Table(lines), Block::Table(totals_table(note))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, Page};
    use serde_json::json;

    fn note(number: Option<&str>) -> Value {
        json!({
            "number": number, "is_draft": number.is_none(), "account": "acme", "invoice": "PS-2026-000001",
            "from": "2026-10-01", "to": "2026-10-31", "created": "2026-11-05T10:00:00Z",
            "customer": { "name": "ACME <SA>", "address": ["1 rue X"], "vat_id": null },
            "lines": [{ "model": "m", "is_correction": true, "entry": 9, "day": "2026-11-04", "corrects_entry": 7,
                "corrects_day": "2026-10-30", "corrects_invoice": "PS-2026-000001", "eur": "-1.5" }],
            "net_eur": "-1.50", "vat_percent": "19", "vat_eur": "-0.28", "total_eur": "-1.78", "notes": ["A note."],
        })
    }

    #[test]
    fn a_page_names_the_corrected_invoice_and_its_amounts() {
        for number in [None, Some("PS-2026-000002")] {
            let blocks = credit_note_blocks(&note(number), "/dashboard/credit-note");
            let page =
                Page::without_session("/dashboard/", Language::English, "/", "Credit note", blocks).to_html();
            for expected in ["PS-2026-000001", "ACME &#60;SA&#62;", "entry 7", "1.78", "A note."] {
                assert!(page.contains(expected), "{expected} in {page}");
            }
            assert_eq!(page.contains("Draft"), number.is_none());
            assert_eq!(page.contains("/dashboard/credit-note.csv?number=PS-2026-000002"), number.is_some());
        }
    }
}
