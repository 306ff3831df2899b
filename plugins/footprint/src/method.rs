//! Methods of energy figures, with their error ranges.

use crate::constants;
use penstock_core::MeterBoundary;
use rust_decimal::Decimal;

/// Method by which the energy of an answer was determined; better methods come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnergyMethod {
    /// Measurement by the provider's meter, for this answer.
    Measured,
    /// Average figure that the provider states for the model.
    ProviderAverage,
    /// Public benchmark of the model.
    Benchmark,
    /// Formula based on the model's size.
    Parametric,
    /// Energy from the duration of the answer on a machine of known power.
    LatencyProxy,
    /// Typical value for models of the same class.
    ClassDefault,
}

/// Pair of factors: the true value lies between `low` and `high` times the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRange {
    /// Factor from the figure to the lowest possible true value, at most 1.
    pub low: Decimal,
    /// Factor from the figure to the highest possible true value, at least 1.
    pub high: Decimal,
}

/// Creates an error range from two factors in hundredths: 50 is 0.5.
const fn range(low: i64, high: i64) -> ErrorRange {
    ErrorRange { low: hundredths(low), high: hundredths(high) }
}

const fn hundredths(count: i64) -> Decimal {
    Decimal::from_parts(count as u32, 0, 0, false, 2)
}

impl EnergyMethod {
    /// Returns the name in answers, configuration and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::ProviderAverage => "provider_average",
            Self::Benchmark => "benchmark",
            Self::Parametric => "parametric",
            Self::LatencyProxy => "latency_proxy",
            Self::ClassDefault => "class_default",
        }
    }

    /// Returns the method of this name, for configuration; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ProviderAverage, Self::Benchmark, Self::Parametric, Self::LatencyProxy, Self::ClassDefault]
            .into_iter()
            .chain([Self::Measured])
            .find(|method| method.name() == name)
    }

    /// Returns the error range of a figure by this method. For a measurement it is the range at a GPU's meter; see
    /// [`meter_boundary_error_range`] for other meters.
    #[must_use]
    pub const fn error_range(self) -> ErrorRange {
        match self {
            Self::Measured => meter_boundary_error_range(MeterBoundary::Gpu),
            Self::ProviderAverage => range(50, 200),
            Self::Benchmark => range(50, 400),
            Self::Parametric => range(25, 550),
            Self::LatencyProxy => range(25, 400),
            Self::ClassDefault => range(10, 1000),
        }
    }
}

/// Returns the error range of a measurement at this boundary.
#[must_use]
pub const fn meter_boundary_error_range(boundary: MeterBoundary) -> ErrorRange {
    match boundary {
        MeterBoundary::Gpu => range(80, 125),
        MeterBoundary::It => range(90, 110),
        MeterBoundary::Facility => range(95, 105),
    }
}

/// Returns the error range of a measurement with an unknown boundary. The energy is treated as that of the GPUs, and
/// multiplied by the factors for server, idle machines and building, although it may be that of the whole building. So
/// the low end is that of a building's meter, divided by those factors.
#[must_use]
pub fn unknown_boundary_error_range(pue: Decimal) -> ErrorRange {
    let added = constants::HOST_FACTOR.saturating_mul(constants::IDLE_FACTOR).saturating_mul(pue);
    let low = meter_boundary_error_range(MeterBoundary::Facility).low.checked_div(added);
    let gpu = meter_boundary_error_range(MeterBoundary::Gpu);
    ErrorRange { low: low.map_or(gpu.low, |low| low.round_dp(6).min(gpu.low)), ..gpu }
}

/// Returns the name of a boundary in answers and configuration.
#[must_use]
pub const fn meter_boundary_name(boundary: MeterBoundary) -> &'static str {
    match boundary {
        MeterBoundary::Gpu => "gpu",
        MeterBoundary::It => "it",
        MeterBoundary::Facility => "facility",
    }
}

/// Returns the boundary of this name, for configuration; `None` if there is none.
#[must_use]
pub fn meter_boundary_from_name(name: &str) -> Option<MeterBoundary> {
    [MeterBoundary::Gpu, MeterBoundary::It, MeterBoundary::Facility]
        .into_iter()
        .find(|known| meter_boundary_name(*known) == name)
}
