//! Resolved configuration of the gateway: defaults are filled in, names resolved, secrets read, and values validated.
//! It is immutable; a reload creates a new one.

mod catalog_prices;
mod compatibility;
mod console;
mod fleet;
mod invoice;
mod limits;
mod offers;
mod restart_only;
mod routing;
mod shared;
mod storage;

pub use catalog_prices::tariff_at;
pub use compatibility::ClientCompatibilitySettings;
pub use console::{ConsoleSettings, OpenIdSettings};
pub use fleet::FleetSettings;
pub use invoice::{InvoiceCustomer, InvoiceParty, InvoiceSettings};
pub use limits::{LimitSettings, OverloadSettings};
pub use offers::*;
pub use restart_only::RestartOnlySettings;
pub use routing::{CircuitBreakerSettings, RoutingSettings};
pub use shared::SharedSectionVersions;
pub use storage::{
    BucketCredentialSettings, BucketSettings, DatabasePassword, DatabaseSettings, StorageEngine,
    StorageSettings, StoreExportSettings,
};
// Types of the written configuration that need no conversion.
pub use super::raw::{
    BatchResultFormat, ClientCertificatePolicy, CostFormat, HttpVersion, ImageResponseFormat, LogFormat,
    LogLevel, PowerContractEvidence, TlsVersion,
};

use super::changes::ConfigDocument;
use penstock_http_wire::host::ServedHosts;
use rust_decimal::Decimal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Complete configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Version of the configuration; the same text gives the same version.
    pub version: ConfigVersion,
    /// Versions of the sections that all gateways of a fleet must have in common.
    pub shared: SharedSectionVersions,
    /// Configuration as written, with defaults, for comparison at a reload.
    pub document: ConfigDocument,
    /// Addresses, TLS and public URL of the listeners.
    pub listen: ListenSettings,
    /// Dashboard for account holders.
    pub console: ConsoleSettings,
    /// Store of persistent data.
    pub storage: StorageSettings,
    /// Periodic archives of the store.
    pub exports: StoreExportSettings,
    /// Temporary storage of uploads and images.
    pub spool: SpoolSettings,
    /// Settings of the files that clients upload.
    pub files: FileSettings,
    /// Stored responses of clients.
    pub responses: ResponseSettings,
    /// Limits on the size and duration of client requests.
    pub limits: LimitSettings,
    /// Overload protection: limits on concurrent work.
    pub overload: OverloadSettings,
    /// Retries and failover between providers.
    pub routing: RoutingSettings,
    /// Footprint data in answers.
    pub impact: ImpactSettings,
    /// Generated images that clients fetch by URL.
    pub images: GeneratedImageSettings,
    /// Prices and credit.
    pub billing: BillingSettings,
    /// Seller and customers on invoices.
    pub invoice: InvoiceSettings,
    /// Recording of charges.
    pub ledger: LedgerSettings,
    /// Processing of batches.
    pub batches: BatchSettings,
    /// Conventions of other services that clients expect.
    pub compatibility: ClientCompatibilitySettings,
    /// Carbon intensity of the electricity grid.
    pub grid: GridSettings,
    /// Time for which open requests may continue after a termination signal.
    pub drain: Duration,
    /// Interval at which [`Settings::watched_files`] are checked for changes; zero for never.
    pub watch_interval: Duration,
    /// Paths of the files of secrets and certificates.
    pub watched_files: Vec<PathBuf>,
    /// True if the process may write core dumps.
    pub core_dumps: bool,
    /// Number of worker threads, at least one.
    pub threads: usize,
    /// Log lines on standard error.
    pub log: LogSettings,
    /// Default models of requests that name no model.
    pub default_models: DefaultModelIds,
    /// Models of the catalogue, in document order.
    pub models: Vec<Arc<ModelSettings>>,
    /// Providers, in document order.
    pub providers: Vec<Arc<Provider>>,
    /// All offers; the offer with index `i` is `offers[i]`.
    pub offers: Vec<Arc<OfferSettings>>,
    /// Simulated providers to start in this process.
    pub simulators: Vec<SimulatorSettings>,
}

/// Version of a configuration: the first twelve hexadecimal digits of the SHA-256 of the effective configuration,
/// without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigVersion(pub Box<str>);

/// Maximum number of listening sockets, including those of the admin listener and the dashboard. An upgrade cannot
/// hand over more sockets to the new process.
pub const MAX_LISTENERS: usize = 64;

/// Listeners. No two share an address; at least one of `http` and `https` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSettings {
    /// Addresses for plain HTTP/1.1. HTTP/2 requires TLS, which negotiates it.
    pub http: Vec<SocketAddr>,
    /// Settings of the TLS listener; `None` without one.
    pub https: Option<HttpsSettings>,
    /// Public scheme and host of the gateway, without a slash at the end; if `None`, URLs in responses start with the
    /// host of the request.
    pub public_url: Option<Box<str>>,
    /// Host names of the gateway, including those of `public_url` and of the machine.
    pub hosts: ServedHosts,
    /// Origins of web pages that may call the gateway.
    pub cors: CorsPolicy,
    /// URL of the operator's own documentation.
    pub documentation: Option<Box<str>>,
    /// Address for metrics, health and administration; not for the public.
    pub admin: SocketAddr,
}

/// Origins of web pages that may call the gateway from a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsPolicy {
    /// Any origin may call the gateway.
    Any,
    /// A list of origins as browsers write them: scheme, host and optional port, in lower case. Never empty.
    Origins(Vec<Box<str>>),
    /// No origin: no CORS header is sent.
    Off,
}

/// Settings of the TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsSettings {
    /// Address of the TLS listener.
    pub address: SocketAddr,
    /// Certificate, private key, and policy for client certificates.
    pub tls: TlsSettings,
}

/// TLS of a listener. The files were readable PEM when the settings were created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Path of the PEM file with the certificate chain.
    pub certificate: PathBuf,
    /// Path of the PEM file with the private key.
    pub key: PathBuf,
    /// CA certificates for client certificates, PEM; if `None`, no client certificate is requested.
    pub client_ca: Option<PathBuf>,
    /// Policy for client certificates.
    pub client_certificate: ClientCertificatePolicy,
    /// Minimum TLS version.
    pub min_tls: TlsVersion,
}

/// Temporary storage of uploads and images, in memory or in unlinked files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Folder of the files; created on first use.
    pub path: PathBuf,
    /// Maximum size of an upload in memory, in bytes.
    pub memory: usize,
    /// Maximum size of all temporary files together, in bytes.
    pub disk: u64,
}

/// Files that clients upload, and results of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Folder for the contents of files; created at the first start.
    pub path: PathBuf,
    /// Maximum size of a file, in bytes.
    pub upload: u64,
    /// Maximum size of all files, in bytes.
    pub disk: u64,
    /// Maximum size of the files of one key, in bytes.
    pub per_key: u64,
    /// Free disk space that uploads must leave, in bytes.
    pub keep_free: u64,
    /// Seconds after which files are deleted; `None` for never.
    pub retention: Option<u64>,
    /// Age from which contents without a record are deleted.
    pub leftovers: Duration,
    /// Bucket for the contents; `None` for the folder.
    pub store: Option<BucketSettings>,
}

/// Stored responses of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Maximum size of all stored responses, in bytes.
    pub disk: u64,
    /// Maximum size of the stored responses of one key, in bytes.
    pub per_key: u64,
    /// Time after which stored responses are deleted.
    pub retention: Duration,
    /// Settings of background responses.
    pub background: BackgroundSettings,
}

/// Background responses, which continue to run after their request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundSettings {
    /// Maximum number of unfinished background responses of an account.
    pub open: usize,
    /// Maximum number of background responses in progress.
    pub concurrency: usize,
    /// Time after its creation at which an unfinished background response fails.
    pub window: Duration,
}

/// Generated images that clients fetch by URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedImageSettings {
    /// Time during which an image can be fetched.
    pub lifetime: Duration,
    /// Maximum size of all images together, in bytes.
    pub max_total_bytes: u64,
}

/// Ids of the models for requests that name none; where the id is `None`, such a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultModelIds {
    /// Default model of requests to `/v1/messages/count_tokens`.
    pub count_tokens: Option<Box<str>>,
    /// Default model of requests to `/v1/images/generations`.
    pub images: Option<Box<str>>,
    /// Default model of requests to `/v1/moderations`.
    pub moderations: Option<Box<str>>,
}

/// Footprint data in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpactSettings {
    /// True if answers contain `environment_impact.provenance`.
    pub provenance: bool,
}

/// Prices and credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BillingSettings {
    /// Price of one credit, in EUR.
    pub eur_per_credit: Decimal,
    /// Price of one kilowatt-hour, in EUR, if neither model nor offer has one.
    pub eur_per_kwh: Decimal,
    /// True if accounts may only spend what they were granted.
    pub prepaid: bool,
    /// Output tokens to reserve for a request without `max_tokens`.
    pub reserve_output_tokens: u64,
}

/// Settings of the ledger, which records charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Time for which a charge waits for more charges, so that all of them share one write to the disk.
    pub window: Duration,
    /// True if the last bytes of an answer wait until its charge is on the disk.
    pub answers_wait_for_disk: bool,
    /// Maximum amount of unwritten charges while the store fails, in 1e-8 EUR.
    pub debt: i64,
    /// Maximum size of all unwritten charges, in bytes.
    pub backlog: usize,
    /// Time after which an unfinished write counts as a failure of the store.
    pub slow: Duration,
    /// Maximum time by which the time of the ledger's last entry may be later than the clock.
    pub max_clock_lead: Duration,
}

/// Processing of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Maximum number of batch lines in flight.
    pub concurrency: usize,
    /// Maximum number of unfinished batches of an account.
    pub open: usize,
    /// Memory for lines and results of all batches together, in bytes.
    pub memory: usize,
    /// Maximum size of a line in an uploaded file, in bytes.
    pub line: usize,
    /// Retry policy of a line.
    pub retry: penstock_batch::retry_policy::RetryPolicy,
}

/// Carbon intensity of the grid. If `zones` is empty, batches never wait for clean power.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridSettings {
    /// Minimum share of its emissions that a batch must save by waiting, in thousandths.
    pub saving: u32,
    /// Carbon intensity by code of a member state or id of a provider.
    pub zones: std::collections::BTreeMap<String, penstock_batch::carbon_forecast::GridZone>,
    /// Time at which the file of the forecast was written, in Unix seconds; 0 if unknown.
    pub forecast_written: u64,
}

/// Log lines on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Minimum level of the lines that are written.
    pub level: LogLevel,
    /// Format of each log line.
    pub format: LogFormat,
}

/// A simulated provider started in this process.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatorSettings {
    /// Name of the provider in its generated texts.
    pub name: Box<str>,
    /// Listen address; always loopback.
    pub address: SocketAddr,
    /// Seed: the same seed and request give the same answer.
    pub seed: u64,
    /// Delay of the simulated provider before its first token.
    pub first_token: Duration,
    /// Number of tokens per second that the simulated provider sends after the first token.
    pub tokens_per_second: f64,
}

impl Settings {
    /// Finds the model with this id; aliases are ignored.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<ModelSettings>> {
        self.models.iter().find(|model| model.card.id == id)
    }

    /// Returns the offers of the model with this id.
    pub fn offers_of_model<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<OfferSettings>> {
        self.offers.iter().filter(move |offer| offer.model.card.id == id)
    }
}
