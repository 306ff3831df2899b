//! Precomputed factors of one offer: the energy profile of a model at a provider's site, multiplied out as far as
//! possible before a request is known.
//!
//! With `J` joules of the GPUs, `H` = 1.30 · 1.12 (server, idle machines), and the grid's carbon intensity `CI`:
//!
//! ```text
//! facility = J · H · PUE                          joules at the building's meter
//! carbon   = J · H · PUE · CI                     joules · g/kWh
//! water    = J · H · (WUE_on + PUE · WUE_off)     joules · l/kWh
//! ```
//! A measurement at `it` omits `H`, one at `facility` omits `H · PUE`.

use crate::aggregate::AttemptEnergy;
use crate::constants;
use crate::energy_profile::{EnergyCoefficients, EnergyProfile, FieldError};
use crate::joules;
use crate::method::{EnergyMethod, ErrorRange, meter_boundary_error_range, unknown_boundary_error_range};
use crate::site::{Assumptions, ServiceSite};
use crate::work::AttemptWork;
use penstock_core::{MeasuredEnergy, MeterBoundary};
use rust_decimal::Decimal;

/// Factors by which joules at one meter boundary are multiplied.
#[derive(Clone, Copy, Debug)]
struct JouleFactors {
    facility: Decimal,
    carbon: Decimal,
    water: Decimal,
    gpu: Decimal,
}

/// Precomputed factors of a model at a site.
#[derive(Clone, Debug)]
pub struct OfferFactors {
    coefficients: Option<(EnergyCoefficients, EnergyMethod)>,
    /// Watts at the boundary `it` (server) while only this model runs.
    watts: Decimal,
    gpu: JouleFactors,
    it: JouleFactors,
    facility: JouleFactors,
    /// Factors for energy that is computed from time, at the boundary `it`. The energy of the GPUs is their share of
    /// the server's watts.
    proxy: JouleFactors,
    boundary: Option<MeterBoundary>,
    unknown_boundary: ErrorRange,
    bills_measured: bool,
    pue: Decimal,
    assumed: Assumptions,
}

impl OfferFactors {
    /// Precomputes the factors of an energy profile at a site.
    ///
    /// # Errors
    /// Returns every invalid field.
    pub fn new(card: &EnergyProfile, site: &ServiceSite) -> Result<Self, Vec<FieldError>> {
        let mut mistakes = card.field_errors();
        mistakes.extend(site.field_errors());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let server = constants::HOST_FACTOR.saturating_mul(constants::IDLE_FACTOR);
        let gpu_watts = Decimal::from(constants::GPU_WATTS);
        let watts = gpu_watts.saturating_add(Decimal::from(constants::HOST_WATTS_PER_GPU));
        let it = site_factors(site, Decimal::ONE);
        Ok(Self {
            coefficients: card.coefficients(),
            watts: watts.saturating_mul(Decimal::from(card.gpu_count())),
            gpu: site_factors(site, server),
            it: JouleFactors { gpu: inverse(server), ..it },
            facility: facility_factors(site, it, server),
            proxy: JouleFactors { gpu: gpu_watts.checked_div(watts).unwrap_or(Decimal::ONE), ..it },
            boundary: site.boundary,
            unknown_boundary: unknown_boundary_error_range(site.pue()),
            bills_measured: site.bills_measured,
            pue: site.pue().normalize(),
            assumed: Assumptions { pue: site.pue.is_none(), wue: site.wue.is_none(), boundary: false },
        })
    }

    /// Returns the PUE of the building, published or assumed.
    #[must_use]
    pub const fn pue(&self) -> Decimal {
        self.pue
    }

    /// Returns true if the energy depends on the work alone, so that a client can compute its bill, as `billing =
    /// "energy"` requires. Otherwise the energy depends on time.
    #[must_use]
    pub const fn is_computable_from_work(&self) -> bool {
        self.coefficients.is_some()
    }

    /// Returns the joules of GPU energy per uncached input token and per output token (0 for encoders); `None` if the
    /// model does not work on tokens, or its figures are unknown.
    #[must_use]
    pub fn joules_per_token(&self) -> Option<(Decimal, Decimal)> {
        match self.coefficients? {
            (EnergyCoefficients::Tokens { input, output, .. }, _) => Some((input, output)),
            (EnergyCoefficients::Images { .. } | EnergyCoefficients::Audio { .. }, _) => None,
        }
    }

    /// Returns the energy of one attempt: the measured energy if a valid measurement is given (more than zero joules,
    /// at most [`constants::MAX_USAGE_COUNT`]), otherwise the energy by formula.
    #[must_use]
    pub fn attempt_energy(&self, work: &AttemptWork, measured: Option<MeasuredEnergy>) -> AttemptEnergy {
        measured
            .and_then(|measured| self.measured_energy(measured))
            .unwrap_or_else(|| self.modelled_energy(work, work.throughput_tier))
    }

    /// Returns the measurement unchanged; `None` if it is invalid (see [`Self::attempt_energy`]) or implausible: many
    /// times the energy by formula, or only a small part of it.
    #[must_use]
    pub fn plausible_measurement(
        &self,
        work: &AttemptWork,
        measured: MeasuredEnergy,
    ) -> Option<MeasuredEnergy> {
        let AttemptEnergy { low, high, .. } = self.modelled_energy(work, false);
        let max = high
            .saturating_mul(constants::MAX_MEASURED_TO_FORMULA_RATIO)
            .max(constants::ALWAYS_PLAUSIBLE_JOULES);
        let min = low.checked_div(constants::MAX_MEASURED_TO_FORMULA_RATIO).unwrap_or_default();
        self.measured_energy(measured)
            .filter(|attempt| (min..=max).contains(&attempt.facility))
            .map(|_| measured)
    }

    /// Returns the energy for the bill, kWh with twelve decimal places. It is the energy by formula for ordinary
    /// service with the PUE of this site, so that the customer can compute it too. If the contract says so, measured
    /// energy is billed instead, at most twice the energy by formula.
    #[must_use]
    pub fn billable_kwh(&self, sold: &AttemptWork, measured: Option<MeasuredEnergy>) -> Decimal {
        let (joules, factors, ..) = self.joules_by_formula(sold, false);
        let list = joules.saturating_mul(factors.facility);
        let measured =
            measured.filter(|_| self.bills_measured).and_then(|measured| self.measured_energy(measured));
        let joules = match measured {
            Some(measured) => {
                measured.facility.min(list.saturating_mul(constants::MAX_BILLED_TO_FORMULA_RATIO))
            }
            None => list,
        };
        joules::joules_to_kwh(joules, 12)
    }

    fn measured_energy(&self, measured: MeasuredEnergy) -> Option<AttemptEnergy> {
        let most = Decimal::from(constants::MAX_USAGE_COUNT);
        let joules = Some(measured.joules).filter(|joules| *joules > Decimal::ZERO && *joules <= most)?;
        let known = measured.boundary.or(self.boundary);
        let boundary = known.unwrap_or(MeterBoundary::Gpu);
        let factors = match boundary {
            MeterBoundary::Gpu => &self.gpu,
            MeterBoundary::It => &self.it,
            MeterBoundary::Facility => &self.facility,
        };
        let range =
            if known.is_some() { meter_boundary_error_range(boundary) } else { self.unknown_boundary };
        let assumed = Assumptions { boundary: known.is_none(), ..self.assumed };
        Some(energy_of(joules, factors, range, EnergyMethod::Measured, boundary, assumed))
    }

    fn modelled_energy(&self, work: &AttemptWork, throughput_tier: bool) -> AttemptEnergy {
        let (joules, factors, method, boundary) = self.joules_by_formula(work, throughput_tier);
        energy_of(joules, factors, method.error_range(), method, boundary, self.assumed)
    }

    /// Returns the joules with their factors, method and meter boundary: by the energy profile or, if the profile does
    /// not cover this work, by time.
    fn joules_by_formula(
        &self,
        work: &AttemptWork,
        throughput_tier: bool,
    ) -> (Decimal, &JouleFactors, EnergyMethod, MeterBoundary) {
        let by_card = self.coefficients.as_ref().and_then(|(coefficients, method)| {
            Some((joules::gpu_joules(coefficients, &work.work_done, throughput_tier)?, *method))
        });
        match by_card {
            Some((joules, method)) => (joules, &self.gpu, method, MeterBoundary::Gpu),
            None => {
                let joules = joules::decimal_seconds(work.duration).saturating_mul(self.watts);
                (joules, &self.proxy, EnergyMethod::LatencyProxy, MeterBoundary::It)
            }
        }
    }
}

/// Returns the factors for joules that have to be multiplied by `server` to get the joules of all IT equipment.
fn site_factors(site: &ServiceSite, server: Decimal) -> JouleFactors {
    let pue = site.pue();
    let facility = server.saturating_mul(pue);
    let water = site.wue().saturating_add(pue.saturating_mul(site.water_l_per_kwh));
    JouleFactors {
        facility: facility.normalize(),
        carbon: facility.saturating_mul(site.g_per_kwh).normalize(),
        water: server.saturating_mul(water).normalize(),
        gpu: Decimal::ONE,
    }
}

/// Returns the factors for joules at the building's meter.
fn facility_factors(site: &ServiceSite, it_factors: JouleFactors, server: Decimal) -> JouleFactors {
    let share = inverse(site.pue());
    JouleFactors {
        facility: Decimal::ONE,
        carbon: site.g_per_kwh.normalize(),
        water: it_factors.water.saturating_mul(share),
        gpu: inverse(server).saturating_mul(share),
    }
}

fn inverse(number: Decimal) -> Decimal {
    Decimal::ONE.checked_div(number).unwrap_or(Decimal::ONE)
}

fn energy_of(
    joules: Decimal,
    factors: &JouleFactors,
    range: ErrorRange,
    method: EnergyMethod,
    boundary: MeterBoundary,
    assumed: Assumptions,
) -> AttemptEnergy {
    let facility = joules.saturating_mul(factors.facility);
    let carbon = joules.saturating_mul(factors.carbon);
    AttemptEnergy {
        facility,
        carbon,
        water: joules.saturating_mul(factors.water),
        gpu: joules.saturating_mul(factors.gpu),
        low: facility.saturating_mul(range.low),
        high: facility.saturating_mul(range.high),
        carbon_low: carbon.saturating_mul(range.low),
        carbon_high: carbon.saturating_mul(range.high),
        failed: Decimal::ZERO,
        method,
        boundary,
        assumed,
    }
}
