//! Configuration as users write it. These types define the keys, their defaults and descriptions, the JSON Schema and
//! its checks; the module `resolve` converts them to [`super::Settings`]. This file has the top level; each block of
//! keys has its own file or shares one with related blocks.

mod batches;
mod catalogue;
mod compatibility;
mod console;
mod files;
mod fleet;
mod invoice;
mod limits;
mod listen;
mod money;
mod overload;
mod process;
mod providers;
mod routing;
mod scalars;
mod storage;

pub use batches::{BatchesConfig, GridConfig};
pub use catalogue::{
    BillingUnitConfig as ModelBilling, DatedPriceConfig, DefaultModelsConfig, EnergyConfig,
    EnergyMethodConfig, LifecycleConfig, ModalityConfig, ModelConfig, ModelKindName, PresetsConfig,
    PriceConfig, RerankScoreConfig, TokenIdPolicyConfig, TokenizerConfig,
};
pub use compatibility::{BatchResultFormat, ClientCompatibilityConfig, CostFormat, ImageResponseFormat};
pub use console::{ConsoleConfig, ConsoleTlsConfig, OidcConfig, OidcRolesConfig};
pub use files::{
    BucketConfig, BucketStyleName, FilesConfig, GeneratedImagesConfig, ResponsesConfig, SpoolConfig,
    WebIdentityConfig,
};
pub use fleet::FleetConfig;
pub use invoice::{InvoiceConfig, InvoiceCustomerConfig};
pub use limits::LimitsConfig;
pub use listen::{ClientCertificatePolicy, HttpsConfig, ListenConfig, TlsVersion};
pub use money::{BillingConfig, CreditPolicy, LedgerConfig, LedgerSync};
pub use overload::OverloadConfig;
pub use process::{LogConfig, LogFormat, LogLevel, ProcessConfig};
pub use providers::{
    ContinuationConfig, DialectConfig, HealthCheckConfig, HttpVersion, MeterBoundaryConfig, OfferConfig,
    PowerContractEvidence, PrefillConfig, ProviderConfig, ReasoningFieldConfig, RenewableContractConfig,
    SimulatorConfig, TimeoutsConfig, TokenizeEngineName,
};
pub use routing::{CircuitBreakerConfig, RoutingConfig};
pub use scalars::{
    ByteSize, DurationOrZero, ExactDecimal, HeaderValueConfig, NonZeroDuration, OneOrMany, SecretRef,
};
pub use storage::{StorageConfig, StorageEngineName, StoreExportConfig};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of a Penstock gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// More files to read as if they were part of this one: paths relative to this file, `*` for any part of a file
    /// name.
    pub include: Vec<String>,
    /// Listen addresses of the gateway.
    pub listen: ListenConfig,
    /// Dashboard for account holders.
    pub console: ConsoleConfig,
    /// Storage of persistent data.
    pub storage: StorageConfig,
    /// Several gateways that share a PostgreSQL database; without the section, a gateway is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetConfig>,
    /// Temporary storage of uploads and images.
    pub spool: SpoolConfig,
    /// Files that clients upload, and results of batches.
    pub files: FilesConfig,
    /// Stored responses of `/v1/responses`.
    pub responses: ResponsesConfig,
    /// Settings of the process.
    pub process: ProcessConfig,
    /// Log lines on standard error.
    pub log: LogConfig,
    /// Limits on the size and duration of client requests.
    pub limits: LimitsConfig,
    /// Overload protection.
    pub overload: OverloadConfig,
    /// Retries and failover between providers.
    pub routing: RoutingConfig,
    /// Footprint data in answers.
    pub impact: ImpactConfig,
    /// Generated images that clients fetch by URL.
    pub images: GeneratedImagesConfig,
    /// Prices and credit.
    pub billing: BillingConfig,
    /// Seller, customers and VAT on invoices.
    pub invoice: InvoiceConfig,
    /// Recording of charges.
    pub ledger: LedgerConfig,
    /// Processing of batches.
    pub batches: BatchesConfig,
    /// Conventions of other services, for clients that expect them.
    pub compatibility: ClientCompatibilityConfig,
    /// Carbon intensity of the electricity grid.
    pub grid: GridConfig,
    /// Models for requests that name none.
    pub default_models: DefaultModelsConfig,
    /// Catalogue: one block for each model.
    pub models: Vec<ModelConfig>,
    /// Providers: one block each, with its offers.
    pub providers: Vec<ProviderConfig>,
    /// Simulated providers to run in this process, for tests.
    pub simulated: Vec<SimulatorConfig>,
}

/// Footprint data in answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ImpactConfig {
    /// True if answers contain `environment_impact.provenance`: method, range, grid source, embodied carbon.
    pub provenance: bool,
}

impl Default for ImpactConfig {
    fn default() -> Self {
        Self { provenance: true }
    }
}

const fn mib(number: u64) -> ByteSize {
    ByteSize(number << 20)
}
