//! Sum of all attempts of one request: exact, and rounded only once.

use crate::constants;
use crate::joules::{divide_rounded, joules_to_kwh};
use crate::method::EnergyMethod;
use crate::site::Assumptions;
use penstock_core::MeterBoundary;
use rust_decimal::Decimal;

/// Energy of one attempt or of several, not yet rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptEnergy {
    /// Joules at the meter of the data centre's building.
    pub(crate) facility: Decimal,
    /// Emissions as energy in joules times grid intensity in g/kWh.
    pub(crate) carbon: Decimal,
    /// Water use as energy in joules times water intensity in l/kWh.
    pub(crate) water: Decimal,
    /// Energy of the GPUs in joules.
    pub(crate) gpu: Decimal,
    /// Lower limit of `facility`.
    pub(crate) low: Decimal,
    /// Upper limit of `facility`.
    pub(crate) high: Decimal,
    /// Lower limit of `carbon`.
    pub(crate) carbon_low: Decimal,
    /// Upper limit of `carbon`.
    pub(crate) carbon_high: Decimal,
    /// Joules of failed attempts, part of `facility`.
    pub(crate) failed: Decimal,
    pub(crate) method: EnergyMethod,
    pub(crate) boundary: MeterBoundary,
    pub(crate) assumed: Assumptions,
}

/// Environmental footprint of an answer, failed attempts included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFootprint {
    /// Energy at the meter of the data centre's building, kWh, twelve decimal places.
    pub energy_kwh: Decimal,
    /// Operational, location-based CO2 equivalent, grams, nine decimal places.
    pub carbon_g: Decimal,
    /// Water used on site and for electricity generation, litres, nine decimal places.
    pub water_l: Decimal,
    /// Lower limit of `energy_kwh`.
    pub energy_kwh_low: Decimal,
    /// Upper limit of `energy_kwh`.
    pub energy_kwh_high: Decimal,
    /// Lower limit of `carbon_g`.
    pub carbon_low_g: Decimal,
    /// Upper limit of `carbon_g`.
    pub carbon_high_g: Decimal,
    /// Energy of failed attempts, kWh, twelve decimal places; part of `energy_kwh`.
    pub failed_kwh: Decimal,
    /// CO2 equivalent of making the hardware, the share of this answer, grams, nine decimal places; not part of
    /// `carbon_g`.
    pub embodied_g: Decimal,
    /// Method by which the energy of the successful attempt was determined.
    pub method: EnergyMethod,
    /// Meter boundary to which `method` applies; the energy beyond this boundary was added by formula.
    pub boundary: MeterBoundary,
    /// Assumptions made where the site's figures or the meter boundary are unknown.
    pub assumed: Assumptions,
}

impl AttemptEnergy {
    /// Adds a failed attempt of the same request, possibly at another site. Method, boundary and assumptions remain
    /// those of the successful attempt.
    pub fn add_failed(&mut self, failed: &Self) {
        self.facility = self.facility.saturating_add(failed.facility);
        self.carbon = self.carbon.saturating_add(failed.carbon);
        self.water = self.water.saturating_add(failed.water);
        self.gpu = self.gpu.saturating_add(failed.gpu);
        self.low = self.low.saturating_add(failed.low);
        self.high = self.high.saturating_add(failed.high);
        self.carbon_low = self.carbon_low.saturating_add(failed.carbon_low);
        self.carbon_high = self.carbon_high.saturating_add(failed.carbon_high);
        self.failed = self.failed.saturating_add(failed.facility);
    }

    /// Returns the footprint, each figure rounded once (half to even).
    #[must_use]
    pub fn footprint(&self) -> AnswerFootprint {
        AnswerFootprint {
            energy_kwh: joules_to_kwh(self.facility, 12),
            carbon_g: joules_to_kwh(self.carbon, 9),
            water_l: joules_to_kwh(self.water, 9),
            energy_kwh_low: joules_to_kwh(self.low, 12),
            energy_kwh_high: joules_to_kwh(self.high, 12),
            carbon_low_g: joules_to_kwh(self.carbon_low, 9),
            carbon_high_g: joules_to_kwh(self.carbon_high, 9),
            failed_kwh: if self.failed.is_zero() { Decimal::ZERO } else { joules_to_kwh(self.failed, 12) },
            embodied_g: divide_rounded(
                self.gpu.saturating_mul(constants::EMBODIED_CO2E_GRAMS_PER_WH),
                3600,
                9,
            ),
            method: self.method,
            boundary: self.boundary,
            assumed: self.assumed,
        }
    }
}
