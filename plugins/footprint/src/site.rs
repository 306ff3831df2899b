//! Site that serves an answer: its building and its grid.

use crate::{constants, energy_profile::FieldError, grid};
use penstock_core::MeterBoundary;
use rust_decimal::Decimal;

/// Data centre of a provider, and the agreement on the use of its meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSite {
    /// Power usage effectiveness; if `None`, the default is assumed and responses say so.
    pub pue: Option<Decimal>,
    /// Water on site, litres per kWh of IT energy; if `None`, the default is assumed and responses say so.
    pub wue: Option<Decimal>,
    /// Grams of CO2 equivalent per kWh of the grid.
    pub g_per_kwh: Decimal,
    /// Water of electricity generation, litres per kWh.
    pub water_l_per_kwh: Decimal,
    /// Boundary of the provider's meter, for responses that do not state it; `None` if unknown.
    pub boundary: Option<MeterBoundary>,
    /// True if by contract the measured energy determines the bill (at most twice the energy by formula).
    pub bills_measured: bool,
}

impl ServiceSite {
    /// Creates a site on the given grid, without other known figures.
    #[must_use]
    pub const fn from_grid(grid: &grid::GridRow) -> Self {
        Self {
            pue: None,
            wue: None,
            g_per_kwh: grid.g_per_kwh,
            water_l_per_kwh: grid.water_l_per_kwh,
            boundary: None,
            bills_measured: false,
        }
    }

    /// Returns the PUE, published or assumed.
    pub(crate) fn pue(&self) -> Decimal {
        self.pue.unwrap_or(constants::DEFAULT_PUE)
    }

    /// Returns the litres of water on site per kWh, published or assumed.
    pub(crate) fn wue(&self) -> Decimal {
        self.wue.unwrap_or(constants::DEFAULT_WUE_LITRES_PER_KWH)
    }

    /// Returns every figure of the site that is out of its range.
    pub(crate) fn field_errors(&self) -> Vec<FieldError> {
        let numbers = [
            ("pue", self.pue(), 1, 5),
            ("wue", self.wue(), 0, 100),
            ("carbon_g_per_kwh", self.g_per_kwh, 0, 2000),
            ("wue_offsite_l_per_kwh", self.water_l_per_kwh, 0, 100),
        ];
        numbers
            .into_iter()
            .filter(|(_, value, least, most)| *value < Decimal::from(*least) || *value > Decimal::from(*most))
            .map(|(field, _, least, most)| FieldError { field, expected: format!("from {least} to {most}") })
            .collect()
    }
}

/// Inputs of a footprint that are assumed because they are unknown; true means assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// True if the PUE is assumed, because the provider publishes none.
    pub pue: bool,
    /// True if the on-site water use is assumed, because the provider publishes none.
    pub wue: bool,
    /// True if it is unknown which parts of the data centre the provider's meter covers.
    pub boundary: bool,
}

impl Assumptions {
    /// Returns the names of the assumptions, as listed in `provenance.assumed`.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        match (self.pue, self.wue, self.boundary) {
            (false, false, false) => &[],
            (true, false, false) => &["pue"],
            (false, true, false) => &["wue"],
            (true, true, false) => &["pue", "wue"],
            (false, false, true) => &["boundary"],
            (true, false, true) => &["pue", "boundary"],
            (false, true, true) => &["wue", "boundary"],
            (true, true, true) => &["pue", "wue", "boundary"],
        }
    }
}
