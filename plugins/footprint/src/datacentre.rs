//! Published efficiency figures of data centres, for providers whose configuration names a site but no figures.

use crate::csv;
use rust_decimal::Decimal;

/// First line of a table of data centres.
pub const TABLE_HEADER: &str = "operator,site,country_code,pue,wue_l_per_kwh,renewable_claim,basis,source";

/// Published figures of one site. A figure is `None` if the operator does not publish it, or only as a limit or a range
/// (`<1.1`, `1.1-1.3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCentre {
    /// Operator of the site.
    pub operator: String,
    /// Name of the site, as the operator writes it.
    pub site: String,
    /// Country code from the table, in which any country may occur.
    pub country_code: String,
    /// Power usage effectiveness.
    pub pue: Option<Decimal>,
    /// Water on site, litres per kWh of IT energy.
    pub wue: Option<Decimal>,
    /// Title and date of the publication that contains the figures.
    pub basis: String,
    /// Source from which the figures were taken.
    pub source: String,
}

/// Reads a table with the columns of [`TABLE_HEADER`].
///
/// # Errors
/// Returns a message for every line that does not have eight cells, or one message if the header differs or a record
/// cannot be read.
pub fn parse_table(csv: &str) -> Result<Vec<DataCentre>, Vec<String>> {
    let mut sites = Vec::new();
    let mut mistakes = Vec::new();
    for (line, cells) in csv::parse_rows(csv, TABLE_HEADER).map_err(|mistake| vec![mistake])? {
        if let [operator, site, country_code, pue, wue, _, basis, source] = cells.as_slice() {
            sites.push(DataCentre {
                operator: operator.clone(),
                site: site.clone(),
                country_code: country_code.clone(),
                pue: pue.parse().ok(),
                wue: wue.parse().ok(),
                basis: basis.clone(),
                source: source.clone(),
            });
        } else {
            mistakes.push(format!("line {line}: expected 8 cells, found {}", cells.len()));
        }
    }
    if mistakes.is_empty() { Ok(sites) } else { Err(mistakes) }
}

/// Returns the site with exactly this name; `None` if there is none.
#[must_use]
pub fn find_site<'a>(sites: &'a [DataCentre], site: &str) -> Option<&'a DataCentre> {
    sites.iter().find(|known| known.site == site)
}
