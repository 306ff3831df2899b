//! Carbon report by ESRS E1: gross emissions of scope 3, category 1, with their range, method, origin of the energy and
//! intensities; as a page and as CSV.

use super::data_sources::SourceKind;
use super::invoice::{array_member, party_lines};
use super::{day, exact_text, number, quantity_cell, text};
use crate::block::{Block, Cell, CellState, Field, FieldKind, Form, Table, Tile};
use crate::csv::{CsvColumn, CsvStyle, CsvTable};
use crate::text::Text;
use serde_json::{Value, json};

/// Columns of the CSV, with the unit of each figure in its name.
const COLUMNS: &[CsvColumn] = &[
    ("row", false),
    ("name", false),
    ("account", false),
    ("period_start", false),
    ("period_end", false),
    ("standard", false),
    ("requests", true),
    ("input_tokens", true),
    ("output_tokens", true),
    ("gross_location_t_co2e", true),
    ("gross_market_t_co2e", true),
    ("gross_location_g_co2e", true),
    ("gross_market_g_co2e", true),
    ("carbon_location_g_co2e", true),
    ("carbon_location_low_g_co2e", true),
    ("carbon_location_high_g_co2e", true),
    ("carbon_market_g_co2e", true),
    ("embodied_g_co2e", true),
    ("energy_kwh", true),
    ("failed_energy_kwh", true),
    ("contract_energy_kwh", true),
    ("grid_renewable_energy_kwh", true),
    ("water_liters", true),
    ("eur", true),
    ("location_g_per_eur", true),
    ("market_g_per_eur", true),
    ("location_g_per_million_tokens", true),
    ("market_g_per_million_tokens", true),
    ("kwh_per_million_tokens", true),
    ("method", false),
    ("grid", false),
    ("contracts", false),
];
/// Name of the disclosure requirement that the figures of the CSV fulfil.
const STANDARD: &str = "ESRS E1-6 scope 3 category 1";
/// Kinds of CSV rows: name of the kind, member of the report that lists the rows, and member of a row that has its
/// name.
const KINDS: [(&str, &str, &str); 4] = [
    ("country", "countries", "country"),
    ("provider", "providers", "provider"),
    ("month", "months", "month"),
    ("account", "accounts", "account"),
];

/// Form that selects the period, and the account if the page can report all accounts.
#[must_use]
pub fn carbon_report_form(path: &str, from: &str, to: &str, account: Option<&str>) -> Form {
    let mut form = Form::new(path, "Period", "Show")
        .with_field(Field::new("from", "First day, UTC").with_kind(FieldKind::Date).with_value(from))
        .with_field(Field::new("to", "Last day, UTC").with_kind(FieldKind::Date).with_value(to));
    if let Some(account) = account {
        form = form.with_field(
            Field::new("account", "Account").with_value(account).with_help("Empty for all accounts."),
        );
    }
    form.is_query = true;
    form
}

/// Figures of the report, with links to its CSV at `path` with the suffix `.csv`. `parties` has the members `customer`
/// and `issuer`, as an invoice has them, and the time `created`.
#[must_use]
pub fn carbon_report_blocks(report: &Value, parties: &Value, path: &str) -> Vec<Block> {
    let total = report.get("total").cloned().unwrap_or_default();
    let mut blocks = vec![
        Block::RunningHeader(running_header(report, parties)),
        Block::Columns(header_columns(report, parties)),
        Block::Tiles(tiles(&total)),
        Block::Table(metric_table(report, &total)),
    ];
    let titles: [(&str, &'static str, &'static str); 4] = [
        ("countries", "Emissions by country", "Country"),
        ("providers", "Emissions by provider", "Provider"),
        ("months", "Emissions by month", "Month"),
        ("accounts", "Emissions by account", "Account"),
    ];
    for ((member, title, heading), (_, _, name)) in titles.into_iter().zip(KINDS) {
        let rows = array_member(report, member);
        if !rows.is_empty() {
            blocks.push(Block::Table(group_table(rows, title, heading, name)));
        }
    }
    blocks.push(Block::Heading("Method and data quality".into()));
    blocks.extend(notes(report).into_iter().map(Block::Prose));
    let query = format!("from={}&to={}", text(report, "from"), text(report, "to"));
    let account = report.get("account").and_then(Value::as_str);
    let account =
        account.map(|account| format!("&account={}", super::percent_encode(account))).unwrap_or_default();
    blocks.push(Block::Links(vec![
        (format!("{path}.csv?{query}{account}"), "CSV, decimal point".into()),
        (
            format!("{path}.csv?{query}{account}&separator=;&decimal=,"),
            "CSV, semicolon and decimal comma".into(),
        ),
    ]));
    blocks
}

/// Returns the subject of the report: the name of the customer, else the id of the account, else all accounts.
fn subject(report: &Value, parties: &Value) -> Text {
    let customer = parties.pointer("/customer/name").and_then(Value::as_str).map(str::to_owned);
    match (customer, report.get("account").and_then(Value::as_str)) {
        (Some(name), _) => name.into(),
        (None, Some(account)) => Text::with_values("Account {0}", [account.to_owned().into()]),
        (None, None) => "All accounts".into(),
    }
}

/// Returns the header of every printed page: the subject and the period of the report.
fn running_header(report: &Value, parties: &Value) -> Text {
    let [from, to] = [day(report, "from"), day(report, "to")];
    Text::with_values("Carbon report, {0}, {1} to {2}", [subject(report, parties), from, to])
}

/// Columns with the subject, the issuer and the date of the report.
fn header_columns(report: &Value, parties: &Value) -> Vec<(Text, Vec<Text>)> {
    let mut facts = match report.get("account").and_then(Value::as_str) {
        Some(account) => vec![Text::with_values("Account {0}", [account.to_owned().into()])],
        None => vec!["All accounts".into()],
    };
    facts.push(Text::with_values("Period {0} to {1}", [day(report, "from"), day(report, "to")]));
    facts.push(Text::with_values("Report of {0}", [Text::Time(text(parties, "created"))]));
    let mut columns = vec![("Carbon report".into(), facts)];
    let of = |name: &str| parties.get(name).filter(|party| !party.is_null());
    columns.extend(of("customer").map(|customer| ("Customer".into(), party_lines(Some(customer)))));
    columns.push(("Issuer".into(), party_lines(of("issuer"))));
    columns
}

fn tiles(total: &Value) -> Vec<Tile> {
    let quantity = |name: &str, unit| match number(total, name) {
        Some(amount) => Text::Quantity(amount, unit),
        None => "–".into(),
    };
    let tile = |label: &'static str, value, detail| Tile {
        label: label.into(),
        value,
        detail,
        state: CellState::None,
    };
    let range = Text::with_values(
        "{0} to {1}",
        [quantity("carbon_location_low_g_co2e", "g"), quantity("carbon_location_high_g_co2e", "g")],
    );
    vec![
        tile(
            "Gross emissions, location-based",
            quantity("gross_location_g_co2e", "g"),
            "CO₂ equivalent".into(),
        ),
        tile("Gross emissions, market-based", quantity("gross_market_g_co2e", "g"), "CO₂ equivalent".into()),
        tile("Operation, location-based", quantity("carbon_location_g_co2e", "g"), range),
        tile("Embodied", quantity("embodied_g_co2e", "g"), "CO₂ equivalent".into()),
        tile("Energy", quantity("energy_kwh", "kWh"), "failed attempts included".into()),
        tile(
            "Under renewable contracts",
            quantity("contract_energy_kwh", "kWh"),
            share(total, "contract_energy_kwh"),
        ),
    ]
}

/// Returns a part of the energy as a percentage of all energy; `part` is the member with the part.
fn share(total: &Value, part: &str) -> Text {
    match (number(total, part), number(total, "energy_kwh")) {
        (Some(part), Some(energy)) if energy > 0.0 => {
            Text::with_values("{0} of the energy", [Text::Quantity(part / energy * 100.0, "%")])
        }
        _ => Text::default(),
    }
}

fn metric_table(report: &Value, total: &Value) -> Table {
    let metrics: [(&'static str, &str, &'static str, &'static str); 14] = [
        ("E1-6", "gross_location_g_co2e", "Gross emissions, location-based", "g CO₂e"),
        ("E1-6", "gross_market_g_co2e", "Gross emissions, market-based", "g CO₂e"),
        ("E1-6", "carbon_location_g_co2e", "Operation, location-based", "g CO₂e"),
        ("E1-6", "carbon_location_low_g_co2e", "Operation, location-based, lower limit", "g CO₂e"),
        ("E1-6", "carbon_location_high_g_co2e", "Operation, location-based, upper limit", "g CO₂e"),
        ("E1-6", "carbon_market_g_co2e", "Operation, market-based", "g CO₂e"),
        ("E1-6", "embodied_g_co2e", "Embodied emissions of the hardware", "g CO₂e"),
        ("E1-6", "location_g_per_eur", "Intensity per spend, location-based", "g CO₂e/EUR"),
        ("E1-6", "market_g_per_eur", "Intensity per spend, market-based", "g CO₂e/EUR"),
        ("E1-6", "location_g_per_million_tokens", "Intensity per million tokens, location-based", "g CO₂e"),
        ("E1-6", "market_g_per_million_tokens", "Intensity per million tokens, market-based", "g CO₂e"),
        ("E1-5", "energy_kwh", "Energy, failed attempts included", "kWh"),
        ("E1-5", "contract_energy_kwh", "Energy under renewable contracts", "kWh"),
        ("E1-5", "grid_renewable_energy_kwh", "Renewable energy of the grid, without contracts", "kWh"),
    ];
    let row = |(disclosure, member, name, unit): (&'static str, &str, &'static str, &'static str)| {
        let value = match number(total, member) {
            Some(amount) => {
                Cell::number(Text::Quantity(amount, unit)).with_exact_value(exact_text(total, member, unit))
            }
            None => Cell::number("–"),
        };
        vec![Cell::text(Text::Data(disclosure.to_owned())), Cell::text(name), value]
    };
    Table {
        title: Text::with_values("Scope 3, category 1, {0} to {1}", [day(report, "from"), day(report, "to")]),
        headings: vec!["Disclosure", "Figure", "Value"],
        rows: metrics.into_iter().map(row).collect(),
        empty_text: "There is no usage in this period.",
        next: None,
        is_screen_only: false,
    }
}

fn group_table(rows: &[Value], title: &'static str, heading: &'static str, name: &str) -> Table {
    let row = |one: &Value| {
        let group = match (name, text(one, name)) {
            (_, group) if group.is_empty() => "not answered".into(),
            ("month", month) => Text::Month(month),
            ("country", country) => Text::Word(country),
            (_, group) => Text::Data(group),
        };
        vec![
            Cell::text(group),
            quantity_cell(one, "requests", ""),
            quantity_cell(one, "energy_kwh", "kWh"),
            quantity_cell(one, "contract_energy_kwh", "kWh"),
            quantity_cell(one, "gross_location_g_co2e", "g"),
            quantity_cell(one, "carbon_location_low_g_co2e", "g"),
            quantity_cell(one, "carbon_location_high_g_co2e", "g"),
            quantity_cell(one, "gross_market_g_co2e", "g"),
            quantity_cell(one, "location_g_per_million_tokens", "g"),
        ]
    };
    Table {
        title: title.into(),
        headings: vec![
            heading,
            "Requests",
            "Energy",
            "Under contracts",
            "Gross, location-based",
            "Operation, low",
            "Operation, high",
            "Gross, market-based",
            "Per million tokens",
        ],
        rows: rows.iter().map(row).collect(),
        empty_text: "There is no usage in this period.",
        next: None,
        is_screen_only: false,
    }
}

fn list(report: &Value, member: &str) -> String {
    let names: Vec<&str> = array_member(report, member).iter().filter_map(Value::as_str).collect();
    names.join("; ")
}

/// Sentences about methods and data.
fn notes(report: &Value) -> Vec<Text> {
    vec![
        "Gross emissions are those of operation and the embodied ones of the hardware. For the customer all of it is purchased services: scope 3, category 1 of the GHG Protocol.".into(),
        Text::with_values(
            "Carbon, location-based: lifecycle factors of the grid at each location, with low and high estimate. Method: {0}. Grid: {1}.",
            [
                SourceKind::Name.list_of_member(report, "methods"),
                SourceKind::Grid.list_of_member(report, "grids"),
            ],
        ),
        Text::with_values(
            "Carbon, market-based: power under the provider's contracts counts with 0 g, the rest with the grid's factor, as no residual mix is known; failed attempts count with the grid's. Contracts: {0}.",
            [SourceKind::Contract.list_of_member(report, "contracts")],
        ),
        "Data quality: energy is calculated for each request from its tokens, images or seconds, or measured where a provider reports it; no figure is estimated from spend. Low and high are the limits of the method.".into(),
        "Amounts and footprints are the sums of the ledger; intensities are the gross emissions divided by the charges without VAT, or by input and output tokens.".into(),
    ]
}

/// Formats the report as CSV, with a row for each country, provider, month and account, and one for the total.
#[must_use]
pub fn carbon_report_csv(report: &Value, style: CsvStyle) -> String {
    let mut table = CsvTable::new(style, COLUMNS.to_vec());
    let account = report.get("account").and_then(Value::as_str).unwrap_or("all").to_owned();
    let mut add = |kind: &str, name: String, row: &Value| {
        let mut row = row.clone();
        let Some(members) = row.as_object_mut() else { return };
        let account = if kind == "account" { name.clone() } else { account.clone() };
        // The row of a country lists only the emission factors of its own grid.
        let own_grids = members.remove("grids").filter(|_| kind == "country");
        let grids = own_grids
            .map_or_else(|| list(report, "grids"), |grids| list(&json!({ "grids": grids }), "grids"));
        let added = [
            ("row", json!(kind)),
            ("name", json!(name)),
            ("account", json!(account)),
            ("period_start", json!(text(report, "from"))),
            ("period_end", json!(text(report, "to"))),
            ("standard", json!(STANDARD)),
            ("method", json!(list(report, "methods"))),
            ("grid", json!(grids)),
            ("contracts", json!(list(report, "contracts"))),
        ];
        members.extend(added.map(|(name, value)| (name.to_owned(), value)));
        table.add_row(&row);
    };
    for (kind, member, name) in KINDS {
        array_member(report, member).iter().for_each(|row| add(kind, text(row, name), row));
    }
    if let Some(total) = report.get("total") {
        add("total", String::new(), total);
    }
    table.into_text()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_says_whose_it_is_who_issued_it_and_when() {
        let report = |account: Value| json!({ "account": account, "from": "2026-01-01", "to": "2026-12-31" });
        let parties = |customer: Value| {
            json!({ "customer": customer, "created": "2027-01-02T03:04:05Z",
            "issuer": { "name": "Example Hosting", "address": ["Street 1"] } })
        };
        let header = |report: &Value, parties: &Value| {
            running_header(report, parties).render(crate::Language::English).into_owned()
        };
        let (one, named) = (report(json!("acme")), parties(json!({ "name": "ACME SA", "address": [] })));
        assert_eq!(header(&one, &named), "Carbon report, ACME SA, 2026-01-01 to 2026-12-31");
        assert_eq!(
            header(&one, &parties(Value::Null)),
            "Carbon report, Account acme, 2026-01-01 to 2026-12-31"
        );
        let (all, unnamed) = (report(Value::Null), parties(Value::Null));
        assert_eq!(header(&all, &unnamed), "Carbon report, All accounts, 2026-01-01 to 2026-12-31");
        let shown = format!("{:?}", carbon_report_blocks(&one, &named, "/console/carbon"));
        for text in ["ACME SA", "Example Hosting", "Street 1", "2027-01-02T03:04:05Z"] {
            assert!(shown.contains(text), "{text} in {shown}");
        }
        assert_eq!(header_columns(&all, &unnamed).len(), 2);
    }

    #[test]
    fn months_and_countries_are_in_the_language_of_the_page() {
        let rows = [json!({ "month": "2026-11", "country": "Germany" })];
        for (name, expected) in [("month", "11.2026"), ("country", "Deutschland")] {
            let table = group_table(&rows, "Emissions by month", "Month", name);
            assert_eq!(table.rows[0][0].text.render(crate::Language::German), expected);
        }
    }

    #[test]
    fn the_csv_has_a_row_for_each_group_and_the_total() {
        let row = json!({ "country": "France", "requests": 2, "gross_location_g_co2e": "1.5", "grids": ["France: x"] });
        let report = json!({ "account": null, "from": "2026-01-01", "to": "2026-12-31", "countries": [row],
            "accounts": [{ "account": "=a", "eur": "3" }], "total": { "requests": 2, "location_g_per_eur": "0.5" },
            "methods": ["m 1"], "contracts": [], "grids": ["France: x", "Spain: y"] });
        let csv = carbon_report_csv(&report, CsvStyle::parse(None, Some(",")).unwrap());
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("country;France;all;2026-01-01;2026-12-31;"), "{}", lines[1]);
        assert!(lines[1].contains(";1,5;") && lines[1].contains("m 1"), "{}", lines[1]);
        assert!(lines[1].contains("France: x") && !lines[1].contains("Spain"), "{}", lines[1]);
        assert!(lines[3].contains("France: x; Spain: y"), "{}", lines[3]);
        assert!(lines[2].starts_with("account;'=a;'=a;"), "{}", lines[2]);
        assert!(lines[3].starts_with("total;") && lines[3].contains(";0,5;"), "{}", lines[3]);
        let columns = lines[0].split(';').count();
        // Only the header and the row of a country are counted: the other rows list all grid factors, with a semicolon
        // in the cell.
        assert!(lines[..2].iter().all(|line| line.split(';').count() == columns));
    }
}
