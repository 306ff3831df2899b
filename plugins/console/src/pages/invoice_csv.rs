//! Invoice of an account as CSV.

use super::invoice::array_member;
use super::text;
use crate::csv::{CsvColumn, CsvStyle, CsvTable};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Columns of the CSV, with the unit of each figure in its name.
const COLUMNS: &[CsvColumn] = &[
    ("row", false),
    ("invoice", false),
    ("account", false),
    ("period_start", false),
    ("period_end", false),
    ("model", false),
    ("location", false),
    ("price_class", false),
    ("entry", true),
    ("corrects_entry", true),
    ("corrects_day", false),
    ("corrects_invoice", false),
    ("key", false),
    ("key_name", false),
    ("requests", true),
    ("requests_not_charged", true),
    ("input_tokens", true),
    ("cached_input_tokens", true),
    ("output_tokens", true),
    ("images", true),
    ("audio_seconds", true),
    ("input_eur_per_million_tokens", true),
    ("cached_input_eur_per_million_tokens", true),
    ("output_eur_per_million_tokens", true),
    ("eur_per_image", true),
    ("eur_per_minute", true),
    ("eur_per_kwh", true),
    ("energy_kwh", true),
    ("failed_energy_kwh", true),
    ("carbon_location_g_co2e", true),
    ("carbon_location_low_g_co2e", true),
    ("carbon_location_high_g_co2e", true),
    ("carbon_market_g_co2e", true),
    ("embodied_g_co2e", true),
    ("water_liters", true),
    ("credits", true),
    ("charged_kwh", true),
    ("net_eur", true),
    ("vat_percent", true),
    ("vat_eur", true),
    ("total_eur", true),
];

/// Formats an invoice as CSV with rows of the kinds `line`, `key`, `day`, `location` and `total`. The rows of each kind
/// add up to the total.
#[must_use]
pub fn invoice_csv(invoice: &Value, key_names: &BTreeMap<String, String>, style: CsvStyle) -> String {
    let mut table = CsvTable::new(style, COLUMNS.to_vec());
    let period = (day_start(&text(invoice, "from")), day_end(&text(invoice, "to")));
    let mut add = |kind: &str, row: &Value| {
        let mut row = row.clone();
        let Some(members) = row.as_object_mut() else { return };
        let day = members.get("day").and_then(Value::as_str).map(str::to_owned);
        let (start, end) = day.map_or_else(|| period.clone(), |day| (day_start(&day), day_end(&day)));
        let key_name = members.get("key").and_then(Value::as_str).and_then(|id| key_names.get(id)).cloned();
        let net = members.get("eur").cloned();
        let added = [
            ("row", json!(kind)),
            ("invoice", json!(invoice.get("number").and_then(Value::as_str))),
            ("account", json!(text(invoice, "account"))),
            ("period_start", json!(start)),
            ("period_end", json!(end)),
            ("key_name", json!(key_name)),
            ("net_eur", json!(net)),
        ];
        members.extend(added.map(|(name, value)| (name.to_owned(), value)));
        table.add_row(&row);
    };
    for (kind, member) in [("line", "lines"), ("key", "keys"), ("day", "days"), ("location", "locations")] {
        array_member(invoice, member).iter().for_each(|row| add(kind, row));
    }
    let mut total = invoice.get("total").cloned().unwrap_or_default();
    if let Some(members) = total.as_object_mut() {
        // The total row contains the amount to pay, rounded to cents.
        members.insert("eur".to_owned(), json!(text(invoice, "net_eur")));
        for name in ["vat_percent", "vat_eur", "total_eur"] {
            members.insert(name.to_owned(), json!(text(invoice, name)));
        }
    }
    add("total", &total);
    table.into_text()
}

/// Returns the first second of a day, RFC 3339.
pub(super) fn day_start(day: &str) -> String {
    format!("{day}T00:00:00Z")
}

/// Returns the first second after a day, RFC 3339; an empty text if the day is invalid.
pub(super) fn day_end(day: &str) -> String {
    penstock_core::calendar::UtcDay::parse(day)
        .map_or_else(String::new, |day| penstock_core::calendar::format_rfc3339(day.end()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::invoice::tests::sample_invoice;
    use super::*;

    #[test]
    fn the_csv_has_every_row_with_its_period_and_the_amount_to_pay() {
        let names = BTreeMap::from([("k1".to_owned(), "ci".to_owned())]);
        let text = invoice_csv(&sample_invoice(), &names, CsvStyle::parse(None, Some(",")).unwrap());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
        let column = |name: &str| lines[0].iter().position(|known| *known == name).unwrap();
        let kinds: Vec<&str> = lines.iter().skip(1).map(|line| line[0]).collect();
        assert_eq!(kinds, ["line", "key", "day", "location", "total"]);
        assert!(lines.iter().all(|line| line.len() == COLUMNS.len()), "{text}");
        assert_eq!(lines[1][column("period_start")], "2026-11-01T00:00:00Z");
        assert_eq!(lines[1][column("period_end")], "2026-12-01T00:00:00Z");
        assert_eq!(lines[2][column("key_name")], "ci");
        assert_eq!(lines[3][column("period_start")], "2026-11-30T00:00:00Z");
        assert_eq!(lines[4][column("net_eur")], "0,125");
        assert_eq!((lines[5][column("net_eur")], lines[5][column("total_eur")]), ("0,12", "0,14"));
    }
}
