//! The grid table: what a kilowatt-hour taken from a member state's grid costs
//! the climate and the rivers, by year.

use crate::{country, csv};
use rust_decimal::Decimal;
use std::collections::BTreeMap;

/// The first line of a grid table.
pub const HEADER: &str =
    "country_code,country,carbon_g_per_kwh,renewable_percent,wue_offsite_l_per_kwh,year,source";

/// One state's electricity: consumed there (imports traced), lifecycle factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// ISO 3166-1 alpha-2.
    pub country_code: String,
    /// English name.
    pub country: String,
    /// Carbon intensity, grams of CO2 equivalent per kWh.
    pub g_per_kwh: Decimal,
    /// Physical share of renewable electricity, percent.
    pub renewable_percent: Decimal,
    /// Water used where the electricity was made, litres per kWh.
    pub water_l_per_kwh: Decimal,
    /// The year that the figures describe.
    pub year: u16,
    /// Origin and licence of every figure of the row.
    pub source: String,
}

impl Row {
    /// The short form of the source, for answers: who publishes the carbon
    /// figure, and its licence; without the way it was fetched.
    #[must_use]
    pub fn attribution(&self) -> &str {
        let carbon = self.source.split(';').next().unwrap_or_default();
        let carbon = carbon.strip_prefix("carbon+renewable:").unwrap_or(carbon);
        carbon.split(" via ").next().unwrap_or(carbon).trim()
    }
}

/// Rows by country code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(BTreeMap<String, Row>);

impl Table {
    /// The row of a country.
    #[must_use]
    pub fn get(&self, country_code: &str) -> Option<&Row> {
        self.0.get(country_code)
    }

    /// All rows by code.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.0.values()
    }
}

/// Reads a table of [`HEADER`]'s columns.
///
/// # Errors
/// Every mistake at once, each with its line: wrong header, missing cells, a
/// number that is none or out of range, a state that is no member, a state that
/// stands twice.
pub fn table(csv: &str) -> Result<Table, Vec<String>> {
    let mut found = Table::default();
    let mut mistakes = Vec::new();
    for (line, cells) in csv::rows(csv, HEADER).map_err(|mistake| vec![mistake])? {
        match row(&cells) {
            Ok(row) => {
                if let Some(twice) = found.0.insert(row.country_code.clone(), row) {
                    mistakes.push(format!("line {line}: {} stands twice", twice.country_code));
                }
            }
            Err(mistake) => mistakes.push(format!("line {line}: {mistake}")),
        }
    }
    if mistakes.is_empty() { Ok(found) } else { Err(mistakes) }
}

fn row(cells: &[String]) -> Result<Row, String> {
    let [code, name, carbon, renewable, water, year, source] = cells else {
        return Err(format!("expected 7 cells, found {}", cells.len()));
    };
    let known = country::member(code).ok_or_else(|| format!("`{code}` is not a member state of the EU"))?;
    if known != name {
        return Err(format!("`{code}` is {known}, not `{name}`"));
    }
    Ok(Row {
        country_code: code.clone(),
        country: name.clone(),
        g_per_kwh: number("carbon_g_per_kwh", carbon, 2000)?,
        renewable_percent: number("renewable_percent", renewable, 100)?,
        water_l_per_kwh: number("wue_offsite_l_per_kwh", water, 100)?,
        year: year.parse().map_err(|_| format!("year: `{year}` is not a year"))?,
        source: source.clone(),
    })
}

fn number(column: &str, cell: &str, most: u32) -> Result<Decimal, String> {
    match cell.parse::<Decimal>() {
        Ok(number) if number >= Decimal::ZERO && number <= Decimal::from(most) => Ok(number),
        _ => Err(format!("{column}: `{cell}` is not a number from 0 to {most}")),
    }
}
