//! Precomputed factors of one offer: a model's card at a provider's place, multiplied out as far as possible before a
//! request is known.
//!
//! `J` joules of the GPUs, `H` = 1.30 · 1.12 (server, idle machines):
//!
//! ```text
//! facility = J · H · PUE                          joules at the building's meter
//! carbon   = J · H · PUE · CI                     joules · g/kWh
//! water    = J · H · (WUE_on + PUE · WUE_off)     joules · l/kWh
//! ```
//! A measurement at `it` omits `H`, one at `facility` omits `H · PUE`.

use crate::card::{Coefficients, EnergyCard, Mistake};
use crate::joules;
use crate::law;
use crate::method::{Method, Range, measured_range, unknown_boundary_range};
use crate::place::{Assumed, Place};
use crate::sum::Attempt;
use crate::work::Work;
use penstock_contract::{Boundary, Measured};
use rust_decimal::Decimal;

/// Conversion factors of a joule at one boundary.
#[derive(Clone, Copy, Debug)]
struct Factors {
    facility: Decimal,
    carbon: Decimal,
    water: Decimal,
    gpu: Decimal,
}

/// Precomputed factors of a model at a place.
#[derive(Clone, Debug)]
pub struct Prepared {
    coefficients: Option<(Coefficients, Method)>,
    /// Watts at the boundary `it` while only this model runs.
    watts: Decimal,
    gpu: Factors,
    it: Factors,
    facility: Factors,
    /// Same as `it`, with the GPUs' actual share of the watts.
    proxy: Factors,
    boundary: Option<Boundary>,
    unknown_boundary: Range,
    bills_measured: bool,
    pue: Decimal,
    assumed: Assumed,
}

impl Prepared {
    /// Precomputes the factors of a card and a place.
    ///
    /// # Errors
    /// Returns every invalid field.
    pub fn new(card: &EnergyCard, place: &Place) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = card.mistakes();
        mistakes.extend(place.mistakes());
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let server = law::HOST.saturating_mul(law::IDLE);
        let gpu_watts = Decimal::from(law::GPU_WATTS);
        let watts = gpu_watts.saturating_add(Decimal::from(law::HOST_WATTS));
        let it = factors(place, Decimal::ONE);
        Ok(Self {
            coefficients: card.coefficients(),
            watts: watts.saturating_mul(Decimal::from(card.gpus())),
            gpu: factors(place, server),
            it: Factors { gpu: inverse(server), ..it },
            facility: metered(place, it, server),
            proxy: Factors { gpu: gpu_watts.checked_div(watts).unwrap_or(Decimal::ONE), ..it },
            boundary: place.boundary,
            unknown_boundary: unknown_boundary_range(place.pue()),
            bills_measured: place.bills_measured,
            pue: place.pue().normalize(),
            assumed: Assumed { pue: place.pue.is_none(), wue: place.wue.is_none(), boundary: false },
        })
    }

    /// Returns the building's PUE, assumed or not.
    #[must_use]
    pub const fn pue(&self) -> Decimal {
        self.pue
    }

    /// Returns true if the energy follows from the work alone, so that a client can compute its bill, as `billing =
    /// "energy"` requires. Otherwise the energy depends on time.
    #[must_use]
    pub const fn has_list(&self) -> bool {
        self.coefficients.is_some()
    }

    /// Returns the energy of one attempt: measured if a valid measurement (more than zero joules) is given, by formula
    /// otherwise.
    #[must_use]
    pub fn attempt(&self, work: &Work, measured: Option<Measured>) -> Attempt {
        measured
            .and_then(|measured| self.measured(measured))
            .unwrap_or_else(|| self.modelled(work, work.throughput_tier))
    }

    /// Returns the measurement, unless it is implausible: many times the result of the formula.
    #[must_use]
    pub fn credible(&self, work: &Work, measured: Measured) -> Option<Measured> {
        let high = self.modelled(work, false).high;
        let most = high.saturating_mul(law::MEASURED_SPREAD).max(law::MEASURED_SMALL);
        self.measured(measured).filter(|attempt| attempt.facility <= most).map(|_| measured)
    }

    /// Returns the energy for the bill, kWh with twelve places: by list (ordinary service, this place's PUE), so that
    /// the customer can compute it. Measured energy counts only if the contract says so, and up to twice the list.
    #[must_use]
    pub fn billable_kwh(&self, sold: &Work, measured: Option<Measured>) -> Decimal {
        let (joules, factors, ..) = self.formula(sold, false);
        let list = joules.saturating_mul(factors.facility);
        let measured = measured.filter(|_| self.bills_measured).and_then(|measured| self.measured(measured));
        let joules = match measured {
            Some(measured) => measured.facility.min(list.saturating_mul(law::MEASURED_CAP)),
            None => list,
        };
        joules::per_kwh(joules, 12)
    }

    fn measured(&self, measured: Measured) -> Option<Attempt> {
        let most = Decimal::from(law::MOST);
        let joules = Some(measured.joules).filter(|joules| *joules > Decimal::ZERO && *joules <= most)?;
        let known = measured.boundary.or(self.boundary);
        let boundary = known.unwrap_or(Boundary::Gpu);
        let factors = match boundary {
            Boundary::Gpu => &self.gpu,
            Boundary::It => &self.it,
            Boundary::Facility => &self.facility,
        };
        let range = if known.is_some() { measured_range(boundary) } else { self.unknown_boundary };
        let assumed = Assumed { boundary: known.is_none(), ..self.assumed };
        Some(attempt(joules, factors, range, Method::Measured, boundary, assumed))
    }

    fn modelled(&self, work: &Work, throughput_tier: bool) -> Attempt {
        let (joules, factors, method, boundary) = self.formula(work, throughput_tier);
        attempt(joules, factors, method.range(), method, boundary, self.assumed)
    }

    /// Returns the joules by the card or, if it does not cover this work, by time.
    fn formula(&self, work: &Work, throughput_tier: bool) -> (Decimal, &Factors, Method, Boundary) {
        let by_card = self.coefficients.as_ref().and_then(|(coefficients, method)| {
            Some((joules::of(coefficients, &work.done, throughput_tier)?, *method))
        });
        match by_card {
            Some((joules, method)) => (joules, &self.gpu, method, Boundary::Gpu),
            None => {
                let joules = joules::seconds(work.took).saturating_mul(self.watts);
                (joules, &self.proxy, Method::LatencyProxy, Boundary::It)
            }
        }
    }
}

/// Returns the factors of joules that `server` converts into IT joules.
fn factors(place: &Place, server: Decimal) -> Factors {
    let pue = place.pue();
    let facility = server.saturating_mul(pue);
    let water = place.wue().saturating_add(pue.saturating_mul(place.water_l_per_kwh));
    Factors {
        facility: facility.normalize(),
        carbon: facility.saturating_mul(place.g_per_kwh).normalize(),
        water: server.saturating_mul(water).normalize(),
        gpu: Decimal::ONE,
    }
}

/// Returns the factors of joules at the building's meter.
fn metered(place: &Place, it: Factors, server: Decimal) -> Factors {
    let share = inverse(place.pue());
    Factors {
        facility: Decimal::ONE,
        carbon: place.g_per_kwh.normalize(),
        water: it.water.saturating_mul(share),
        gpu: inverse(server).saturating_mul(share),
    }
}

fn inverse(number: Decimal) -> Decimal {
    Decimal::ONE.checked_div(number).unwrap_or(Decimal::ONE)
}

fn attempt(
    joules: Decimal,
    factors: &Factors,
    range: Range,
    method: Method,
    boundary: Boundary,
    assumed: Assumed,
) -> Attempt {
    let facility = joules.saturating_mul(factors.facility);
    Attempt {
        facility,
        carbon: joules.saturating_mul(factors.carbon),
        water: joules.saturating_mul(factors.water),
        gpu: joules.saturating_mul(factors.gpu),
        low: facility.saturating_mul(range.low),
        high: facility.saturating_mul(range.high),
        method,
        boundary,
        assumed,
    }
}
