//! Invoice of an account: page for the screen and for print.

use super::data_sources::with_translated_names;
use super::invoice_correction::correction_line_name;
use super::{day, exact_text, number, percent_encode, place, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, NoticeKind, Table};
use crate::text::Text;
use serde_json::Value;
use std::collections::BTreeMap;

/// Form that selects the period of the invoice page at `path`.
#[must_use]
pub fn invoice_period_form(path: &str, from: &str, to: &str) -> Form {
    let mut form = Form::new(path, "Period", "Show")
        .with_field(Field::new("from", "First day, UTC").with_kind(FieldKind::Date).with_value(from))
        .with_field(Field::new("to", "Last day, UTC").with_kind(FieldKind::Date).with_value(to));
    form.is_query = true;
    form
}

/// Blocks of an invoice, with links to its downloads: `path` with the suffix `.csv` or `.json`.
#[must_use]
pub fn invoice_blocks(invoice: &Value, key_names: &BTreeMap<String, String>, path: &str) -> Vec<Block> {
    let mut blocks = vec![Block::RunningHeader(running_header(invoice))];
    if is_draft(invoice) {
        blocks.push(Block::Notice(NoticeKind::Warning, draft_text(invoice)));
    }
    blocks.push(Block::Columns(vec![
        ("Seller".into(), party_lines(invoice.get("seller"))),
        ("Customer".into(), party_lines(invoice.get("customer"))),
        ("Invoice".into(), facts(invoice)),
    ]));
    let range = format!(
        "from={}&to={}",
        percent_encode(&text(invoice, "from")),
        percent_encode(&text(invoice, "to"))
    );
    let link =
        |kind: &str, style: &str, name: &'static str| (format!("{path}.{kind}?{range}{style}"), name.into());
    blocks.push(Block::Links(vec![
        link("csv", "", "CSV, decimal point"),
        link("csv", "&separator=%3B&decimal=%2C", "CSV, semicolon and decimal comma"),
        link("json", "", "JSON"),
    ]));
    blocks.push(Block::Table(lines_table(invoice)));
    blocks.push(Block::Table(totals_table(invoice)));
    let name = |id: &str| key_label(id, key_names);
    blocks.push(Block::Table(sums_table(invoice, ("Keys", "Key"), "keys", |row| {
        name(&text(row, "key")).into()
    })));
    blocks.push(Block::Table(sums_table(invoice, ("Days, UTC", "Day"), "days", |row| day(row, "day"))));
    blocks.push(Block::Table(footprint_table(invoice)));
    blocks.push(Block::Columns(vec![("Notes".into(), notes(invoice))]));
    blocks
}

/// Returns true if an invoice is not issued.
pub(super) fn is_draft(invoice: &Value) -> bool {
    invoice.get("is_draft") != Some(&Value::Bool(false))
}

/// Returns the sentence with the reason why an invoice is a draft.
fn draft_text(invoice: &Value) -> Text {
    match &*text(invoice, "issue_state") {
        "ready" => "Draft without a number: this invoice is not issued yet.".into(),
        "no_seller" => "Draft without a number: the configuration of the gateway has no seller.".into(),
        "empty" => "Draft without a number: no amount above 0.00 EUR, so no invoice is issued.".into(),
        "overlapping" => {
            let text_of_other =
                "Draft without a number: the invoice {0} has days in common with this period.";
            Text::with_values(text_of_other, [text(invoice, "overlaps").into()])
        }
        _ => "Draft without a number: an invoice is issued after the end of its period.".into(),
    }
}

fn key_label(id: &str, key_names: &BTreeMap<String, String>) -> String {
    match key_names.get(id) {
        Some(name) if !name.is_empty() => format!("{name} ({id})"),
        _ if id.is_empty() => "–".to_owned(),
        _ => id.to_owned(),
    }
}

/// Sentences below the sums, filled with the names of the methods, grids and contracts.
pub(super) fn notes(invoice: &Value) -> Vec<Text> {
    const SENTENCES: &[&str] = &[
        "Corrections on credit notes are no part of this invoice: {0}.",
        "This document corrects the invoice {0} of {1}. A negative amount is credited to the customer.",
        "Carbon, location-based: lifecycle factors of the grid at each location, with low and high estimate. Method: {0}. \
         Grid: {1}.",
        "Carbon, market-based: power under the provider's contracts counts with 0 g, the rest with the grid's factor, as \
         no residual mix is known; failed attempts count with the grid's. Contracts: {0}.",
    ];
    let items = array_member(invoice, "notes").iter().filter_map(Value::as_str);
    items.map(|sentence| with_translated_names(Text::from_sentence(sentence, SENTENCES))).collect()
}

/// Returns the elements of an array member of a JSON object; none if it is absent.
pub(super) fn array_member<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Lines with name, address and VAT id of a seller or a customer; a dash if there is none.
pub(super) fn party_lines(party: Option<&Value>) -> Vec<Text> {
    let Some(party) = party.filter(|party| !party.is_null()) else { return vec!["–".into()] };
    let address = party.get("address").and_then(Value::as_array).into_iter().flatten();
    let mut lines = vec![Text::Data(text(party, "name"))];
    lines.extend(address.filter_map(Value::as_str).map(|line| Text::Data(line.to_owned())));
    lines.extend(
        party
            .get("vat_id")
            .and_then(Value::as_str)
            .map(|id| Text::with_values("VAT id {0}", [id.to_owned().into()])),
    );
    lines
}

/// Returns the number of an invoice; a dash if it is a draft.
pub(super) fn document_number(invoice: &Value) -> &str {
    invoice.get("number").and_then(Value::as_str).unwrap_or("–")
}

/// Returns the header of every printed page: invoice number, customer and period.
fn running_header(invoice: &Value) -> Text {
    let customer = invoice.get("customer").filter(|party| !party.is_null());
    let name = customer.map_or_else(|| text(invoice, "account"), |customer| text(customer, "name"));
    let period = [day(invoice, "from"), day(invoice, "to")];
    let number = document_number(invoice).to_owned();
    let [from, to] = period;
    Text::with_values("Invoice {0}, {1}, {2} to {3}", [number.into(), name.into(), from, to])
}

fn facts(invoice: &Value) -> Vec<Text> {
    vec![
        Text::with_values("Number {0}", [document_number(invoice).to_owned().into()]),
        Text::with_values("Account {0}", [text(invoice, "account").into()]),
        Text::with_values("Period {0} to {1}", [day(invoice, "from"), day(invoice, "to")]),
        Text::with_values(
            if is_draft(invoice) { "Draft of {0}" } else { "Invoice date {0}" },
            [Text::Time(text(invoice, "created"))],
        ),
    ]
}

/// Returns the name of an invoice line: its model and its price class, such as batch. The class `null` means several
/// classes; lines written by earlier versions have no class.
fn line_name(line: &Value) -> Text {
    let model = text(line, "model").into();
    match line.get("price_class").map(Value::as_str) {
        Some(Some("batch")) => Text::with_values("{0}, batch", [model]),
        Some(Some("energy")) => Text::with_values("{0}, paid in energy", [model]),
        Some(Some("batch_energy")) => Text::with_values("{0}, batch, paid in energy", [model]),
        Some(None) => Text::with_values("{0}, several prices", [model]),
        _ => model,
    }
}

/// Returns the unit prices of a line, with their units.
fn unit_prices(line: &Value) -> Text {
    const UNITS: [(&str, &str); 5] = [
        ("input_eur_per_million_tokens", "{0} EUR per million input tokens"),
        ("cached_input_eur_per_million_tokens", "{0} cached"),
        ("output_eur_per_million_tokens", "{0} EUR per million output tokens"),
        ("eur_per_image", "{0} EUR per image"),
        ("eur_per_minute", "{0} EUR per minute"),
    ];
    if matches!(&*text(line, "price_class"), "energy" | "batch_energy") {
        let price = Text::Exact(with_cents(&text(line, "eur_per_kwh")), "");
        let values = [price, exact_text(line, "charged_kwh", "")];
        return Text::with_values("{0} EUR per kWh, {1} kWh charged", values);
    }
    let price = |(name, unit): &(&str, &'static str)| {
        let amount = line.get(*name)?.as_str()?;
        Some(Text::with_values(unit, [Text::Exact(with_cents(amount), "")]))
    };
    let mut prices = UNITS.iter().filter_map(price);
    let first = prices.next().unwrap_or_default();
    prices.fold(first, |list, price| Text::with_values("{0}, {1}", [list, price]))
}

/// Adds zeros to an amount, so that it has at least two decimals.
fn with_cents(amount: &str) -> String {
    let decimals = amount.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let mark = if decimals == 0 { "." } else { "" };
    format!("{amount}{mark}{}", "0".repeat(2_usize.saturating_sub(decimals)))
}

/// Cell with the exact EUR of a row.
pub(super) fn eur_cell(row: &Value) -> Cell {
    match row.get("eur").and_then(Value::as_str) {
        Some(amount) => Cell::number(Text::Exact(with_cents(amount), "")),
        None => Cell::number(exact_text(row, "eur", "")),
    }
}

/// Table of the lines of an invoice.
pub(super) fn lines_table(invoice: &Value) -> Table {
    let row = |line: &Value| {
        let is_correction = line.get("is_correction") == Some(&Value::Bool(true));
        vec![
            Cell::text(if is_correction {
                correction_line_name(line, text(line, "model"))
            } else {
                line_name(line)
            }),
            Cell::text(place(&text(line, "location"))),
            Cell::text(unit_prices(line)),
            Cell::number(exact_text(line, "requests", "")),
            Cell::number(exact_text(line, "input_tokens", "")),
            Cell::number(exact_text(line, "cached_input_tokens", "")),
            Cell::number(exact_text(line, "output_tokens", "")),
            Cell::number(exact_text(line, "images", "")),
            Cell::number(exact_text(line, "audio_seconds", "")),
            eur_cell(line),
        ]
    };
    Table {
        title: "Services".into(),
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
        rows: array_member(invoice, "lines").iter().map(row).collect(),
        empty_text: "Nothing was charged in this period.",
        next: None,
        is_screen_only: false,
    }
}

/// Table with the net amount, the VAT and the total.
pub(super) fn totals_table(invoice: &Value) -> Table {
    let vat = Text::with_values("VAT, {0} %", [exact_text(invoice, "vat_percent", "")]);
    let row =
        |name: Text, member: &str| vec![Cell::text(name), Cell::number(exact_text(invoice, member, ""))];
    Table {
        title: "Total".into(),
        headings: vec!["Amount", "EUR"],
        rows: vec![row("Net".into(), "net_eur"), row(vat, "vat_eur"), row("Total".into(), "total_eur")],
        empty_text: "",
        next: None,
        is_screen_only: false,
    }
}

fn sums_table(
    invoice: &Value,
    (title, heading): (&'static str, &'static str),
    member: &str,
    name: impl Fn(&Value) -> Text,
) -> Table {
    let row = |row: &Value| {
        vec![
            Cell::text(name(row)),
            Cell::number(exact_text(row, "requests", "")),
            Cell::number(exact_text(row, "requests_not_charged", "")),
            Cell::number(exact_text(row, "input_tokens", "")),
            Cell::number(exact_text(row, "output_tokens", "")),
            measured(row, "energy_kwh", "kWh"),
            measured(row, "carbon_location_g_co2e", "g"),
            eur_cell(row),
        ]
    };
    Table {
        title: title.into(),
        headings: vec![
            heading,
            "Requests",
            "Without a charge",
            "Input tokens",
            "Output tokens",
            "Energy",
            "Carbon",
            "EUR",
        ],
        rows: array_member(invoice, member).iter().map(row).collect(),
        empty_text: "There is no usage in this period.",
        next: None,
        is_screen_only: false,
    }
}

/// Cell with a rounded figure, exact on hover.
fn measured(row: &Value, name: &str, unit: &'static str) -> Cell {
    match number(row, name) {
        Some(amount) => {
            Cell::number(Text::Quantity(amount, unit)).with_exact_value(exact_text(row, name, unit))
        }
        None => Cell::number("–"),
    }
}

fn footprint_table(invoice: &Value) -> Table {
    let row = |name: Text, row: &Value| {
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
    let name = |location: &Value| match text(location, "location") {
        name if name.is_empty() => Text::from("not answered"),
        name => place(&name),
    };
    let mut rows: Vec<_> =
        array_member(invoice, "locations").iter().map(|location| row(name(location), location)).collect();
    if let Some(total) = invoice.get("total") {
        rows.push(row("Total".into(), total));
    }
    Table {
        title: "Footprint by location".into(),
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
        empty_text: "",
        next: None,
        is_screen_only: false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    const ATTACK: &str = "<script>alert(1)</script>";

    /// Returns the JSON of an issued invoice whose texts contain HTML tags.
    pub fn sample_invoice() -> Value {
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
    fn an_amount_has_at_least_two_decimals() {
        for (amount, text) in [("1", "1.00"), ("0.2", "0.20"), ("0.05", "0.05"), ("0.1234", "0.1234")] {
            assert_eq!(with_cents(amount), text);
        }
    }

    #[test]
    fn a_line_has_the_class_of_its_price() {
        let line = |class: Value| json!({ "model": "m", "price_class": class, "eur_per_kwh": "0.4", "charged_kwh": "2.5" });
        let shown = |line: &Value| {
            let render = |text: Text| text.render(crate::Language::English).into_owned();
            (render(line_name(line)), render(unit_prices(line)))
        };
        assert_eq!(shown(&json!({ "model": "m" })), ("m".to_owned(), String::new()));
        assert_eq!(shown(&line(json!("standard"))).0, "m");
        assert_eq!(shown(&line(json!("batch"))).0, "m, batch");
        assert_eq!(shown(&line(Value::Null)).0, "m, several prices");
        let energy = ("m, batch, paid in energy".to_owned(), "0.40 EUR per kWh, 2.5 kWh charged".to_owned());
        assert_eq!(shown(&line(json!("batch_energy"))), energy);
    }

    #[test]
    fn a_page_names_both_parties_and_escapes_them() {
        let blocks = invoice_blocks(&sample_invoice(), &BTreeMap::new(), "/dashboard/invoice");
        let language = crate::Language::English;
        let page =
            crate::Page::without_session("/dashboard/", language, "/dashboard/invoice", "Invoice", blocks);
        let html = page.to_html();
        for expected in ["ACME", "VAT id DE1", "Paris, France", "0.14", "VAT, 19 %", "PS-2026-000007"] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
        assert!(!html.contains(ATTACK) && !html.contains("Draft"));
    }
}
