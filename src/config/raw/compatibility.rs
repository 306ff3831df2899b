//! `[compatibility]` as written in a configuration: conventions of other services, for clients that expect them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Formats and conventions of other services that clients expect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ClientCompatibilityConfig {
    /// Format of a line of batch results: `flat` has `status_code` and the body as `response`; `nested` has
    /// `response.status_code`, `response.request_id` and `response.body`.
    pub batch_results: BatchResultFormat,
    /// Format of images if a request has no `response_format`.
    pub images: ImageResponseFormat,
    /// Format of amounts in `billing_cost`: a JSON `number`, or the same digits as a `string`.
    pub billing_cost: CostFormat,
    /// True if `preset` also sets the flavor of a request that names none: `non_reasoning` means `:speed`.
    pub preset_flavor: bool,
}

/// Format of a line of batch results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum BatchResultFormat {
    #[default]
    Flat,
    Nested,
}

/// Format of an image in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ImageResponseFormat {
    #[default]
    Url,
    B64Json,
}

/// Format of an amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum CostFormat {
    #[default]
    Number,
    String,
}
