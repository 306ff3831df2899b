//! `[batches]` and `[grid]` as users write them.

use super::{Exact, Size, Span, mib};
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How batches are worked off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Batches {
    /// Most lines at work at the same time, all batches together; accounts take turns.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: u32,
    /// Most batches of an account that are not over; more are refused with 429.
    #[schemars(range(min = 1, max = 100_000))]
    pub open: u32,
    /// Lines and results in memory, all batches together; accounts share it alike.
    pub memory: Size,
    /// Longest line of an uploaded file, at most 256MiB; a longer one is refused with 400.
    pub line: Size,
    /// How often a line is asked again that met a failure which may pass: full, slow or broken providers.
    #[schemars(range(min = 0, max = 1_000))]
    pub retries: u32,
    /// Mean pause before the first time; it doubles each time.
    pub retry_first: Span,
    /// Longest mean pause.
    pub retry_most: Span,
}

/// When the grid is clean: batches that have time wait for it. Without `forecast` and `hours` they never wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Grid {
    /// Least share of the emissions that waiting has to save, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub saving: Exact,
    /// A file of lines `place,hour,g_per_kwh`, such as `FR,2026-11-22T14:00Z,31`; read at the start and at each
    /// reload. A place is a member state or the id of a provider.
    #[schemars(length(min = 1), example = &"grid/forecast.csv")]
    pub forecast: Option<String>,
    /// What is usual, where no forecast is: by place, 24 numbers of grams of CO2e per kWh, from 0:00 UTC on.
    pub hours: BTreeMap<String, Vec<u32>>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            concurrency: 256,
            open: 100,
            memory: Size(32 << 20),
            line: mib(32),
            retries: 20,
            retry_first: Span::seconds(1),
            retry_most: Span::seconds(600),
        }
    }
}

impl Default for Grid {
    fn default() -> Self {
        Self { saving: Exact(Decimal::new(1, 1)), forecast: None, hours: BTreeMap::new() }
    }
}
