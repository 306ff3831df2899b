//! Providers and their offers as users write them.

use super::{DatedPrice, Exact, HeaderValue, Price, Reference, Score, Span, TlsVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who runs models, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Provider {
    /// Its name in answers, logs and metrics.
    #[schemars(extend("format" = "provider-id"), example = &"scaleway-par2")]
    pub id: String,
    /// The company that runs it.
    #[schemars(length(min = 1), example = &"Scaleway SAS")]
    pub operator: String,
    /// Where its machines are: one of the 27 member states of the EU, as two capitals.
    #[schemars(extend("format" = "country"), example = &"FR")]
    pub country: String,
    /// The city there.
    #[schemars(length(min = 1), example = &"Paris")]
    pub city: String,
    /// Where it is asked, down to the version.
    #[schemars(length(min = 1), example = &"https://api.example.eu/v1")]
    pub base_url: String,
    /// What it is asked with, by reference.
    pub api_key: Option<Reference>,
    /// Dialects it speaks itself, the preferred first.
    #[serde(default = "chat")]
    #[schemars(length(min = 1))]
    pub dialects: Vec<Dialect>,
    /// Power usage effectiveness of the building; 1.40, marked as assumed, when left out.
    #[schemars(range(min = 1, max = 5), example = 1.16)]
    pub pue: Option<Exact>,
    /// Litres of water on site per kilowatt-hour; 0.40, marked as assumed, when left out.
    #[schemars(range(min = 0, max = 50), example = 0.214)]
    pub wue: Option<Exact>,
    /// Renewable power by contract.
    pub contractual_renewable: Option<Contractual>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Checks on the side, so that a sick provider is known before a request meets it.
    pub health: Option<Health>,
    /// The HTTP version it is asked in.
    #[serde(default)]
    pub http: HttpVersion,
    /// Roots for its certificate instead of the system's, PEM, relative to this file.
    #[schemars(length(min = 1), example = &"tls/own-root.pem")]
    pub ca: Option<String>,
    /// What it is shown of ours, PEM: a certificate chain, and the key in `client_key`.
    #[schemars(length(min = 1), example = &"tls/client.pem")]
    pub client_certificate: Option<String>,
    /// The key of `client_certificate`, PEM.
    #[schemars(length(min = 1), example = &"tls/client-key.pem")]
    pub client_key: Option<String>,
    /// The oldest version of TLS that is spoken with it.
    #[serde(default)]
    pub min_tls: TlsVersion,
    /// Most requests at the same time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_in_flight: Option<u32>,
    /// Most choices (`n`) of one request; the choices of a larger one are asked for one by one. The model's when
    /// left out.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// The engine behind it, if its endpoint for counting tokens may be asked.
    pub tokenize: Option<Engine>,
    /// Headers to send besides the dialect's own.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Where else its images may be fetched from, as `https://host`: its answers may name addresses there.
    #[serde(default)]
    #[schemars(example = &["https://images.example.eu"])]
    pub image_hosts: Vec<String>,
    /// Where its energy meter sits, if it reports measured energy without saying so.
    pub measured: Option<Boundary>,
    /// Whether, by contract, measured energy sets the bill of models billed by energy (at most twice the list).
    #[serde(default)]
    pub bills_measured: bool,
    /// A block for each model it runs.
    #[serde(default)]
    pub offers: Vec<Offer>,
}

fn chat() -> Vec<Dialect> {
    vec![Dialect::Chat]
}

/// The language a provider is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Dialect {
    Chat,
    Messages,
}

/// Renewable power by contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Contractual {
    /// Share of its power, 0 to 1.
    #[schemars(range(min = 0, max = 1), example = 1.0)]
    pub share: Exact,
    /// What proves it.
    pub evidence: Evidence,
}

/// What proves a contract for renewable power, the strongest first: power generated on the site; a power purchase in the
/// same zone, matched by the hour or finer, or by the year; certificates without the power (unbundled).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Evidence {
    OnSite,
    HourlyPpa,
    AnnualPpa,
    Unbundled,
}

/// How long a provider may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Timeouts {
    /// To connect, and again for TLS.
    pub connect: Span,
    /// To the response head of a stream.
    pub first_byte: Span,
    /// To the response head of an unstreamed request, which comes when all is generated.
    pub plain: Span,
    /// From the head of a stream to its first content token.
    pub first_token: Span,
    /// Without progress. A stream makes progress with generated text, reasoning or a tool call, and not with comments,
    /// pings or empty deltas; any other answer with what is no white space.
    pub idle: Span,
    /// The whole attempt.
    pub total: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Span::seconds(2),
            first_byte: Span::seconds(30),
            plain: Span::seconds(300),
            first_token: Span::seconds(20),
            idle: Span::seconds(30),
            total: Span::seconds(600),
        }
    }
}

/// Checks on the side: a GET that must answer with a status below 400.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Health {
    /// Path below the base URL.
    pub path: String,
    /// Pause between two checks.
    pub interval: Span,
    /// How long a check may take.
    pub timeout: Span,
}

impl Default for Health {
    fn default() -> Self {
        Self { path: "/models".into(), interval: Span::seconds(10), timeout: Span::seconds(5) }
    }
}

/// The HTTP version of the way to a provider. `auto` is h2 where TLS agrees on it, else HTTP/1.1; `h2` over plain TCP is
/// with prior knowledge.
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

/// An engine that counts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Engine {
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

/// Where an energy meter sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Boundary {
    Gpu,
    It,
    Facility,
}

/// One model at one provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Offer {
    /// The catalogue's id.
    #[schemars(length(min = 1), example = &"llama-3.1-8b-instruct")]
    pub model: String,
    /// What this provider calls the model; the id when left out.
    #[schemars(length(min = 1), example = &"meta-llama/Llama-3.1-8B-Instruct")]
    pub name: Option<String>,
    /// Price here; what is left out is the model's.
    #[serde(default)]
    pub price: Price,
    /// Prices here that come later, each from a day on.
    #[serde(default)]
    pub price_changes: Vec<DatedPrice>,
    /// Dialects for this model; the provider's when left out.
    #[schemars(length(min = 1))]
    pub dialects: Option<Vec<Dialect>>,
    /// Window here; the model's when left out.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub context_length: Option<u64>,
    /// Most generated tokens here; the model's when left out.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_output: Option<u64>,
    /// What a request may set here; the model's when left out.
    pub supported_parameters: Option<Vec<String>>,
    /// How the provider is asked where the model is not for chat, such as `tei` for rerank; by the model's kind
    /// when left out.
    #[schemars(length(min = 1), example = &"tei")]
    pub shape: Option<String>,
    /// How it carries on an answer that broke off elsewhere, if it can.
    pub continuation: Option<Continuation>,
    /// How it takes a last message by the assistant, if it can.
    #[serde(default)]
    pub prefill: Prefill,
    /// Whether the reasoning of earlier turns goes back into the prompt.
    #[serde(default)]
    pub replay_reasoning: bool,
    /// The name of reasoning in the messages of this engine; that of its answers when left out.
    pub reasoning_name: Option<ReasoningName>,
    /// Whether thinking is switched by `chat_template_kwargs.enable_thinking`.
    #[serde(default)]
    pub thinking_switch: bool,
    /// Whether tool call ids must be nine letters or digits.
    #[serde(default)]
    pub short_tool_ids: bool,
    /// Whether images may stand in tool messages.
    #[serde(default)]
    pub tool_images: bool,
    /// Whether a system message may stand anywhere.
    #[serde(default)]
    pub system_anywhere: bool,
    /// Most stop sequences it takes; the gateway enforces the others.
    #[schemars(range(min = 0, max = 100))]
    pub max_stop: Option<u32>,
    /// Most choices (`n`) of one request; the choices of a larger one are asked for one by one. The provider's when
    /// left out.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// Most images of one call; more take several, one after the other.
    #[schemars(range(min = 1, max = 10))]
    pub max_images: Option<u32>,
    /// Most inputs or documents of one call; longer lists are split over several.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_inputs: Option<u32>,
    /// What the scores are here; the model's setting when left out.
    pub score: Option<Score>,
    /// Diffusion steps of an image here, where a request sets none; the footprint scales with them.
    #[schemars(range(min = 1, max = 10_000))]
    pub image_steps: Option<u32>,
    /// Whether the provider confirms that it runs this model in a throughput tier, as for batches: output then draws
    /// 0.6 of the energy. The price stays.
    #[serde(default)]
    pub throughput_tier: bool,
}

/// The name of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ReasoningName {
    ReasoningContent,
    Reasoning,
}

/// How a broken answer is carried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Continuation {
    ContinueFinalMessage,
    Prefill,
}

/// How a last message by the assistant is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Prefill {
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
pub struct Simulated {
    /// Its name in its own texts.
    #[schemars(extend("format" = "provider-id"), example = &"north")]
    pub name: String,
    /// Where it listens; a loopback address.
    #[schemars(extend("format" = "address"), example = &"127.0.0.1:9101")]
    pub address: String,
    /// The same seed and request give the same answer.
    #[serde(default)]
    pub seed: u64,
    /// Time to the first token.
    #[serde(default = "first_token")]
    pub first_token: super::Pause,
    /// Tokens a second after it.
    #[serde(default = "tokens_per_second")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tokens_per_second: u32,
}

fn first_token() -> super::Pause {
    super::Pause(std::time::Duration::from_millis(120))
}

const fn tokens_per_second() -> u32 {
    80
}
