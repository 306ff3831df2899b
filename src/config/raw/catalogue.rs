//! Models as users write them.

use super::Exact;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Models for requests that name none. Where nothing is written here, such a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct DefaultModels {
    /// Id of the model whose tokens `/v1/messages/count_tokens` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "model-id"), example = &"llama-3.1-8b-instruct")]
    pub count_tokens: Option<String>,
    /// Id of the model that `/v1/images/generations` draws with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "model-id"), example = &"flux.1-dev")]
    pub images: Option<String>,
}

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Model {
    /// The name that clients ask for.
    #[schemars(extend("format" = "model-id"), example = &"llama-3.1-8b-instruct")]
    pub id: String,
    /// Its name for people; the id when left out.
    pub name: Option<String>,
    /// A sentence or two for people.
    #[serde(default)]
    pub description: String,
    /// What it does.
    pub kind: Kind,
    /// Other names it answers to. A name with `*`, which stands for any text, is a pattern: it is compared without regard
    /// to case, after all ids and other aliases.
    #[serde(default)]
    #[schemars(extend("items" = { "type": "string", "format": "model-id" }))]
    pub aliases: Vec<String>,
    /// Input and output tokens together.
    #[schemars(range(min = 1, max = 1_000_000_000), example = 131_072)]
    pub context_length: u64,
    /// Most generated tokens, where that is less than the window.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_output: Option<u64>,
    /// When it came out, in Unix seconds; the time when the gateway first listed it when left out.
    #[serde(default)]
    pub created: u64,
    /// Who made it, for clients; what stands before the first `/` of the id when left out.
    #[schemars(length(min = 1), example = &"Meta")]
    pub owned_by: Option<String>,
    /// Where it stands in its life; clients see it.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// What a request may set, as `tools`, `response_format`, `temperature`, `stream`; what engines of its kind
    /// usually take when left out.
    pub supported_parameters: Option<Vec<String>>,
    /// Most choices (`n`) of one request to a provider; by `supported_parameters` when left out: one, if there is a
    /// list without `n`.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// What goes in; by kind when left out.
    pub input_modalities: Option<Vec<Modality>>,
    /// What comes out; by kind when left out.
    pub output_modalities: Option<Vec<Modality>>,
    /// Sizes in which it draws, its own first; any when left out.
    #[serde(default)]
    #[schemars(example = &["1024x1024", "1024x1536"])]
    pub image_sizes: Vec<String>,
    /// Price at every provider that names none of its own.
    #[serde(default)]
    pub price: Price,
    /// Prices that come later, each from a day on: what it does not name stays.
    #[serde(default)]
    pub price_changes: Vec<DatedPrice>,
    /// What its requests are paid with.
    #[serde(default)]
    pub billing: Billing,
    /// What it draws, for the footprint and for billing by energy.
    #[serde(default)]
    pub energy: Energy,
    /// How its tokens are counted. Without it counts are estimates.
    pub tokenizer: Option<Tokenizer>,
    /// What the scores of a reranking model are: `as_is` from 0 to 1 already, or logits that a `sigmoid` is
    /// taken of.
    #[serde(default)]
    pub score: Score,
    /// What token ids in the `input` of an embedding request are: ids of `cl100k_base` or `o200k_base`, which
    /// become text, the model's own (`native`), or nothing that is taken (`refuse`).
    #[serde(default)]
    pub token_ids: TokenIds,
    /// Sampling parameters that a request's `preset` fills in where the client left them out.
    #[serde(default)]
    pub presets: Presets,
    /// Models that answer instead when every offer of this one fails, in this order.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// Whether a stream that breaks is carried on by another provider.
    #[serde(default = "yes")]
    pub rescue: bool,
}

const fn yes() -> bool {
    true
}

/// What a model does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Kind {
    Chat,
    Embedding,
    Rerank,
    Image,
    Transcription,
}

/// What scores are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Score {
    #[default]
    AsIs,
    Sigmoid,
}

/// What token ids are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TokenIds {
    #[default]
    #[serde(rename = "cl100k_base")]
    Cl100kBase,
    #[serde(rename = "o200k_base")]
    O200kBase,
    #[serde(rename = "native")]
    Native,
    #[serde(rename = "refuse")]
    Refuse,
}

/// Where a model stands in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Lifecycle {
    #[default]
    Active,
    Deprecated,
    Retired,
}

/// What goes into a model or comes out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Modality {
    Text,
    Image,
    Audio,
    File,
    Embeddings,
    Scores,
}

impl Modality {
    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::File => "file",
            Self::Embeddings => "embeddings",
            Self::Scores => "scores",
        }
    }
}

/// Prices in EUR.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Price {
    /// Per million input tokens.
    pub input: Option<Exact>,
    /// Per million input tokens read from a cache; the price of input when left out.
    pub cached_input: Option<Exact>,
    /// Per million output tokens.
    pub output: Option<Exact>,
    /// Per image.
    pub image: Option<Exact>,
    /// Per minute of audio.
    pub minute: Option<Exact>,
    /// Per kilowatt-hour, for models billed by energy.
    pub kwh: Option<Exact>,
}

/// Prices from a day on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct DatedPrice {
    /// The first day, which begins at midnight UTC.
    #[schemars(extend("format" = "date"), example = &"2027-01-01")]
    pub from: String,
    /// The prices.
    pub price: Price,
}

/// What a request is paid with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Billing {
    #[default]
    Credits,
    Energy,
}

/// What a model draws on its accelerators. Unknown figures are left out, never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Energy {
    /// Billions of parameters that work on one token.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub active_params_b: Option<Exact>,
    /// Billions of parameters in all.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub total_params_b: Option<Exact>,
    /// Bits per weight; 16 when left out.
    #[schemars(range(min = 1, max = 64))]
    pub weight_bits: Option<u32>,
    /// Joules per input token; derived from the active parameters when left out.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_input_token: Option<Exact>,
    /// Joules per generated token; estimated from the parameters when left out.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_output_token: Option<Exact>,
    /// Joules per image of 1024×1024 pixels at `image_steps`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_image: Option<Exact>,
    /// Diffusion steps that `joules_per_image` is stated for.
    #[schemars(range(min = 1, max = 10_000))]
    pub image_steps: Option<u32>,
    /// Joules per second of audio.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_audio_second: Option<Exact>,
    /// Where the joules come from; `benchmark` when left out.
    pub method: Option<Method>,
}

/// Where an energy figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum Method {
    ProviderAverage,
    Benchmark,
    Parametric,
    ClassDefault,
}

/// How tokens are counted: the model's own files, or one that the gateway brings along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Tokenizer {
    /// The model's `tokenizer.json`, relative to this file.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.json")]
    pub file: Option<String>,
    /// Its chat template (Jinja), relative to this file.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.jinja")]
    pub chat_template: Option<String>,
    /// Its `tokenizer_config.json`, which names the special tokens and may hold the template.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.config.json")]
    pub config: Option<String>,
    /// One that the gateway brings along, instead of files.
    #[schemars(length(min = 1), example = &"gpt-oss")]
    pub builtin: Option<String>,
    /// How an image becomes tokens, such as `{ rule = "patches", px = 28, min = 4, max = 16384 }`. Without it
    /// requests with images are estimated.
    pub images: Option<Map<String, Value>>,
}

/// Sampling parameters by preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Presets {
    /// For `preset: "reasoning"`.
    pub reasoning: Map<String, Value>,
    /// For `preset: "non_reasoning"`.
    pub non_reasoning: Map<String, Value>,
}
