//! Issue of an invoice: its form, the summary before it, and the list of issued invoices.

use super::invoice::{array_member, party_lines};
use super::{exact_text, percent_encode, text};
use crate::block::{Block, Cell, Field, Form, NoticeKind, Table};
use crate::text::Text;
use serde_json::Value;

/// Form that issues the invoice of the period shown on the page at `path`.
#[must_use]
pub fn issue_invoice_form(path: &str, from: &str, to: &str) -> Form {
    let mut form = Form::new(format!("{path}/issue"), "Issue this invoice", "Issue with the next number")
        .with_field(Field::hidden("from", from))
        .with_field(Field::hidden("to", to));
    form.is_irreversible = true;
    form
}

/// Table of issued invoices; each links to its period on the page at `path`.
#[must_use]
pub fn issued_invoices_table(issued: &Value, path: &str) -> Table {
    let row = |record: &Value| {
        let (from, to) = (text(record, "from"), text(record, "to"));
        let link = format!("{path}?from={}&to={}", percent_encode(&from), percent_encode(&to));
        vec![
            Cell::link(text(record, "number"), link),
            Cell::text(Text::Day(from)),
            Cell::text(Text::Day(to)),
            Cell::text(Text::Time(text(record, "issued"))),
            Cell::number(exact_text(record, "total_eur", "")),
        ]
    };
    Table {
        title: "Issued invoices".into(),
        headings: vec!["Number", "First day", "Last day", "Issued", "Total, EUR"],
        rows: array_member(issued, "data").iter().map(row).collect(),
        empty_text: "No invoice was issued yet.",
        next: None,
        is_screen_only: true,
    }
}

/// Returns a warning if the customer of an invoice has no address, which an invoice needs; `None` if the customer has
/// one.
#[must_use]
pub fn missing_address_notice(invoice: &Value) -> Option<Block> {
    let address =
        invoice.get("customer").map(|customer| array_member(customer, "address")).unwrap_or_default();
    let text = "The customer has no address: write it in [[invoice.customers]] of the configuration before you issue the invoice.";
    address.is_empty().then(|| Block::Notice(NoticeKind::Warning, text.into()))
}

/// Recipient and amounts of an invoice, shown before the invoice is issued.
#[must_use]
pub fn issue_preview_blocks(invoice: &Value) -> Vec<Block> {
    let amount = |name: &'static str, member: &str| {
        vec![Cell::text(name), Cell::number(exact_text(invoice, member, "EUR"))]
    };
    let total = Table {
        title: "Total".into(),
        headings: vec!["Amount", "Value"],
        rows: vec![amount("Net", "net_eur"), amount("VAT", "vat_eur"), amount("Total", "total_eur")],
        ..Table::default()
    };
    let recipient = Block::Columns(vec![("Customer".into(), party_lines(invoice.get("customer")))]);
    missing_address_notice(invoice).into_iter().chain([recipient, Block::Table(total)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_summary_has_recipient_and_total_and_warns_without_an_address() {
        let invoice = |address: Value| {
            json!({ "customer": { "name": "ACME SA", "address": address },
            "net_eur": "10.00", "vat_eur": "1.90", "total_eur": "11.90" })
        };
        let shown = format!("{:?}", issue_preview_blocks(&invoice(json!(["1 rue X", "Paris"]))));
        for text in ["ACME SA", "1 rue X", "11.90"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
        assert!(!shown.contains("no address"), "{shown}");
        assert!(format!("{:?}", issue_preview_blocks(&invoice(json!([])))).contains("no address"));
    }
}
