//! The configuration as users write it. These types are the one source of the keys, their defaults, their
//! sentences, the JSON Schema and the checks of shape; `resolve` makes [`super::Settings`] of them.
//! Here is how the blocks of a file stand together; each block is in the file of its name or its matter.

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
    /// More files to read, as if they stood here: paths relative to this file, `*` for any part of a file name.
    pub include: Vec<String>,
    /// Where the gateway listens.
    pub listen: Listen,
    /// What it keeps, and where.
    pub storage: Storage,
    /// Uploads and images while they are needed.
    pub spool: Spool,
    /// Files that clients upload, and results of batches.
    pub files: Files,
    /// The process.
    pub process: Process,
    /// Lines on standard error.
    pub log: Log,
    /// What a client may send, and how long it may take.
    pub limits: Limits,
    /// How much the gateway takes on.
    pub overload: Overload,
    /// How providers are tried.
    pub routing: Routing,
    /// What answers tell of their footprint.
    pub impact: Impact,
    /// Images that clients fetch by their address.
    pub images: Images,
    /// Money.
    pub billing: Billing,
    /// How charges are written down.
    pub ledger: Ledger,
    /// How batches are worked off.
    pub batches: Batches,
    /// Habits of other services, for clients that were written for those.
    pub compatibility: Compatibility,
    /// When the grid is clean.
    pub grid: Grid,
    /// Models for requests that name none.
    pub default_models: DefaultModels,
    /// The catalogue: a block for each model.
    pub models: Vec<Model>,
    /// A block for each provider, with its offers.
    pub providers: Vec<Provider>,
    /// Simulated providers to run in this process, for trying things out.
    pub simulated: Vec<Simulated>,
}

/// What answers tell of their footprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Impact {
    /// Whether `environment_impact.provenance` is there: method, range, grid source, embodied carbon.
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
