//! Models as written in a configuration.

use super::ExactDecimal;
use penstock_core::ModelKind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Default model of each endpoint, for requests that name no model. Without an entry, such a request is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct DefaultModelsConfig {
    /// Id of the model for `/v1/messages/count_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "model-id"), example = &"llama-3.1-8b-instruct")]
    pub count_tokens: Option<String>,
    /// Id of the model for `/v1/images/generations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "model-id"), example = &"flux.1-dev")]
    pub images: Option<String>,
    /// Id of the model for `/v1/moderations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "model-id"), example = &"llama-guard-3-8b")]
    pub moderations: Option<String>,
}

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ModelConfig {
    /// Model id, used by clients in requests.
    #[schemars(extend("format" = "model-id"), example = &"llama-3.1-8b-instruct")]
    pub id: String,
    /// Display name; the id by default.
    pub name: Option<String>,
    /// Description for people, one or two sentences.
    #[serde(default)]
    pub description: String,
    /// Kind of work that the model does.
    pub kind: ModelKindName,
    /// Other names of the model. A name with `*`, which stands for any text, is a pattern: it is matched without regard
    /// to case, after all ids and other aliases.
    #[serde(default)]
    #[schemars(extend("items" = { "type": "string", "format": "model-id" }))]
    pub aliases: Vec<String>,
    /// Context window: maximum of input and output tokens together.
    #[schemars(range(min = 1, max = 1_000_000_000), example = 131_072)]
    pub context_length: u64,
    /// Maximum number of generated tokens, if smaller than the context window.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_output: Option<u64>,
    /// Release time in Unix seconds; by default the time when the gateway first listed the model.
    #[serde(default)]
    pub created: u64,
    /// Owner of the model, shown to clients; by default the part of the id before the first `/`.
    #[schemars(length(min = 1), example = &"Meta")]
    pub owned_by: Option<String>,
    /// Lifecycle stage, shown to clients.
    #[serde(default)]
    pub lifecycle: LifecycleConfig,
    /// Parameters that a request may set, such as `tools`, `response_format`, `temperature`, `stream`; by default those
    /// that engines of its kind usually accept.
    pub supported_parameters: Option<Vec<String>>,
    /// Maximum number of choices (`n`) of one request to a provider. By default 1, but no maximum if
    /// `supported_parameters` lists `n` or is empty.
    #[schemars(range(min = 1, max = 10))]
    pub max_n: Option<u32>,
    /// Input modalities; by default those of its kind.
    pub input_modalities: Option<Vec<ModalityConfig>>,
    /// Output modalities; by default those of its kind.
    pub output_modalities: Option<Vec<ModalityConfig>>,
    /// Supported image sizes, the default size first; by default any size.
    #[serde(default)]
    #[schemars(example = &["1024x1024", "1024x1536"])]
    pub image_sizes: Vec<String>,
    /// Price at every provider that has no price of its own.
    #[serde(default)]
    pub price: PriceConfig,
    /// Future prices, each from a given day on. A price that is left out stays the same; that of cached input is
    /// lowered to `input` if it would be higher.
    #[serde(default)]
    pub price_changes: Vec<DatedPriceConfig>,
    /// Unit in which requests are paid: credits or energy.
    #[serde(default)]
    pub billing: BillingUnitConfig,
    /// Energy use, for the footprint and for billing by energy.
    #[serde(default)]
    pub energy: EnergyConfig,
    /// Tokenizer for counting tokens. Without it token counts are estimates.
    pub tokenizer: Option<TokenizerConfig>,
    /// Scale of the scores of a reranking model: `as_is` if they are already from 0 to 1, `sigmoid` if they are logits
    /// to be converted.
    #[serde(default)]
    pub score: RerankScoreConfig,
    /// Meaning of token ids in the `input` of an embedding request: ids of `cl100k_base` or `o200k_base`, which are
    /// converted to text; ids of the model itself (`native`), which are sent unchanged; or none, so that they are
    /// refused (`refuse`).
    #[serde(default)]
    pub token_ids: TokenIdPolicyConfig,
    /// Sampling parameters that a request's `preset` sets if the client left them out.
    #[serde(default)]
    pub presets: PresetsConfig,
    /// Models that answer instead if every offer of this one fails, in this order.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// True if another provider continues a stream that breaks.
    #[serde(default = "yes")]
    pub rescue: bool,
    /// True if a conversation goes to the provider that has its beginning cached, while the expected saving outweighs a
    /// better offer.
    #[serde(default = "yes")]
    pub affinity: bool,
}

const fn yes() -> bool {
    true
}

/// Kind of work that a model does, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelKindName(pub ModelKind);

impl Serialize for ModelKindName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for ModelKindName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        ModelKind::from_name(&name)
            .map(Self)
            .ok_or_else(|| D::Error::unknown_variant(&name, &ModelKind::NAMES))
    }
}

impl JsonSchema for ModelKindName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ModelKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ModelKind::NAMES })
    }
}

/// Scale of reranking scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum RerankScoreConfig {
    #[default]
    AsIs,
    Sigmoid,
}

/// Treatment of token ids in the `input` of an embedding request: ids of a published encoding are converted to text,
/// ids of the model (`native`) are sent unchanged, or ids are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum TokenIdPolicyConfig {
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

/// Lifecycle stage of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum LifecycleConfig {
    #[default]
    Active,
    Deprecated,
    Retired,
}

/// Modality of a model's input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ModalityConfig {
    Text,
    Image,
    Audio,
    File,
    Embeddings,
    Scores,
}

impl ModalityConfig {
    /// Name on the wire.
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
pub struct PriceConfig {
    /// Price per million input tokens.
    pub input: Option<ExactDecimal>,
    /// Price per million input tokens read from a cache; the price of `input` by default.
    pub cached_input: Option<ExactDecimal>,
    /// Price per million output tokens.
    pub output: Option<ExactDecimal>,
    /// Price per image.
    pub image: Option<ExactDecimal>,
    /// Price per minute of audio.
    pub minute: Option<ExactDecimal>,
    /// Price per kilowatt-hour, for models billed by energy.
    pub kwh: Option<ExactDecimal>,
}

/// Prices from a given day on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct DatedPriceConfig {
    /// First day of the prices, which begins at midnight UTC.
    #[schemars(extend("format" = "date"), example = &"2027-01-01")]
    pub from: String,
    /// Prices from that day on.
    pub price: PriceConfig,
}

/// Unit in which requests are paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum BillingUnitConfig {
    #[default]
    Credits,
    Energy,
}

/// Energy use of a model on its accelerators. Leave unknown figures out; do not write 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct EnergyConfig {
    /// Active parameters per token, in billions.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub active_params_b: Option<ExactDecimal>,
    /// Total number of parameters, in billions.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub total_params_b: Option<ExactDecimal>,
    /// Bits per weight; 16 by default.
    #[schemars(range(min = 1, max = 64))]
    pub weight_bits: Option<u32>,
    /// Joules per input token; derived from the active parameters by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_input_token: Option<ExactDecimal>,
    /// Joules per generated token; estimated from the parameters by default.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_output_token: Option<ExactDecimal>,
    /// Joules per image of 1024×1024 pixels at `image_steps`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_image: Option<ExactDecimal>,
    /// Number of diffusion steps to which `joules_per_image` refers.
    #[schemars(range(min = 1, max = 10_000))]
    pub image_steps: Option<u32>,
    /// Joules per second of audio.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub joules_per_audio_second: Option<ExactDecimal>,
    /// Source of the joule figures; `benchmark` by default.
    pub method: Option<EnergyMethodConfig>,
}

/// Source of an energy figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum EnergyMethodConfig {
    ProviderAverage,
    Benchmark,
    Parametric,
    ClassDefault,
}

/// Tokenizer: the model's own files, or one that is built into the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct TokenizerConfig {
    /// Path of the model's `tokenizer.json`, relative to this file.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.json")]
    pub file: Option<String>,
    /// Path of the chat template (Jinja), relative to this file.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.jinja")]
    pub chat_template: Option<String>,
    /// Path of `tokenizer_config.json`, which names the special tokens and may contain the template.
    #[schemars(length(min = 1), example = &"tokenizers/llama-3.1.config.json")]
    pub config: Option<String>,
    /// Name of a built-in tokenizer, instead of files.
    #[schemars(length(min = 1), example = &"gpt-oss")]
    pub builtin: Option<String>,
    /// Rule that counts the tokens of an image, such as `{ rule = "patches", px = 28, min = 4, max = 16384 }`. Without
    /// it, token counts of requests with images are estimates.
    pub images: Option<Map<String, Value>>,
}

/// Sampling parameters by preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct PresetsConfig {
    /// Parameters for `preset: "reasoning"`.
    pub reasoning: Map<String, Value>,
    /// Parameters for `preset: "non_reasoning"`.
    pub non_reasoning: Map<String, Value>,
}
