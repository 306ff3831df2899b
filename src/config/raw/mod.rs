//! The configuration as users write it. These types define the keys, their defaults and descriptions, the JSON Schema
//! and its checks; `resolve` converts them to [`super::Settings`]. This file joins the blocks; each block has a file of
//! its own or shares one with related blocks.

mod batches;
mod catalogue;
mod compatibility;
mod files;
mod limits;
mod listen;
mod money;
mod overload;
mod process;
mod providers;
mod routing;
mod scalars;
mod storage;

pub use batches::{Batches, Grid};
pub use catalogue::{
    Billing as ModelBilling, DatedPrice, DefaultModels, Energy, Kind, Lifecycle, Method, Modality, Model,
    Presets, Price, Score, TokenIds, Tokenizer,
};
pub use compatibility::{BatchResults, Compatibility, CostFormat, ImageFormat};
pub use files::{Files, Images, Spool};
pub use limits::Limits;
pub use listen::{ClientCertificates, Https, Listen, TlsVersion};
pub use money::{Billing, Credit, Ledger, Sync};
pub use overload::Overload;
pub use process::{Log, LogFormat, LogLevel, Process};
pub use providers::{
    Boundary, Continuation, Contractual, Dialect, Engine, Evidence, Health, HttpVersion, Offer, Prefill,
    Provider, ReasoningName, Simulated, Timeouts,
};
pub use routing::{Breaker, Routing};
pub use scalars::{Exact, HeaderValue, OneOrMany, Pause, Reference, Size, Span};
pub use storage::{Export, Storage};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of a Penstock gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// More files to read as if they were part of this one: paths relative to this file, `*` for any part of a file
    /// name.
    pub include: Vec<String>,
    /// Listen addresses of the gateway.
    pub listen: Listen,
    /// Storage of persistent data.
    pub storage: Storage,
    /// Temporary storage of uploads and images.
    pub spool: Spool,
    /// Files that clients upload, and results of batches.
    pub files: Files,
    /// Settings of the process.
    pub process: Process,
    /// Log lines on standard error.
    pub log: Log,
    /// Limits on the size and duration of client requests.
    pub limits: Limits,
    /// Overload protection.
    pub overload: Overload,
    /// Retries and failover between providers.
    pub routing: Routing,
    /// Footprint data in answers.
    pub impact: Impact,
    /// Generated images that clients fetch by URL.
    pub images: Images,
    /// Prices and credit.
    pub billing: Billing,
    /// Recording of charges.
    pub ledger: Ledger,
    /// Processing of batches.
    pub batches: Batches,
    /// Conventions of other services, for clients that expect them.
    pub compatibility: Compatibility,
    /// Carbon intensity of the electricity grid.
    pub grid: Grid,
    /// Models for requests that name none.
    pub default_models: DefaultModels,
    /// Catalogue: one block for each model.
    pub models: Vec<Model>,
    /// Providers: one block each, with its offers.
    pub providers: Vec<Provider>,
    /// Simulated providers to run in this process, for tests.
    pub simulated: Vec<Simulated>,
}

/// Footprint data in answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Impact {
    /// True if answers contain `environment_impact.provenance`: method, range, grid source, embodied carbon.
    pub provenance: bool,
}

impl Default for Impact {
    fn default() -> Self {
        Self { provenance: true }
    }
}

const fn mib(number: u64) -> Size {
    Size(number << 20)
}
