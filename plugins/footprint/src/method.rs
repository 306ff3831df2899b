//! How a figure came about, and how far off it may be.

use crate::law;
use penstock_contract::Boundary;
use rust_decimal::Decimal;

/// How the energy of an answer was found, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The provider's meter, for this very answer.
    Measured,
    /// The provider's own average for the model.
    ProviderAverage,
    /// A public benchmark of the model.
    Benchmark,
    /// A law over the model's size.
    Parametric,
    /// The time it took, on a machine of known power.
    LatencyProxy,
    /// A typical value of its class.
    ClassDefault,
}

/// A pair of factors: the true value lies between `low` and `high` times the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// At most 1.
    pub low: Decimal,
    /// At least 1.
    pub high: Decimal,
}

/// In hundredths.
const fn range(low: i64, high: i64) -> Range {
    Range { low: hundredths(low), high: hundredths(high) }
}

const fn hundredths(count: i64) -> Decimal {
    Decimal::from_parts(count as u32, 0, 0, false, 2)
}

impl Method {
    /// The name that answers, configuration and logs use.
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

    /// The method of this name, for configuration.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::ProviderAverage, Self::Benchmark, Self::Parametric, Self::LatencyProxy, Self::ClassDefault]
            .into_iter()
            .chain([Self::Measured])
            .find(|method| method.name() == name)
    }

    /// The range of a figure found this way; a measured one has that of a GPU's
    /// meter (see [`measured_range`] for the others).
    #[must_use]
    pub const fn range(self) -> Range {
        match self {
            Self::Measured => measured_range(Boundary::Gpu),
            Self::ProviderAverage => range(50, 200),
            Self::Benchmark => range(50, 400),
            Self::Parametric => range(25, 550),
            Self::LatencyProxy => range(25, 400),
            Self::ClassDefault => range(10, 1000),
        }
    }
}

/// The range of a measurement at this boundary.
#[must_use]
pub const fn measured_range(boundary: Boundary) -> Range {
    match boundary {
        Boundary::Gpu => range(80, 125),
        Boundary::It => range(90, 110),
        Boundary::Facility => range(95, 105),
    }
}

/// The range where nobody says where the meter sits: taken for a GPU's (which
/// publishes the most), though it may be the building's. So the low end is the
/// building's, before any factor was added.
#[must_use]
pub fn unknown_boundary_range(pue: Decimal) -> Range {
    let added = law::HOST.saturating_mul(law::IDLE).saturating_mul(pue);
    let low = measured_range(Boundary::Facility).low.checked_div(added);
    let gpu = measured_range(Boundary::Gpu);
    Range { low: low.map_or(gpu.low, |low| low.round_dp(6).min(gpu.low)), ..gpu }
}

/// The name of a boundary in answers and configuration.
#[must_use]
pub const fn boundary_name(boundary: Boundary) -> &'static str {
    match boundary {
        Boundary::Gpu => "gpu",
        Boundary::It => "it",
        Boundary::Facility => "facility",
    }
}

/// The boundary of this name, for configuration.
#[must_use]
pub fn boundary_named(name: &str) -> Option<Boundary> {
    [Boundary::Gpu, Boundary::It, Boundary::Facility].into_iter().find(|known| boundary_name(*known) == name)
}
