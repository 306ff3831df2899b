//! Pricing of requests: quantities times a tariff, in credits or in energy.
//!
//! There are no floats. Amounts are multiplied exactly and rounded half-even once per request: credits to six places,
//! EUR to eight, kilowatt-hours of the energy wallet to nine. An amount that exceeds its integer type becomes the
//! maximum of the type, which no balance covers; a negative price charges nothing.
//!
//! ```text
//! EUR      = Σ qᵢ·pᵢ / 10⁶                (tokens; images and minutes: q·p)
//! EUR      = billable_kwh · EUR/kWh        (energy)
//! batch    = half of either
//! credits  = EUR / (EUR per credit)
//! ```

mod charge;
mod rounding;
mod tariff;

pub use charge::{BilledWork, PayingWallet, RequestCharge, compute_charge};
pub use tariff::{BillingMode, DEFAULT_EUR_PER_CREDIT, DEFAULT_EUR_PER_KWH, Tariff};
