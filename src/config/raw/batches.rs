//! `[batches]` and `[grid]` as written in a configuration.

use super::{ByteSize, ExactDecimal, NonZeroDuration, mib};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Processing of batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct BatchesConfig {
    /// Maximum number of batch lines in flight, all batches together; shared fairly between accounts.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: u32,
    /// Maximum number of unfinished batches of an account; more are refused with 429.
    #[schemars(range(min = 1, max = 100_000))]
    pub open: u32,
    /// Memory for lines and results, all batches together; shared fairly between accounts.
    pub memory: ByteSize,
    /// Maximum size of a line in an uploaded file, at most 256MiB; a longer line is refused with 400.
    pub line: ByteSize,
    /// Maximum number of retries of a line after a temporary failure: full, slow or broken providers.
    #[schemars(range(min = 0, max = 1_000))]
    pub retries: u32,
    /// Mean pause before the first retry; it doubles with each retry.
    pub retry_first: NonZeroDuration,
    /// Maximum mean pause between retries.
    pub retry_most: NonZeroDuration,
}

/// Carbon intensity of the electricity grid: batches that have time wait for clean power. Without `forecast` and
/// `hours` they never wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct GridConfig {
    /// Minimum share of its emissions that a batch must save by waiting, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub saving: ExactDecimal,
    /// CSV file of lines `place,hour,g_per_kwh`, such as `FR,2026-11-22T14:00Z,31`; read at start and at each reload. A
    /// place is the code of a member state or the id of a provider.
    #[schemars(length(min = 1), example = &"grid/forecast.csv")]
    pub forecast: Option<String>,
    /// Typical carbon intensity, used where there is no forecast: for each place, 24 numbers in grams of CO2e per kWh,
    /// starting at 0:00 UTC.
    pub hours: BTreeMap<String, Vec<u32>>,
}

impl Default for BatchesConfig {
    fn default() -> Self {
        Self {
            concurrency: 256,
            open: 100,
            memory: ByteSize(32 << 20),
            line: mib(32),
            retries: 20,
            retry_first: NonZeroDuration::from_secs(1),
            retry_most: NonZeroDuration::from_secs(600),
        }
    }
}

impl Default for GridConfig {
    fn default() -> Self {
        Self { saving: ExactDecimal(Decimal::new(1, 1)), forecast: None, hours: BTreeMap::new() }
    }
}
