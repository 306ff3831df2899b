//! The configuration as users write it. These types are the one source of the keys, their defaults, their
//! sentences, the JSON Schema and the checks of shape; `resolve` makes [`super::Settings`] of them.

mod batches;
mod catalogue;
mod leaf;
mod money;
mod overload;
mod providers;
mod storage;

pub use batches::{Batches, Grid};
pub use catalogue::{
    Billing as ModelBilling, DatedPrice, Energy, Kind, Lifecycle, Method, Modality, Model, Presets, Price,
    Score, TokenIds, Tokenizer,
};
pub use leaf::{Exact, HeaderValue, OneOrMany, Pause, Reference, Size, Span};
pub use money::{Billing, Credit, Ledger, Sync};
pub use overload::Overload;
pub use providers::{
    Boundary, Continuation, Contractual, Dialect, Engine, Evidence, Health, HttpVersion, Offer, Prefill,
    Provider, Simulated, Timeouts,
};
pub use storage::{Export, Storage};

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

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
    /// When the grid is clean.
    pub grid: Grid,
    /// The catalogue: a block for each model.
    pub models: Vec<Model>,
    /// A block for each provider, with its offers.
    pub providers: Vec<Provider>,
    /// Simulated providers to run in this process, for trying things out.
    pub simulated: Vec<Simulated>,
}

/// Where the gateway listens. Addresses are `IP:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Listen {
    /// Plain HTTP: one address or several; `[]` for none.
    #[schemars(example = &"0.0.0.0:8080")]
    pub http: OneOrMany,
    /// HTTP over TLS.
    pub https: Option<Https>,
    /// Where clients reach the gateway, for addresses in its answers; what their request was sent to when left out.
    #[schemars(length(min = 1), example = &"https://api.example.eu")]
    pub public_url: Option<String>,
    /// Metrics, health and administration. Keep it from the public.
    #[schemars(extend("format" = "address"), example = &"127.0.0.1:9090")]
    pub admin: String,
}

/// HTTP over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Https {
    /// Where.
    #[schemars(extend("format" = "address"), example = &"0.0.0.0:8443")]
    pub address: String,
    /// Certificate chain, PEM.
    #[schemars(length(min = 1), example = &"tls/fullchain.pem")]
    pub certificate: String,
    /// Private key, PEM.
    #[schemars(length(min = 1), example = &"tls/key.pem")]
    pub key: String,
    /// Whose certificates clients may show, PEM; none is asked for when left out.
    #[schemars(length(min = 1), example = &"tls/clients.pem")]
    pub client_ca: Option<String>,
    /// Whether a client has to show one, where `client_ca` says whose.
    #[serde(default)]
    pub client_certificate: ClientCertificates,
    /// The oldest version of TLS that is spoken.
    #[serde(default)]
    pub min_tls: TlsVersion,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ClientCertificates {
    #[default]
    Required,
    Optional,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// Uploads and images while they are needed. On disk they have no name, so that nothing is left of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Spool {
    /// Folder of the files, relative to this file; `spool` in the folder of the store when left out.
    #[schemars(length(min = 1), example = &"/var/tmp/penstock")]
    pub path: Option<String>,
    /// What stays in memory; larger uploads go to a file.
    pub memory: Size,
    /// All files together; what does not fit is refused with 507.
    pub disk: Size,
}

/// Files that clients upload, and results of batches: kept until they are deleted or over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Files {
    /// Folder of their contents, relative to this file; `files` in the folder of the store when left out.
    #[schemars(length(min = 1), example = &"/var/lib/penstock/files")]
    pub path: Option<String>,
    /// Largest file; more is refused with 413.
    pub upload: Size,
    /// All files together; what does not fit is refused with 507.
    pub disk: Size,
    /// All files of one API key; what does not fit is refused with 507.
    pub per_key: Size,
    /// Room on the disk that uploads leave free, for the store and for what runs.
    pub keep_free: Size,
    /// How long files are kept; 0s until they are deleted.
    pub retention: Pause,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Process {
    /// Worker threads; 0 is one for each core.
    #[schemars(range(min = 0, max = 1024))]
    pub threads: u32,
    /// How long open requests may go on after SIGTERM or an upgrade; it ends sooner when none is left.
    pub drain: Pause,
    /// How often files of secrets and certificates are looked at for changes; 0 for never.
    pub watch: Pause,
    /// What is in memory, prompts and keys among it, may be written to disk when the process dies.
    pub core_dumps: bool,
}

/// Lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Log {
    /// The least important line that is written. `info` is a line per request.
    pub level: LogLevel,
    /// `json` for machines, `text` for people.
    pub format: LogFormat,
}

/// Importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LogLevel {
    #[allow(missing_docs)]
    Error,
    #[allow(missing_docs)]
    Warn,
    #[allow(missing_docs)]
    Info,
    #[allow(missing_docs)]
    Debug,
}

/// Shape of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LogFormat {
    #[allow(missing_docs)]
    Json,
    #[allow(missing_docs)]
    Text,
}

/// What a client may send, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Limits {
    /// Most client connections; more are closed as they come.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Most connections of one client: an IPv4 address, or an IPv6 network of 64 bits.
    #[schemars(range(min = 1))]
    pub connections_per_client: u32,
    /// Largest request head; more is refused with 431.
    pub head: Size,
    /// Most header fields of a request; more are refused with 431.
    #[schemars(range(min = 8, max = 250))]
    pub head_fields: u32,
    /// Longest request target; more is refused with 414.
    pub target: Size,
    /// Most streams that an HTTP/2 connection has at a time.
    #[schemars(range(min = 1, max = 10_000))]
    pub h2_streams: u32,
    /// Most streams of an HTTP/2 connection that were given up, less those that were answered.
    pub h2_resets: u32,
    /// Most frames in a second that carry nothing, of an HTTP/2 connection.
    #[schemars(range(min = 100))]
    pub h2_frames: u32,
    /// Largest JSON body; more is refused with 413.
    pub json_body: Size,
    /// Largest form with audio; more is refused with 413.
    pub audio_body: Size,
    /// Deepest nesting of a JSON body; more is refused with 400.
    #[schemars(range(min = 8, max = 1024))]
    pub json_depth: u32,
    /// Time for a whole request head.
    pub request_head: Span,
    /// Longest silence within a request body.
    pub body_idle: Span,
    /// Time for a whole request body.
    pub body: Span,
    /// Time for a whole form with audio or a file.
    pub upload: Span,
    /// How long an idle client connection stays open.
    pub keep_alive: Span,
    /// Longest time a client may leave a write waiting, or what was sent, probes too, unacknowledged.
    pub client_write: Span,
    /// Silence after which a waiting stream gets a comment, so that no proxy on the way gives up.
    pub heartbeat: Span,
    /// Largest unstreamed answer of a provider.
    pub response_buffer: Size,
}

/// How providers are tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Routing {
    /// Most attempts for one request.
    #[schemars(range(min = 1, max = 16))]
    pub attempts: u32,
    /// Deadline of a request over all its attempts.
    pub total: Span,
    /// How long a request waits for a provider's `Retry-After` instead of moving on.
    pub patience: Pause,
    /// Mean pause before the one quick retry that a provider in good standing gets after 500, 502 or a reset.
    pub quick_retry: Pause,
    /// How long a request with `:batch` waits for its turn.
    pub batch_wait: Span,
    /// Lines of batches that a provider without `max_in_flight` is asked at a time.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_lines: u32,
    /// When a provider is left alone for a while.
    pub breaker: Breaker,
}

/// When a provider is left alone for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Breaker {
    /// After this many failures in a row.
    #[schemars(range(min = 1, max = 1000))]
    pub consecutive: u32,
    /// Or when this share of its results within `window` are failures.
    #[schemars(range(min = 0, max = 1))]
    pub error_rate: Exact,
    /// Results within `window` below which the share does not count.
    #[schemars(range(min = 1, max = 100_000))]
    pub minimum: u32,
    /// What the share looks back on.
    pub window: Span,
    /// First rest; it doubles each time in a row.
    pub rest: Span,
    /// Longest rest.
    pub rest_max: Span,
}

/// What answers tell of their footprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Impact {
    /// Whether `environment_impact.provenance` is there: method, range, grid source, embodied carbon.
    pub provenance: bool,
}

/// Images that clients fetch by their address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Images {
    /// How long an image can be fetched.
    pub lifetime: Span,
    /// All images together; the oldest go first.
    pub keep: Size,
}

const fn mib(number: u64) -> Size {
    Size(number << 20)
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: OneOrMany::One("127.0.0.1:8080".into()),
            https: None,
            public_url: None,
            admin: "127.0.0.1:9090".into(),
        }
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self { path: None, memory: Size(256 << 10), disk: mib(4096) }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self {
            path: None,
            upload: mib(512),
            disk: mib(64 << 10),
            per_key: mib(16 << 10),
            keep_free: mib(256),
            retention: Pause(Duration::from_secs(30 * 86_400)),
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self {
            threads: 0,
            drain: Pause(Duration::from_secs(600)),
            watch: Pause(Duration::from_secs(5)),
            core_dumps: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Json }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_client: 4_096,
            head: Size(32 << 10),
            head_fields: 100,
            target: Size(8 << 10),
            h2_streams: 100,
            h2_resets: 200,
            h2_frames: 2_000,
            json_body: mib(32),
            audio_body: mib(200),
            json_depth: 128,
            request_head: Span::seconds(10),
            body_idle: Span::seconds(15),
            body: Span::seconds(300),
            upload: Span::seconds(1800),
            keep_alive: Span::seconds(75),
            client_write: Span::seconds(30),
            heartbeat: Span::seconds(15),
            response_buffer: mib(64),
        }
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            attempts: 4,
            total: Span::seconds(600),
            patience: Pause(Duration::ZERO),
            quick_retry: Pause(Duration::from_millis(50)),
            batch_wait: Span::seconds(600),
            batch_lines: 64,
            breaker: Breaker::default(),
        }
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            consecutive: 5,
            error_rate: Exact(Decimal::new(5, 1)),
            minimum: 20,
            window: Span::seconds(30),
            rest: Span::seconds(1),
            rest_max: Span::seconds(30),
        }
    }
}

impl Default for Impact {
    fn default() -> Self {
        Self { provenance: true }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self { lifetime: Span::seconds(3600), keep: mib(256) }
    }
}
