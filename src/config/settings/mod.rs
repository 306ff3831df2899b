//! The configuration as the house uses it: every default filled in, every name resolved, every secret
//! read, every value proven. Never changed afterwards, a reload makes another.

mod compatibility;
mod offers;
mod restart_only;

pub use compatibility::Compatibility;
pub use offers::*;
pub use restart_only::Fixed;
// What is used as it is written.
pub use super::raw::{
    BatchResults, ClientCertificates, CostFormat, Evidence, HttpVersion, ImageFormat, LogFormat, LogLevel,
    TlsVersion,
};

use super::changes::Document;
use super::secret::Secret;
use penstock_wire::host::Hosts;
use rust_decimal::Decimal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One whole configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which configuration this is; the same text gives the same version.
    pub version: ConfigVersion,
    /// What was written, defaults included: for what a reload changes.
    pub document: Document,
    /// Where it listens.
    pub listen: Listen,
    /// Where it keeps what must last.
    pub storage: Storage,
    /// When it saves what must last elsewhere.
    pub exports: Exports,
    /// Where it keeps what is needed for a while.
    pub spool: Spool,
    /// What clients keep.
    pub files: Files,
    /// Sizes and times that bound a client.
    pub limits: Limits,
    /// How much it takes on at the same time.
    pub overload: Overload,
    /// How providers are tried.
    pub routing: Routing,
    /// What is told of the footprint.
    pub impact: Impact,
    /// Images that clients fetch by their address.
    pub images: Images,
    /// What a credit is.
    pub billing: Billing,
    /// How charges are written down.
    pub ledger: Ledger,
    /// How batches are worked off.
    pub batches: Batches,
    /// Habits of other services that clients expect.
    pub compatibility: Compatibility,
    /// When the grid is clean.
    pub grid: Grid,
    /// How long open requests may go on after a termination signal.
    pub drain: Duration,
    /// How often [`Settings::watched`] are looked at; zero for never.
    pub watch: Duration,
    /// Files of secrets and certificates, as they were named.
    pub watched: Vec<PathBuf>,
    /// The process may leave what is in its memory on disk when it dies.
    pub core_dumps: bool,
    /// Worker threads, at least one.
    pub threads: usize,
    /// Lines on standard error.
    pub log: Log,
    /// Models for requests that name none.
    pub default_models: DefaultModels,
    /// The catalogue, in the order it is written.
    pub models: Vec<Arc<Model>>,
    /// Who runs the models.
    pub providers: Vec<Arc<Provider>>,
    /// Every pair of provider and model; `offers[i].index == i`.
    pub offers: Vec<Arc<Offer>>,
    /// Simulated providers to start in this process.
    pub simulators: Vec<Simulated>,
}

/// Twelve hexadecimal digits of the SHA-256 of the effective configuration, secrets left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigVersion(pub Box<str>);

/// Listeners. No two share an address; at least one of `http` and `https` is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Plain HTTP/1.1; HTTP/2 is spoken over TLS, where it is agreed on.
    pub http: Vec<SocketAddr>,
    /// HTTP over TLS.
    pub https: Option<Https>,
    /// Scheme and host, no slash at its end, by which clients reach it.
    pub public_url: Option<Box<str>>,
    /// Names by which it is reached, those of `public_url` and of the machine included.
    pub hosts: Hosts,
    /// Whose pages may call it.
    pub cors: Cors,
    /// Where the operator's own documentation stands.
    pub documentation: Option<Box<str>>,
    /// Metrics, health and administration; not for the public.
    pub admin: SocketAddr,
}

/// Origins whose pages a browser lets call the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// All of them.
    Any,
    /// These, as browsers write them: scheme, host and perhaps a port, in lower case. Never empty.
    Origins(Vec<Box<str>>),
    /// None: no header of CORS is sent.
    Off,
}

/// The TLS listener. Both files were readable PEM when the settings were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Https {
    /// Where.
    pub address: SocketAddr,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Whose certificates clients may show, PEM; `None`: they are not asked.
    pub client_ca: Option<PathBuf>,
    /// Whether they have to.
    pub client_certificate: ClientCertificates,
    /// The oldest version that is spoken.
    pub min_tls: TlsVersion,
}

/// The store.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Its folder; made at the first start.
    pub path: PathBuf,
    /// Bytes kept aside on the disk, freed when it is full so that work can be ended in order.
    pub ballast_bytes: u64,
    /// The pepper of the key digests, 32 bytes; `None`: the gateway makes one in the folder.
    pub pepper: Option<Secret>,
}

/// Archives that the gateway makes of what lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports {
    /// Their folder; made with the first.
    pub path: PathBuf,
    /// How often; `None` never.
    pub every: Option<Duration>,
    /// How many are kept.
    pub keep: usize,
}

/// Files without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Their folder; made when it is first needed.
    pub path: PathBuf,
    /// Bytes that stay in memory.
    pub memory: usize,
    /// Bytes of all files together.
    pub disk: u64,
}

/// Files that clients upload, and results of batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Folder of their contents; made at the first start.
    pub path: PathBuf,
    /// Bytes of the largest file.
    pub upload: u64,
    /// Bytes of all files.
    pub disk: u64,
    /// Bytes of one key's files.
    pub per_key: u64,
    /// Bytes of the disk that uploads leave free.
    pub keep_free: u64,
    /// Seconds that files are kept; `None` until they are deleted.
    pub retention: Option<u64>,
}

/// Images that clients fetch by their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// How long an image can be fetched.
    pub lifetime: Duration,
    /// Bytes of all images together.
    pub keep: u64,
}

/// Bounds on what a client may send and on how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most client connections.
    pub connections: usize,
    /// Most of them from one client.
    pub connections_per_client: usize,
    /// Largest request head, in bytes.
    pub head: usize,
    /// Most header fields of a request.
    pub head_fields: usize,
    /// Longest request target, in bytes.
    pub target: usize,
    /// Most streams at a time of an HTTP/2 connection.
    pub h2_streams: u32,
    /// Most of its streams that were given up, less those that were answered.
    pub h2_resets: usize,
    /// Most of its frames in a second that carry nothing.
    pub h2_frames: usize,
    /// Largest JSON body, in bytes.
    pub json_body: usize,
    /// Largest form with audio, in bytes.
    pub audio_body: usize,
    /// Deepest nesting of a JSON body.
    pub json_depth: usize,
    /// Whole request head, from the first byte (HTTP/1.1).
    pub request_head: Duration,
    /// Longest silence within a request body.
    pub body_idle: Duration,
    /// Whole request body.
    pub body: Duration,
    /// Whole form with audio.
    pub upload: Duration,
    /// How long an idle client connection stays open.
    pub keep_alive: Duration,
    /// Longest time a client may leave a write waiting.
    pub client_write: Duration,
    /// Silence after which a waiting stream gets a comment.
    pub heartbeat: Duration,
    /// Largest plain answer of a provider, in bytes.
    pub response_buffer: usize,
}

/// Models, by id, for requests that name none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultModels {
    /// For `/v1/messages/count_tokens`.
    pub count_tokens: Option<Box<str>>,
    /// For `/v1/images/generations`.
    pub images: Option<Box<str>>,
}

/// How much is taken on at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Most requests.
    pub requests: usize,
    /// Most bytes of request bodies and unstreamed answers.
    pub bytes: usize,
    /// Most requests that wait, for the house and for each provider.
    pub queue: usize,
    /// How long they wait.
    pub wait: Duration,
    /// Most long prompts that are counted at the same time.
    pub counting: usize,
}

/// How providers are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Most attempts for one request, at least 1.
    pub attempts: u32,
    /// The deadline of a request over all its attempts.
    pub total: Duration,
    /// How long a request waits for a provider's `Retry-After` instead of moving on.
    pub patience: Duration,
    /// Mean pause before the one quick retry with the same provider.
    pub quick_retry: Duration,
    /// How long a request with `:batch` waits for its turn.
    pub batch_wait: Duration,
    /// Lines of batches at a time at a provider without a number of seats.
    pub batch_lines: usize,
    /// When a provider is left alone.
    pub breaker: Breaker,
}

/// Thresholds of passive ejection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    /// Failures in a row.
    pub consecutive: u32,
    /// Share of failures within `window`, 0 to 1.
    pub error_rate: f64,
    /// Results within `window` below which the share does not count.
    pub minimum: u32,
    /// What the share looks back on.
    pub window: Duration,
    /// First rest; it doubles with each ejection in a row.
    pub rest: Duration,
    /// Longest rest.
    pub rest_max: Duration,
}

impl Breaker {
    /// As the routing room takes them.
    #[must_use]
    pub fn settings(&self) -> penstock_routing::breaker::Settings {
        penstock_routing::breaker::Settings {
            consecutive: self.consecutive,
            error_share: self.error_rate,
            minimum: self.minimum,
            window: self.window,
            open: self.rest,
            open_max: self.rest_max,
            ..penstock_routing::breaker::Settings::default()
        }
    }
}

/// What is told of the footprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impact {
    /// Whether `environment_impact.provenance` is there.
    pub provenance: bool,
}

/// Money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Billing {
    /// Price of one credit, in EUR.
    pub eur_per_credit: Decimal,
    /// Price of one kilowatt-hour, in EUR, where model and offer name none.
    pub eur_per_kwh: Decimal,
    /// Accounts may spend no more than they were granted.
    pub prepaid: bool,
    /// Output tokens set aside for a request that names no cap.
    pub reserve_output_tokens: u64,
}

/// How charges are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// How long a charge waits for others.
    pub window: Duration,
    /// The last bytes of an answer wait until its charge is on the disk.
    pub answers_wait: bool,
    /// What may stand unwritten while the store fails, in 1e-8 EUR.
    pub debt: i64,
    /// What may stand unwritten at all, in bytes.
    pub backlog: usize,
    /// A write that takes longer means that the store fails.
    pub slow: Duration,
    /// How far the last entry may be dated ahead of the clock.
    pub ahead: Duration,
}

/// How batches are worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Most lines at work at the same time.
    pub concurrency: usize,
    /// Most batches of an account that are not over.
    pub open: usize,
    /// Bytes of lines and results in memory, all batches together.
    pub memory: usize,
    /// Longest line of an uploaded file, in bytes.
    pub line: usize,
    /// When a line is asked again.
    pub again: penstock_batch::again::Again,
}

/// When the grid is clean; without places batches never wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Least saving that is worth a wait, in thousandths.
    pub saving: u32,
    /// What a kilowatt-hour emits, by member state or id of a provider.
    pub places: std::collections::BTreeMap<String, penstock_batch::grid::Place>,
}

/// Lines on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least important line that is written.
    pub level: LogLevel,
    /// Its shape.
    pub format: LogFormat,
}

/// A simulated provider started in this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Its name in its own texts.
    pub name: Box<str>,
    /// Where it listens; always loopback.
    pub address: SocketAddr,
    /// The same seed and request give the same answer.
    pub seed: u64,
    /// Time to the first token.
    pub first_token: Duration,
    /// Tokens a second after it.
    pub tokens_per_second: f64,
}

impl Settings {
    /// The model with this id; aliases do not count.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.iter().find(|model| model.card.id == id)
    }

    /// The offers of the model with this id.
    pub fn offers_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Offer>> {
        self.offers.iter().filter(move |offer| offer.model.card.id == id)
    }
}
