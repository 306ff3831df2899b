//! Invoice of an account: page for the screen and for print.

use super::{encode, number, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, NoticeKind, Table};
use crate::format::quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Form that selects the period of the page at `path`.
#[must_use]
pub fn invoice_form(path: &str, from: &str, to: &str) -> Form {
    let mut form = Form::new(path, "Period", "Show")
        .with(Field::new("from", "First day, UTC").kind(FieldKind::Date).value(from))
        .with(Field::new("to", "Last day, UTC").kind(FieldKind::Date).value(to));
    form.is_query = true;
    form
}

/// Form that issues the invoice of the period on the page at `path`.
#[must_use]
pub fn issue_form(path: &str, from: &str, to: &str) -> Form {
    let mut form = Form::new(path, "Issue this invoice", "Issue with the next number")
        .with(Field::hidden("from", from))
        .with(Field::hidden("to", to));
    form.is_final = true;
    form
}

/// Issued invoices, with links to their periods on the page at `path`.
#[must_use]
pub fn issued_table(issued: &Value, path: &str) -> Table {
    let row = |record: &Value| {
        let (from, to) = (text(record, "from"), text(record, "to"));
        let link = format!("{path}?from={}&to={}", encode(&from), encode(&to));
        vec![
            Cell::link(text(record, "number"), link),
            Cell::text(from),
            Cell::text(to),
            Cell::text(text(record, "issued")),
            Cell::number(text(record, "total_eur")),
        ]
    };
    Table {
        title: "Issued invoices".to_owned(),
        headings: vec!["Number", "First day", "Last day", "Issued", "Total, EUR"],
        rows: list(issued, "data").iter().map(row).collect(),
        empty: "No invoice was issued yet.",
        next: None,
    }
}

/// Invoice with links to the downloads next to the page at `path`.
#[must_use]
pub fn invoice_blocks(invoice: &Value, key_names: &BTreeMap<String, String>, path: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    if invoice.get("is_draft") != Some(&Value::Bool(false)) {
        let text = "Draft without a number: an invoice is issued after the end of its period.".to_owned();
        blocks.push(Block::Notice(NoticeKind::Warning, text));
    }
    blocks.push(Block::Columns(vec![
        ("Seller".to_owned(), party(invoice.get("seller"))),
        ("Customer".to_owned(), party(invoice.get("customer"))),
        ("Invoice".to_owned(), facts(invoice)),
    ]));
    let range = format!("from={}&to={}", encode(&text(invoice, "from")), encode(&text(invoice, "to")));
    let link =
        |kind: &str, style: &str, name: &str| (format!("{path}.{kind}?{range}{style}"), name.to_owned());
    blocks.push(Block::Links(vec![
        link("csv", "", "CSV, decimal point"),
        link("csv", "&separator=%3B&decimal=%2C", "CSV, semicolon and decimal comma"),
        link("json", "", "JSON"),
    ]));
    blocks.push(Block::Table(lines_table(invoice)));
    blocks.push(Block::Table(totals_table(invoice)));
    let name = |id: &str| key_label(id, key_names);
    blocks.push(Block::Table(sums_table(invoice, "Keys", "keys", |row| name(&text(row, "key")))));
    blocks.push(Block::Table(sums_table(invoice, "Days, UTC", "days", |row| text(row, "day"))));
    blocks.push(Block::Table(footprint_table(invoice)));
    blocks.push(Block::Columns(vec![("Notes".to_owned(), texts(invoice, "notes"))]));
    blocks
}

fn key_label(id: &str, key_names: &BTreeMap<String, String>) -> String {
    match key_names.get(id) {
        Some(name) if !name.is_empty() => format!("{name} ({id})"),
        _ if id.is_empty() => "–".to_owned(),
        _ => id.to_owned(),
    }
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Lines of a seller or a customer.
fn party(party: Option<&Value>) -> Vec<String> {
    let Some(party) = party.filter(|party| !party.is_null()) else { return vec!["–".to_owned()] };
    let mut lines = vec![text(party, "name")];
    lines.extend(texts(party, "address"));
    lines.extend(party.get("vat_id").and_then(Value::as_str).map(|id| format!("VAT id {id}")));
    lines
}

/// Number of an invoice; a dash if it is a draft.
fn number_of(invoice: &Value) -> &str {
    invoice.get("number").and_then(Value::as_str).unwrap_or("–")
}

fn facts(invoice: &Value) -> Vec<String> {
    vec![
        format!("Number {}", number_of(invoice)),
        format!("Account {}", text(invoice, "account")),
        format!("Period {} to {}", text(invoice, "from"), text(invoice, "to")),
        format!("Created {}", text(invoice, "created")),
    ]
}

/// Unit prices of a line, with their units.
fn unit_prices(line: &Value) -> String {
    const UNITS: [(&str, &str); 5] = [
        ("input_eur_per_million_tokens", "EUR per million input tokens"),
        ("cached_input_eur_per_million_tokens", "cached"),
        ("output_eur_per_million_tokens", "EUR per million output tokens"),
        ("eur_per_image", "EUR per image"),
        ("eur_per_minute", "EUR per minute"),
    ];
    let price = |(name, unit): &(&str, &str)| Some(format!("{} {unit}", line.get(*name)?.as_str()?));
    UNITS.iter().filter_map(price).collect::<Vec<_>>().join(", ")
}

fn amount(row: &Value) -> Cell {
    Cell::number(text(row, "eur"))
}

fn lines_table(invoice: &Value) -> Table {
    let row = |line: &Value| {
        let is_correction = line.get("is_correction") == Some(&Value::Bool(true));
        let name = text(line, "model");
        vec![
            Cell::text(if is_correction { format!("Correction: {name}") } else { name }),
            Cell::text(text(line, "location")),
            Cell::text(unit_prices(line)),
            Cell::number(text(line, "requests")),
            Cell::number(text(line, "input_tokens")),
            Cell::number(text(line, "cached_input_tokens")),
            Cell::number(text(line, "output_tokens")),
            Cell::number(text(line, "images")),
            Cell::number(text(line, "audio_seconds")),
            amount(line),
        ]
    };
    Table {
        title: "Services".to_owned(),
        headings: vec![
            "Model",
            "Location",
            "Unit prices",
            "Requests",
            "Input tokens",
            "Of them cached",
            "Output tokens",
            "Images",
            "Seconds",
            "EUR",
        ],
        rows: list(invoice, "lines").iter().map(row).collect(),
        empty: "Nothing was charged in this period.",
        next: None,
    }
}

fn totals_table(invoice: &Value) -> Table {
    let vat = format!("VAT, {} %", text(invoice, "vat_percent"));
    let row = |name: String, member: &str| vec![Cell::text(name), Cell::number(text(invoice, member))];
    Table {
        title: "Total".to_owned(),
        headings: vec!["Amount", "EUR"],
        rows: vec![
            row("Net".to_owned(), "net_eur"),
            row(vat, "vat_eur"),
            row("Total".to_owned(), "total_eur"),
        ],
        empty: "",
        next: None,
    }
}

fn sums_table(invoice: &Value, title: &str, member: &str, name: impl Fn(&Value) -> String) -> Table {
    let row = |row: &Value| {
        vec![
            Cell::text(name(row)),
            Cell::number(text(row, "requests")),
            Cell::number(text(row, "requests_not_charged")),
            Cell::number(text(row, "input_tokens")),
            Cell::number(text(row, "output_tokens")),
            measured(row, "energy_kwh", "kWh"),
            measured(row, "carbon_location_g_co2e", "g"),
            amount(row),
        ]
    };
    Table {
        title: title.to_owned(),
        headings: vec![
            "Name",
            "Requests",
            "Without a charge",
            "Input tokens",
            "Output tokens",
            "Energy",
            "Carbon",
            "EUR",
        ],
        rows: list(invoice, member).iter().map(row).collect(),
        empty: "There is no usage in this period.",
        next: None,
    }
}

/// Cell with a rounded figure, exact on hover.
fn measured(row: &Value, name: &str, unit: &str) -> Cell {
    match number(row, name) {
        Some(amount) => {
            Cell::number(quantity(amount, unit)).with_exact(format!("{} {unit}", text(row, name)))
        }
        None => Cell::number("–"),
    }
}

fn footprint_table(invoice: &Value) -> Table {
    let row = |name: String, row: &Value| {
        vec![
            Cell::text(name),
            measured(row, "energy_kwh", "kWh"),
            measured(row, "carbon_location_g_co2e", "g"),
            measured(row, "carbon_location_low_g_co2e", "g"),
            measured(row, "carbon_location_high_g_co2e", "g"),
            measured(row, "carbon_market_g_co2e", "g"),
            measured(row, "embodied_g_co2e", "g"),
            measured(row, "water_liters", "l"),
        ]
    };
    let name = |place: &Value| match text(place, "location") {
        name if name.is_empty() => "not answered".to_owned(),
        name => name,
    };
    let mut rows: Vec<_> = list(invoice, "locations").iter().map(|place| row(name(place), place)).collect();
    if let Some(total) = invoice.get("total") {
        rows.push(row("Total".to_owned(), total));
    }
    Table {
        title: "Footprint by location".to_owned(),
        headings: vec![
            "Location",
            "Energy",
            "Carbon, location-based",
            "Low",
            "High",
            "Carbon, market-based",
            "Embodied",
            "Water",
        ],
        rows,
        empty: "",
        next: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    const ATTACK: &str = "<script>alert(1)</script>";

    pub fn invoice() -> Value {
        let row = |name: &str, value: &str| json!({ (name): value, "requests": 2, "eur": "0.125", "energy_kwh": "0.001" });
        json!({
            "number": "PS-2026-000007", "is_draft": false, "account": "acme",
            "from": "2026-11-01", "to": "2026-11-30",
            "seller": { "name": ATTACK, "address": [ATTACK], "vat_id": "DE1" },
            "customer": { "name": "ACME", "address": [], "vat_id": null },
            "lines": [row("model", "m")], "keys": [row("key", "k1")], "days": [row("day", "2026-11-30")],
            "locations": [row("location", "Paris, France")], "total": row("kind", "total"),
            "net_eur": "0.12", "vat_percent": "19", "vat_eur": "0.02", "total_eur": "0.14", "notes": [ATTACK],
        })
    }

    #[test]
    fn a_page_names_both_parties_and_escapes_them() {
        let blocks = invoice_blocks(&invoice(), &BTreeMap::new(), "/dashboard/invoice");
        let page = crate::Page {
            root: "/dashboard/",
            title: "Invoice".to_owned(),
            nav: Vec::new(),
            user: None,
            live: None,
            opens: None,
            blocks,
        };
        let html = page.to_html();
        for expected in ["ACME", "VAT id DE1", "Paris, France", "0.14", "VAT, 19 %", "PS-2026-000007"] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains(ATTACK) && !html.contains("Draft"));
    }
}
