//! Money and billed energy as integers.

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

/// Amount of money in millionths of a credit (1e-6 credits); one unit is 1e-8 EUR at the default rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroCredits(pub i64);

/// Billed energy in billionths of a kilowatt-hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoKwh(pub i64);

impl MicroCredits {
    /// Returns the amount in credits, as an exact decimal with six decimal places.
    #[must_use]
    pub fn credits(self) -> Decimal {
        Decimal::new(self.0, 6)
    }

    /// Converts credits, rounded half-even to the sixth decimal place. `None` if the value exceeds an `i64`.
    #[must_use]
    pub fn from_credits(credits: Decimal) -> Option<Self> {
        let scaled = credits.checked_mul(Decimal::from(1_000_000))?;
        scaled.round_dp(0).to_i64().map(Self)
    }
}

impl NanoKwh {
    /// Returns the energy in kilowatt-hours, as an exact decimal with nine decimal places.
    #[must_use]
    pub fn kwh(self) -> Decimal {
        Decimal::new(self.0, 9)
    }
}
