//! Published efficiency figures of data centres, for providers whose
//! configuration names a site and no figure of its own.

use crate::csv;
use rust_decimal::Decimal;

/// The first line of a table of data centres.
pub const HEADER: &str = "operator,site,country_code,pue,wue_l_per_kwh,renewable_claim,basis,source";

/// What an operator publishes about one site. `None` where it publishes
/// nothing, or only a bound or a span (`<1.1`, `1.1-1.3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Who runs it.
    pub operator: String,
    /// What the operator calls it.
    pub site: String,
    /// As the table has it; not proven to be a member state.
    pub country_code: String,
    /// Power usage effectiveness.
    pub pue: Option<Decimal>,
    /// Water on site, litres per kWh of IT energy.
    pub wue: Option<Decimal>,
    /// Where and when it was published.
    pub basis: String,
    /// Origin.
    pub source: String,
}

/// Reads a table of [`HEADER`]'s columns.
///
/// # Errors
/// Every line that does not have eight cells, or the header.
pub fn table(csv: &str) -> Result<Vec<Site>, Vec<String>> {
    let mut sites = Vec::new();
    let mut mistakes = Vec::new();
    for (line, cells) in csv::rows(csv, HEADER).map_err(|mistake| vec![mistake])? {
        if let [operator, site, country_code, pue, wue, _, basis, source] = cells.as_slice() {
            sites.push(Site {
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

/// The site of this name, letter for letter.
#[must_use]
pub fn find<'a>(sites: &'a [Site], site: &str) -> Option<&'a Site> {
    sites.iter().find(|known| known.site == site)
}
