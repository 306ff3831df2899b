//! `[compatibility]` as users write it: habits of other services, for clients that were written for those.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Habits of other services, for clients that were written for those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Compatibility {
    /// Lines of batch results: `flat` has `status_code` and the body as `response`; `nested` has
    /// `response.status_code`, `response.request_id` and `response.body`.
    pub batch_results: BatchResults,
    /// What an image request without `response_format` is answered with.
    pub images: ImageFormat,
    /// Amounts in `billing_cost`: a JSON `number`, or the same digits as a `string`.
    pub billing_cost: CostFormat,
    /// Whether `preset` also chooses the flavor of a request that names none: `non_reasoning` means `:speed`.
    pub preset_flavor: bool,
}

/// Shape of a line of a batch's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum BatchResults {
    #[default]
    Flat,
    Nested,
}

/// How an image is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ImageFormat {
    #[default]
    Url,
    B64Json,
}

/// How an amount is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum CostFormat {
    #[default]
    Number,
    String,
}
