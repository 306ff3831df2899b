//! Conventions of other services that clients expect.

use super::{BatchResultFormat, CostFormat, ImageResponseFormat};

/// Formats and conventions of other services that clients expect. The defaults are this gateway's own conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCompatibilitySettings {
    /// Format of a line of batch results.
    pub batch_results: BatchResultFormat,
    /// Format of images if a request has no `response_format`.
    pub images: ImageResponseFormat,
    /// Format of the amounts in the response member `billing_cost`: numbers or strings.
    pub billing_cost: CostFormat,
    /// True if the request member `preset` also selects the flavor of a request whose model name has none:
    /// `non_reasoning` means `:speed`.
    pub preset_flavor: bool,
}

impl ClientCompatibilitySettings {
    /// Returns the format of amounts in `billing_cost`, as the crate for response metadata names it.
    #[must_use]
    pub const fn amount_format(&self) -> penstock_response_metadata::AmountFormat {
        match self.billing_cost {
            CostFormat::Number => penstock_response_metadata::AmountFormat::Numbers,
            CostFormat::String => penstock_response_metadata::AmountFormat::Strings,
        }
    }
}
