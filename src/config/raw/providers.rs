//! Providers and their offers as written in a configuration.

use super::{
    DatedPriceConfig, ExactDecimal, HeaderValueConfig, NonZeroDuration, PriceConfig, RerankScoreConfig,
    SecretRef, TlsVersion,
};
use penstock_core::Dialect;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// An operator that runs models at one location.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ProviderConfig {
    /// Unique name of the provider in answers, logs and metrics.
    #[schemars(extend("format" = "provider-id"), example = &"scaleway-par2")]
    pub id: String,
    /// Company that runs the provider.
    #[schemars(length(min = 1), example = &"Scaleway SAS")]
    pub operator: String,
    /// Country of the provider's machines: one of the 27 member states of the EU, as two capital letters.
    #[schemars(extend("format" = "country"), example = &"FR")]
    pub country: String,
    /// City of the provider's machines.
    #[schemars(length(min = 1), example = &"Paris")]
    pub city: String,
    /// Base URL of the provider's API, including the version.
    #[schemars(length(min = 1), example = &"https://api.example.eu/v1")]
    pub base_url: String,
    /// API key for the provider, as a reference to a secret.
    pub api_key: Option<SecretRef>,
    /// Dialects that the provider supports, the preferred first.
    #[serde(default = "chat")]
    #[schemars(length(min = 1))]
    pub dialects: Vec<DialectConfig>,
    /// Power usage effectiveness of the building; 1.40, marked as assumed, when left out.
    #[schemars(range(min = 1, max = 5), example = 1.16)]
    pub pue: Option<ExactDecimal>,
    /// Litres of water on site per kilowatt-hour; 0.40, marked as assumed, when left out.
    #[schemars(range(min = 0, max = 50), example = 0.214)]
    pub wue: Option<ExactDecimal>,
    /// Renewable power by contract.
    pub contractual_renewable: Option<RenewableContractConfig>,
    /// Timeouts of requests to the provider.
    #[serde(default)]
    pub timeouts: TimeoutsConfig,
    /// Active health checks, which detect a failing provider before a request is sent to it.
    pub health: Option<HealthCheckConfig>,
    /// HTTP version of the connections.
    #[serde(default)]
    pub http: HttpVersion,
    /// CA certificates that verify the provider's certificate, instead of the system's; PEM, relative to this file.
    #[schemars(length(min = 1), example = &"tls/own-root.pem")]
    pub ca: Option<String>,
    /// Client certificate chain that the gateway presents, PEM; its key is in `client_key`.
    #[schemars(length(min = 1), example = &"tls/client.pem")]
    pub client_certificate: Option<String>,
    /// Private key of `client_certificate`, PEM.
    #[schemars(length(min = 1), example = &"tls/client-key.pem")]
    pub client_key: Option<String>,
    /// Minimum TLS version.
    #[serde(default)]
    pub min_tls: TlsVersion,
    /// Maximum number of requests in flight.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: Option<u32>,
    /// Maximum number of choices (`n`) of one request; a larger request is split into single choices. The model's value
    /// by default.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// Inference engine of the provider, if its endpoint for counting tokens may be used.
    pub tokenize: Option<TokenizeEngineName>,
    /// Additional headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderValueConfig>,
    /// Other hosts from which images of its answers may be fetched, as `https://host`, in addition to its own host.
    #[serde(default)]
    #[schemars(example = &["https://images.example.eu"])]
    pub image_hosts: Vec<String>,
    /// Boundary of its energy meter, if its answers report measured energy without a boundary: `gpu` for the
    /// accelerators, `it` for the complete server, `facility` for the building.
    pub measured: Option<MeterBoundaryConfig>,
    /// True if, by contract, models billed by energy are charged for measured energy (at most twice the list value).
    #[serde(default)]
    pub bills_measured: bool,
    /// Offers: one block for each model that it runs.
    #[serde(default)]
    pub offers: Vec<OfferConfig>,
}

fn chat() -> Vec<DialectConfig> {
    vec![DialectConfig(Dialect::Chat)]
}

/// API dialect of a provider, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialectConfig(pub Dialect);

impl Serialize for DialectConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for DialectConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let dialect = Dialect::from_name(&name);
        dialect.map(Self).ok_or_else(|| D::Error::unknown_variant(&name, &Dialect::NAMES))
    }
}

impl JsonSchema for DialectConfig {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Dialect".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "API dialect of a provider.", "type": "string", "enum": Dialect::NAMES
        })
    }
}

/// Renewable power by contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct RenewableContractConfig {
    /// Share of its power, 0 to 1.
    #[schemars(range(min = 0, max = 1), example = 1.0)]
    pub share: ExactDecimal,
    /// Evidence for the contract.
    pub evidence: PowerContractEvidence,
}

/// Evidence for a renewable power contract, the strongest first: power generated on the site; a power purchase in the
/// same zone, matched by the hour or finer, or by the year; certificates without the power (unbundled).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum PowerContractEvidence {
    OnSite,
    HourlyPpa,
    AnnualPpa,
    Unbundled,
}

/// Timeouts of requests to a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct TimeoutsConfig {
    /// Timeout of the TCP connection, and again of the TLS handshake.
    pub connect: NonZeroDuration,
    /// Timeout of the response head of a stream.
    pub first_byte: NonZeroDuration,
    /// Timeout of the response head of an unstreamed request, which arrives after the generation.
    pub plain: NonZeroDuration,
    /// Maximum time from the response head of a stream to its first content token.
    pub first_token: NonZeroDuration,
    /// Maximum time without progress, in a stream after its first content token. Generated text, reasoning or a tool
    /// call is progress in a stream; comments, pings and empty deltas are not. In any other answer, every byte that is
    /// not white space is progress.
    pub idle: NonZeroDuration,
    /// Timeout of a complete attempt.
    pub total: NonZeroDuration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            connect: NonZeroDuration::from_secs(2),
            first_byte: NonZeroDuration::from_secs(30),
            plain: NonZeroDuration::from_secs(300),
            first_token: NonZeroDuration::from_secs(20),
            idle: NonZeroDuration::from_secs(30),
            total: NonZeroDuration::from_secs(600),
        }
    }
}

/// Active health check: a GET that must answer with a status below 400.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct HealthCheckConfig {
    /// Path below the base URL.
    pub path: String,
    /// Pause between two checks.
    pub interval: NonZeroDuration,
    /// Timeout of a check.
    pub timeout: NonZeroDuration,
}

impl Default for HealthCheckConfig {
    fn default() -> Self {
        Self {
            path: "/models".into(),
            interval: NonZeroDuration::from_secs(10),
            timeout: NonZeroDuration::from_secs(5),
        }
    }
}

/// HTTP version of connections to a provider. `auto` is h2 if TLS negotiates it, otherwise HTTP/1.1; `h2` over plain
/// TCP uses prior knowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum HttpVersion {
    #[default]
    Auto,
    H1,
    H2,
}

/// Inference engine that can count tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TokenizeEngineName {
    #[serde(rename = "vllm")]
    Vllm,
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    #[serde(rename = "sglang")]
    Sglang,
    #[serde(rename = "tgi")]
    Tgi,
    #[serde(rename = "tei")]
    Tei,
}

/// Boundary of an energy meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum MeterBoundaryConfig {
    Gpu,
    It,
    Facility,
}

/// One model at one provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct OfferConfig {
    /// Id of the model in the catalogue.
    #[schemars(length(min = 1), example = &"llama-3.1-8b-instruct")]
    pub model: String,
    /// Name of the model at this provider; the id by default.
    #[schemars(length(min = 1), example = &"meta-llama/Llama-3.1-8B-Instruct")]
    pub name: Option<String>,
    /// Price of this offer. A price that is left out is the model's; that of cached input is lowered to `input` if it
    /// would be higher.
    #[serde(default)]
    pub price: PriceConfig,
    /// Future prices of this offer, each from a given day on.
    #[serde(default)]
    pub price_changes: Vec<DatedPriceConfig>,
    /// Dialects for this model; the provider's by default.
    #[schemars(length(min = 1))]
    pub dialects: Option<Vec<DialectConfig>>,
    /// Context window of this offer; the model's by default.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub context_length: Option<u64>,
    /// Maximum number of generated tokens of this offer; the model's by default.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_output: Option<u64>,
    /// Parameters that a request to this offer may set; the model's by default.
    pub supported_parameters: Option<Vec<String>>,
    /// Request format for models that are not for chat, such as `tei` for rerank; by default that of the model's kind.
    #[schemars(length(min = 1), example = &"tei")]
    pub shape: Option<String>,
    /// Method by which the offer continues an answer that broke off at another provider, if it can.
    pub continuation: Option<ContinuationConfig>,
    /// Method by which the offer accepts a final assistant message as the start of its answer, if it can.
    #[serde(default)]
    pub prefill: PrefillConfig,
    /// True if the reasoning of earlier turns is sent back in the prompt.
    #[serde(default)]
    pub replay_reasoning: bool,
    /// Name of the reasoning member in messages to this engine; by default the name in its answers.
    pub reasoning_name: Option<ReasoningFieldConfig>,
    /// True if `chat_template_kwargs.enable_thinking` turns reasoning on and off.
    #[serde(default)]
    pub thinking_switch: bool,
    /// True if the provider has `/completions` for text completions; otherwise it is asked in chat.
    #[serde(default)]
    pub completions: bool,
    /// True if tool call ids must have nine letters or digits.
    #[serde(default)]
    pub short_tool_ids: bool,
    /// True if tool messages may contain images.
    #[serde(default)]
    pub tool_images: bool,
    /// True if a system message may be at any position.
    #[serde(default)]
    pub system_anywhere: bool,
    /// Maximum number of stop sequences that the offer accepts. Stop sequences beyond it are applied by the gateway.
    #[schemars(range(min = 0, max = 100))]
    pub max_stop: Option<u32>,
    /// Maximum number of choices (`n`) of one request; a larger request is split into single choices. The provider's
    /// value by default.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// Maximum number of images per call; more are requested in several calls, one after the other.
    #[schemars(range(min = 1, max = 10))]
    pub max_images: Option<u32>,
    /// Maximum number of inputs or documents per call; longer lists are split.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_inputs: Option<u32>,
    /// Scale of the scores of this offer; the model's by default.
    pub score: Option<RerankScoreConfig>,
    /// Default number of diffusion steps of an image; the footprint scales with it.
    #[schemars(range(min = 1, max = 10_000))]
    pub image_steps: Option<u32>,
    /// True if the provider confirms that it runs this model in a throughput tier, as for batches: output then uses 0.6
    /// of the energy. The price stays the same.
    #[serde(default)]
    pub throughput_tier: bool,
}

/// Name of the reasoning member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ReasoningFieldConfig {
    ReasoningContent,
    Reasoning,
}

/// Method of continuing a broken answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ContinuationConfig {
    ContinueFinalMessage,
    Prefill,
}

/// Method of accepting a final assistant message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum PrefillConfig {
    #[default]
    None,
    ContinueFinalMessage,
    Prefix,
    Automatic,
}

/// A simulated provider in this process. Its texts say that they are simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct SimulatorConfig {
    /// Name of the provider in its generated texts.
    #[schemars(extend("format" = "provider-id"), example = &"north")]
    pub name: String,
    /// Listen address; must be a loopback address.
    #[schemars(extend("format" = "address"), example = &"127.0.0.1:9101")]
    pub address: String,
    /// Seed: the same seed and request give the same answer.
    #[serde(default)]
    pub seed: u64,
    /// Time to the first token.
    #[serde(default = "first_token")]
    pub first_token: super::DurationOrZero,
    /// Tokens per second after the first.
    #[serde(default = "tokens_per_second")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tokens_per_second: u32,
}

fn first_token() -> super::DurationOrZero {
    super::DurationOrZero(std::time::Duration::from_millis(120))
}

const fn tokens_per_second() -> u32 {
    80
}
