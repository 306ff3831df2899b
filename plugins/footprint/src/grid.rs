//! Grid table: carbon emissions and water use per kilowatt-hour from the grid of each EU member state.

use crate::{country, csv};
use rust_decimal::Decimal;
use std::collections::BTreeMap;

/// First line of a grid table.
pub const TABLE_HEADER: &str =
    "country_code,country,carbon_g_per_kwh,renewable_percent,wue_offsite_l_per_kwh,year,source";

/// Figures of the electricity consumed in one EU member state (imports included), with lifecycle emission factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridRow {
    /// Country code, ISO 3166-1 alpha-2.
    pub country_code: String,
    /// English name of the country.
    pub country: String,
    /// Carbon intensity, grams of CO2 equivalent per kWh.
    pub g_per_kwh: Decimal,
    /// Physical share of renewable electricity, percent.
    pub renewable_percent: Decimal,
    /// Water of electricity generation, litres per kWh.
    pub water_l_per_kwh: Decimal,
    /// Year to which the figures of the row apply.
    pub year: u16,
    /// Source and licence of every figure of the row.
    pub source: String,
}

impl GridRow {
    /// Returns the source in a form for responses: the publisher of the carbon figure and its licence, without the
    /// retrieval method.
    #[must_use]
    pub fn attribution(&self) -> &str {
        let carbon = self.source.split(';').next().unwrap_or_default();
        let carbon = carbon.strip_prefix("carbon+renewable:").unwrap_or(carbon);
        carbon.split(" via ").next().unwrap_or(carbon).trim()
    }
}

/// Table of electricity grids: a row for each country, by country code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridTable(BTreeMap<String, GridRow>);

impl GridTable {
    /// Returns the row of a country; `None` if the table has none.
    #[must_use]
    pub fn get(&self, country_code: &str) -> Option<&GridRow> {
        self.0.get(country_code)
    }

    /// Returns all rows by code.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &GridRow> {
        self.0.values()
    }
}

/// Reads a table with the columns of [`TABLE_HEADER`].
///
/// # Errors
/// Returns every mistake at once, each with its line: a wrong header, a wrong number of cells, an invalid number or one
/// out of range, a country that is not in the EU or does not have this code, a repeated country.
pub fn parse_table(csv: &str) -> Result<GridTable, Vec<String>> {
    let mut found = GridTable::default();
    let mut mistakes = Vec::new();
    for (line, cells) in csv::parse_rows(csv, TABLE_HEADER).map_err(|mistake| vec![mistake])? {
        match parse_row(&cells) {
            Ok(row) => {
                if let Some(twice) = found.0.insert(row.country_code.clone(), row) {
                    mistakes.push(format!("line {line}: {} is repeated", twice.country_code));
                }
            }
            Err(mistake) => mistakes.push(format!("line {line}: {mistake}")),
        }
    }
    if mistakes.is_empty() { Ok(found) } else { Err(mistakes) }
}

fn parse_row(cells: &[String]) -> Result<GridRow, String> {
    let [code, name, carbon, renewable, water, year, source] = cells else {
        return Err(format!("expected 7 cells, found {}", cells.len()));
    };
    let known = country::eu_member_state_name(code)
        .ok_or_else(|| format!("`{code}` is not a member state of the EU"))?;
    if known != name {
        return Err(format!("`{code}` is {known}, not `{name}`"));
    }
    Ok(GridRow {
        country_code: code.clone(),
        country: name.clone(),
        g_per_kwh: parse_number("carbon_g_per_kwh", carbon, 2000)?,
        renewable_percent: parse_number("renewable_percent", renewable, 100)?,
        water_l_per_kwh: parse_number("wue_offsite_l_per_kwh", water, 100)?,
        year: year.parse().map_err(|_| format!("year: `{year}` is not a year"))?,
        source: source.clone(),
    })
}

fn parse_number(column: &str, cell: &str, max: u32) -> Result<Decimal, String> {
    match cell.parse::<Decimal>() {
        Ok(number) if number >= Decimal::ZERO && number <= Decimal::from(max) => Ok(number),
        _ => Err(format!("{column}: `{cell}` is not a number from 0 to {max}")),
    }
}
