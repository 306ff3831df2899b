//! Footprint of an answer: energy, carbon and water, computed from the work and the site, with the range and the origin
//! of each figure.
//!
//! The functions of this crate have no side effects. Energy may determine a price, so it is computed in `Decimal`; only
//! [`ecologits`] uses floats, and it runs when the configuration is read. An unknown figure is absent, never zero.
//!
//! The [`OfferFactors`] of each offer are computed when the configuration is read. A request then computes an
//! [`AttemptEnergy`] for each attempt, adds them up, and rounds once:
//!
//! ```
//! use penstock_core::{ModelKind, TokenUsage};
//! use penstock_footprint::{AttemptWork, EnergyProfile, OfferFactors, ServiceSite, grid};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let grid = grid::parse_table(include_str!("../../../conf/grid/eu-2025.csv")).map_err(|all| all.join("\n"))?;
//! let profile = EnergyProfile {
//!     active_params_b: Some("8".parse()?),
//!     joules_per_output_token: Some("0.119".parse()?),
//!     ..EnergyProfile::new(ModelKind::Chat)
//! };
//! let french = grid.get("FR").ok_or("no row")?;
//! let site = ServiceSite { pue: Some("1.16".parse()?), ..ServiceSite::from_grid(french) };
//! let offer = OfferFactors::new(&profile, &site).map_err(|mistakes| format!("{mistakes:?}"))?;
//!
//! let usage = TokenUsage { input: 500, output: 300, ..TokenUsage::default() };
//! let served = offer.attempt_energy(&AttemptWork::from_tokens(usage, Duration::from_secs(3)), None);
//! assert_eq!(served.footprint().energy_kwh, "0.000023538473".parse()?);
//! # Ok(())
//! # }
//! ```

mod aggregate;
pub mod constants;
pub mod country;
mod csv;
pub mod datacentre;
pub mod ecologits;
mod energy_profile;
pub mod grid;
mod joules;
mod method;
mod precomputed;
mod site;
mod work;

pub use aggregate::{AnswerFootprint, AttemptEnergy};
pub use constants::METHODOLOGY_VERSION;
pub use energy_profile::{EnergyProfile, FieldError};
pub use method::{
    EnergyMethod, ErrorRange, meter_boundary_error_range, meter_boundary_from_name, meter_boundary_name,
    unknown_boundary_error_range,
};
pub use penstock_core::WorkDone;
pub use precomputed::OfferFactors;
pub use site::{Assumptions, ServiceSite};
pub use work::AttemptWork;
