//! What an answer costs: quantities times a tariff, in credits or in energy.
//!
//! No float anywhere. Everything is multiplied out exactly and rounded half-even
//! once per request: credits to six places, EUR to eight, kilowatt-hours of the
//! energy wallet to nine. What would not fit its integer becomes the greatest
//! one, which no balance covers; a price below zero charges nothing.
//!
//! ```text
//! EUR      = Σ qᵢ·pᵢ / 10⁶                (tokens; images and minutes: q·p)
//! EUR      = billable_kwh · EUR/kWh        (energy)
//! batch    = half of either
//! credits  = EUR / (EUR per credit)
//! ```

mod charge;
mod round;
mod tariff;

pub use charge::{Charge, PaidWith, Sold, charge};
pub use tariff::{Billing, EUR_PER_CREDIT, EUR_PER_KWH, Tariff};
