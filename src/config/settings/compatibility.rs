//! Habits of other services that clients expect.

use super::{BatchResults, CostFormat, ImageFormat};

/// Habits of other services that clients expect; by default those of this gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compatibility {
    /// Shape of a line of a batch's results.
    pub batch_results: BatchResults,
    /// What an image request without `response_format` is answered with.
    pub images: ImageFormat,
    /// How amounts in `billing_cost` are written.
    pub billing_cost: CostFormat,
    /// Whether `preset` also chooses the flavor of a request without one.
    pub preset_flavor: bool,
}

impl Compatibility {
    /// How amounts in `billing_cost` are written.
    #[must_use]
    pub const fn amounts(&self) -> penstock_annotate::Amounts {
        match self.billing_cost {
            CostFormat::Number => penstock_annotate::Amounts::Numbers,
            CostFormat::String => penstock_annotate::Amounts::Strings,
        }
    }
}
